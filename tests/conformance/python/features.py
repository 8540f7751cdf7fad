"""The Python SDK, unmodified, against a bus: one line of JSON for each feature on standard output.

    python -m tests.conformance.python.features [NAME...]

The bus is named by variables; tests/conformance/test_sdks.py sets them. What the SDK does in detail
is tested in the modules beside this package; here it does what the other SDKs do.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
    ServiceBusSubQueue,
    TransportType,
)
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    OperationTimeoutError,
)
from azure.servicebus.management import (
    CorrelationRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
)

from tests.conformance.python.world import (
    CONNECTION_STRING,
    NOTHING_S,
    PREMIUM_STRING,
    TLS_STRING,
    WAIT_S,
    World,
    administration,
    bodies,
    receive,
    receive_one,
    same,
    send_all,
    tell,
)

AT_A_TIME: Final = 6
IN_WORK: Final = 30

Scenario = Callable[[World], str]
OnKind = Callable[[World, bool], None]


def on_both(scenario: OnKind) -> Scenario:
    """A scenario on a conventional and on a partitioned entity."""

    def run(world: World) -> str:
        for is_partitioned in (False, True):
            scenario(world, is_partitioned)
        return "conventional and partitioned"

    return run


@contextmanager
def ends(
    queue: str, prefetch_count: int = 0
) -> Iterator[tuple[ServiceBusSender, ServiceBusReceiver]]:
    with (
        ServiceBusClient.from_connection_string(CONNECTION_STRING) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, prefetch_count=prefetch_count) as receiver,
    ):
        yield sender, receiver


def none(receiver: ServiceBusReceiver) -> None:
    same("messages", len(receiver.receive_messages(1, max_wait_time=NOTHING_S)), 0)


def administration_of_all(world: World) -> str:
    with administration() as manager:
        for is_partitioned in (False, True):
            queue = world.queue(is_partitioned)
            found = manager.get_queue(queue)
            same("partitioned", found.enable_partitioning, is_partitioned)
            found.lock_duration = timedelta(seconds=20)
            manager.update_queue(found)
            same("changed lock", manager.get_queue(queue).lock_duration, timedelta(seconds=20))
            same("messages", manager.get_queue_runtime_properties(queue).total_message_count, 0)
            topic = world.new_name()
            manager.create_topic(topic, enable_partitioning=is_partitioned)
            manager.create_subscription(topic, "all")
            same("subscriptions", len(list(manager.list_subscriptions(topic))), 1)
            same("times listed", [each.name for each in manager.list_queues()].count(queue), 1)
            manager.delete_queue(queue)
            manager.delete_topic(topic)
        same("tier", manager.get_namespace_properties().messaging_sku, "Standard")
    return "queues, topics and subscriptions: create, get, update, list, delete"


def send_one(world: World, is_partitioned: bool) -> None:
    message = ServiceBusMessage(
        "hello",
        message_id="m1",
        subject="greeting",
        time_to_live=timedelta(hours=1),
        application_properties={"long": 7, "text": "x", "real": 1.5, "true": True},
    )
    with ends(world.queue(is_partitioned)) as (sender, receiver):
        sender.send_messages(message)
        got = receive_one(receiver)
        same("body", str(got), "hello")
        same("id", got.message_id, "m1")
        same("subject", got.subject, "greeting")
        same("real", (got.application_properties or {}).get(b"real"), 1.5)
        same("TTL", got.time_to_live, timedelta(hours=1))
        receiver.complete_message(got)
        none(receiver)


def send_batch(world: World, is_partitioned: bool) -> None:
    with ends(world.queue(is_partitioned)) as (sender, receiver):
        batch, filled = sender.create_message_batch(), 0
        try:
            while True:
                batch.add_message(ServiceBusMessage(b"b" * 2000))
                filled += 1
        except MessageSizeExceededError:
            sender.send_messages(batch)
        for message in receive(receiver, filled):
            receiver.complete_message(message)
        none(receiver)


def keyed(world: World) -> str:
    with ends(world.queue(True)) as (sender, receiver):
        for number in range(12):
            sender.send_messages(
                ServiceBusMessage(f"{number:02}", partition_key=f"key-{number % 3}")
            )
        fragments: dict[str, set[int]] = {}
        orders: dict[str, list[str]] = {}
        for message in receive(receiver, 12):
            key = message.partition_key or ""
            fragments.setdefault(key, set()).add((message.sequence_number or 0) >> 48)
            orders.setdefault(key, []).append(str(message))
        same("fragments of each key", {len(each) for each in fragments.values()}, {1})
        same("orders", list(orders.values()), [sorted(each) for each in orders.values()])
    return "one fragment and one order for each key"


def schedule(world: World, is_partitioned: bool) -> None:
    with ends(world.queue(is_partitioned)) as (sender, receiver):
        soon = datetime.now(UTC) + timedelta(seconds=1.5)
        later = datetime.now(UTC) + timedelta(hours=1)
        sender.schedule_messages(ServiceBusMessage("soon"), soon)
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], later)
        sender.cancel_scheduled_messages(numbers)
        got = receive_one(receiver)
        same("body", str(got), "soon")
        same("early", datetime.now(UTC) < soon - timedelta(milliseconds=50), False)
        receiver.complete_message(got)
        same("left", len(receiver.peek_messages(10)), 0)


def receive_in_both_modes(world: World, is_partitioned: bool) -> None:
    queue = world.queue(is_partitioned)
    with ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:
        with client.get_queue_sender(queue) as sender:
            send_all(sender, "1", "2", "3", "4")
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            with client.get_queue_receiver(queue, receive_mode=mode) as deleting:
                same("bodies", bodies(receive(deleting, 4)), "1 2 3 4")
            send_all(sender, "5")
        with client.get_queue_receiver(queue) as receiver:
            locked = receive_one(receiver)
            with client.get_queue_receiver(queue) as other:
                none(other)
            receiver.complete_message(locked)
            same("left", len(receiver.peek_messages(10)), 0)


def settle(world: World, is_partitioned: bool) -> None:
    queue = world.queue(is_partitioned)
    with ends(queue) as (sender, receiver):
        send_all(sender, "complete")
        receiver.complete_message(receive_one(receiver))
        send_all(sender, "abandon")
        receiver.abandon_message(receive_one(receiver))
        again = receive_one(receiver)
        same("deliveries", again.delivery_count, 1)
        receiver.complete_message(again)
        send_all(sender, "defer")
        receiver.defer_message(receive_one(receiver))
        send_all(sender, "dead-letter")
        receiver.dead_letter_message(receive_one(receiver))
    with administration() as manager:
        counts = manager.get_queue_runtime_properties(queue)
    same("active (deferred ones count)", counts.active_message_count, 1)
    same("dead letters", counts.dead_letter_message_count, 1)


def deferred(world: World, is_partitioned: bool) -> None:
    with ends(world.queue(is_partitioned)) as (sender, receiver):
        send_all(sender, "later")
        got = receive_one(receiver)
        number = got.sequence_number or 0
        receiver.defer_message(got)
        none(receiver)
        [found] = receiver.receive_deferred_messages(number)
        same("body", str(found), "later")
        receiver.complete_message(found)
        try:
            receiver.receive_deferred_messages(number)
        except MessageNotFoundError:
            return
        raise AssertionError("a deferred message came twice")


def dead_letters(world: World, is_partitioned: bool) -> None:
    queue = world.queue(is_partitioned)
    with ends(queue) as (sender, receiver):
        send_all(sender, "bad")
        receiver.dead_letter_message(receive_one(receiver), "reason", "description")
        send_all(sender, "often")
        for _ in range(3):
            receiver.abandon_message(receive_one(receiver))
    with (
        ServiceBusClient.from_connection_string(CONNECTION_STRING) as client,
        client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead,
    ):
        reasons = {str(each): each.dead_letter_reason for each in receive(dead, 2)}
    same("reasons", reasons, {"bad": "reason", "often": "MaxDeliveryCountExceeded"})


@contextmanager
def session_queue(
    world: World, is_partitioned: bool, *ids: str
) -> Iterator[Callable[[str | None], ServiceBusReceiver]]:
    """Messages in sessions, and a way to accept these."""
    queue = world.queue(is_partitioned, requires_session=True)
    with ServiceBusClient.from_connection_string(CONNECTION_STRING, retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            send_all(sender, *ids, are_sessions=True)

        def accept(session_id: str | None) -> ServiceBusReceiver:
            which = NEXT_AVAILABLE_SESSION if session_id is None else session_id
            return client.get_queue_receiver(queue, session_id=which, max_wait_time=3)

        yield accept


def session_of(receiver: ServiceBusReceiver) -> ServiceBusSession:
    session = receiver.session
    assert session is not None
    return session


def session_accept(world: World, is_partitioned: bool) -> None:
    with session_queue(world, is_partitioned, "a", "b", "a") as accept:
        with accept("a") as receiver:
            for message in receive(receiver, 2):
                same("session", message.session_id, "a")
                receiver.complete_message(message)
            none(receiver)
        with accept("A") as receiver:
            none(receiver)


def session_next(world: World, is_partitioned: bool) -> None:
    with session_queue(world, is_partitioned, "a", "b") as accept:
        seen = set()
        for _ in range(2):
            with accept(None) as receiver:
                seen.add(session_of(receiver).session_id)
                receiver.complete_message(receive_one(receiver))
        same("sessions", seen, {"a", "b"})
        try:
            with accept(None):
                raise AssertionError("there was a third session")
        except OperationTimeoutError:
            return


def session_state(world: World, is_partitioned: bool) -> None:
    with session_queue(world, is_partitioned, "a") as accept:
        with accept("a") as receiver:
            same("first state", session_of(receiver).get_state(), None)
            session_of(receiver).set_state("half way")
        with accept("a") as receiver:
            same("state", session_of(receiver).get_state(), b"half way")
            session_of(receiver).set_state(None)
            same("cleared state", session_of(receiver).get_state(), None)


def session_renew(world: World) -> str:
    queue = world.queue(False, requires_session=True, lock_duration="PT5S")
    with (
        ServiceBusClient.from_connection_string(CONNECTION_STRING) as client,
        client.get_queue_receiver(queue, session_id="a") as receiver,
    ):
        before = datetime.min.replace(tzinfo=UTC)
        for _ in range(3):
            until = session_of(receiver).renew_lock()
            same("longer", until > before, True)
            before = until
            time.sleep(2)
        session_of(receiver).set_state("kept")
    return "a lock of 5 s held for 6 s"


def session_list(world: World, is_partitioned: bool) -> None:
    queue = world.queue(is_partitioned, requires_session=True)
    with ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(
                [ServiceBusMessage("x", session_id=f"s{number:03}") for number in range(104)]
            )
        with client.get_queue_receiver(queue, session_id="with-state") as receiver:
            session_of(receiver).set_state("x")
        same("sessions", len(list(client.list_queue_sessions(queue))), 105)
        since = datetime.now(UTC) - timedelta(minutes=1)
        new = list(client.list_queue_sessions(queue, state_updated_after=since))
        same("sessions with a new state", new, ["with-state"])


def peek(world: World, is_partitioned: bool) -> None:
    with ends(world.queue(is_partitioned)) as (sender, receiver):
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(300)])
        seen: set[int] = set()
        start = 1
        while page := receiver.peek_messages(100, sequence_number=start):
            seen |= {each.sequence_number or 0 for each in page}
            # Of a partitioned queue the last number need not be the highest.
            start = (page[-1].sequence_number or 0) + 1
        same("messages over all pages", len(seen), 300)


def renew(world: World, is_partitioned: bool) -> None:
    with ends(world.queue(is_partitioned, lock_duration="PT5S")) as (sender, receiver):
        send_all(sender, "slow")
        got = receive_one(receiver)
        for _ in range(2):
            before = got.locked_until_utc
            time.sleep(3)
            same("longer", receiver.renew_message_lock(got) > (before or datetime.now(UTC)), True)
        receiver.complete_message(got)


def auto_renew(world: World, is_partitioned: bool) -> None:
    queue = world.queue(is_partitioned, lock_duration="PT5S", max_delivery_count=1)
    with ends(queue) as (sender, receiver), AutoLockRenewer(max_workers=4) as renewer:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(IN_WORK)])
        messages = receive(receiver, IN_WORK)
        for message in messages:
            renewer.register(receiver, message, max_lock_renewal_duration=60)
        time.sleep(8)
        for message in messages:
            receiver.complete_message(message)
        same("left", len(receiver.peek_messages(10)), 0)


def prefetch(world: World, is_partitioned: bool) -> None:
    with ends(world.queue(is_partitioned), prefetch_count=50) as (sender, receiver):
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(100)])
        for message in receive(receiver, 100):
            receiver.complete_message(message)
        same("left", len(receiver.peek_messages(10)), 0)


async def _async(queue: str) -> None:
    async with (
        AioClient.from_connection_string(CONNECTION_STRING) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
        left = 20
        while left:
            found = await receiver.receive_messages(left, max_wait_time=WAIT_S)
            assert found, f"{left} messages did not come"
            await asyncio.gather(*(receiver.complete_message(each) for each in found))
            left -= len(found)
        same("left", len(await receiver.peek_messages(10)), 0)


def asynchronous(world: World, is_partitioned: bool) -> None:
    asyncio.run(_async(world.queue(is_partitioned)))


def rules(world: World, is_partitioned: bool) -> None:
    topic = world.new_name()
    with administration() as manager:
        manager.create_topic(topic, enable_partitioning=is_partitioned)
        manager.create_subscription(topic, "some")
        manager.delete_rule(topic, "some", "$Default")
        amount = SqlRuleFilter("amount > @least", parameters={"@least": 20})
        action = SqlRuleAction("SET seen = 'yes'")
        manager.create_rule(topic, "some", "sql", filter=amount, action=action)
        red = CorrelationRuleFilter(label="red", properties={"size": "L"})
        manager.create_rule(topic, "some", "correlation", filter=red)
        names = sorted(each.name for each in manager.list_rules(topic, "some"))
        same("rules", names, ["correlation", "sql"])
    with (
        ServiceBusClient.from_connection_string(CONNECTION_STRING) as client,
        client.get_topic_sender(topic) as sender,
        client.get_subscription_receiver(topic, "some") as receiver,
    ):
        for body, amount_of in (("much", 25), ("little", 15)):
            sender.send_messages(
                ServiceBusMessage(body, application_properties={"amount": amount_of})
            )
        sender.send_messages(
            ServiceBusMessage("red", subject="red", application_properties={"size": "L"})
        )
        same("selected", bodies(receive(receiver, 2)), "much red")
        none(receiver)


def duplicates(world: World, is_partitioned: bool) -> None:
    queue = world.queue(is_partitioned, requires_duplicate_detection=True)
    with ends(queue) as (sender, receiver):
        for each in ("a", "b", "a", "a"):
            sender.send_messages(ServiceBusMessage(each, message_id=each))
        same("bodies", bodies(receive(receiver, 2)), "a b")
        none(receiver)


def large(world: World) -> str:
    queue = world.new_name()
    with administration(PREMIUM_STRING) as manager:
        manager.create_queue(queue, max_message_size_in_kilobytes=20480)
    body = b"0123456789abcdef" * (10 * 2**20 // 16)
    with (
        ServiceBusClient.from_connection_string(PREMIUM_STRING) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        sender.send_messages(ServiceBusMessage(body))
        got = receive_one(receiver)
        same("same body", b"".join(got.body) == body, True)
        receiver.complete_message(got)
        try:
            sender.send_messages(ServiceBusMessage(b"x" * (21 * 2**20)))
        except MessageSizeExceededError:
            return "10 MiB in Premium; 21 MiB is refused where 20 MiB are allowed"
    raise AssertionError("a message beyond the limit was accepted")


def over_websocket(world: World) -> str:
    queue, address = world.queue(False), CONNECTION_STRING.partition("sb://")[2].partition(";")[0]
    with ServiceBusClient.from_connection_string(
        CONNECTION_STRING,
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"sb://{address.rstrip('/')}",
    ) as client:
        _round_trip(client, queue)
    return "ws; the port is named by custom_endpoint_address"


def over_tls(world: World) -> str:
    address = TLS_STRING.partition("sb://")[2].partition(";")[0].rstrip("/")
    with ServiceBusClient.from_connection_string(
        TLS_STRING,
        connection_verify=os.environ["SHARDBUS_CA_FILE"],
        custom_endpoint_address=f"sb://{address}",
    ) as client:
        _round_trip(client, world.queue(False))
    return "trusted by connection_verify"


def _round_trip(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        body = "round trip " * 10_000
        send_all(sender, body)
        got: ServiceBusReceivedMessage = receive_one(receiver)
        same("length", len(str(got)), len(body))
        receiver.complete_message(got)


FEATURES: Final[dict[str, Scenario | None]] = {
    "administration": administration_of_all,
    "send": on_both(send_one),
    "batch": on_both(send_batch),
    "keyed": keyed,
    "schedule": on_both(schedule),
    "receive": on_both(receive_in_both_modes),
    "settle": on_both(settle),
    "deferred": on_both(deferred),
    "dead-letters": on_both(dead_letters),
    "session-accept": on_both(session_accept),
    "session-next": on_both(session_next),
    "session-state": on_both(session_state),
    "session-renew": session_renew,
    "session-list": on_both(session_list),
    "peek": on_both(peek),
    "renew": on_both(renew),
    "auto-renew": on_both(auto_renew),
    "prefetch": on_both(prefetch),
    "async": on_both(asynchronous),
    "push": None,
    "session-push": None,
    "rules": on_both(rules),
    "rule-manager": None,
    "transaction": None,
    "transaction-across": None,
    "duplicates": on_both(duplicates),
    "large": large,
    "websocket": over_websocket,
    "tls": over_tls,
}


def attempt(name: str) -> None:
    scenario = FEATURES[name]
    if scenario is None:
        tell(name, "not offered", "the SDK has no such call")
        return
    try:
        tell(name, "passed", scenario(World(name)))
    except Exception as failure:  # noqa: BLE001 - whatever the SDK raises is the result
        tell(name, "failed", repr(failure))


def main() -> None:
    wanted = sys.argv[1:] or list(FEATURES)
    with ThreadPoolExecutor(AT_A_TIME) as turns:
        list(turns.map(attempt, wanted))


if __name__ == "__main__":
    main()
