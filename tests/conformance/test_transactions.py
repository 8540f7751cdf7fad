"""Transactions with a general client, Qpid Proton, and by hand with our own engine."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from proton import Event, Link, Message, Receiver, Sender
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, LinkOption, Transaction

from shardbus.amqp.events import IncomingDelivery as Received
from shardbus.amqp.outcomes import (
    ACCEPTED,
    Declared,
    DeliveryState,
    Rejected,
    TransactionalState,
)
from shardbus.amqp.termini import Coordinator, Source
from shardbus.app.cli.sas import Credential, parse_connection_string
from shardbus.codec import codes
from shardbus.codec.types import (
    Array,
    Described,
    Symbol,
    Timestamp,
    Ulong,
    Uuid,
    Value,
    integer_of,
    text_of,
)
from shardbus.codec.value import encode
from shardbus.gateway.amqp.management.fields import guid_swapped
from shardbus.message.sections import build_message, encode_data_message
from tests.support import amqp_client
from tests.support.amqp_client import Address, AmqpClient, Ended, connected
from tests.support.messages import seen
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

LIFETIME_MS: Final = 3_000
NOT_ALLOWED: Final = "amqp:not-allowed"

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose transactions do not last long, and that has four brokers."""
    data_dir: Path = tmp_path_factory.mktemp("transactions") / "data"
    options = ("--tls-port", "0", "--brokers", "4", "--transaction-ms", str(LIFETIME_MS))
    with running_server(data_dir, *options) as server:
        yield server


def new_queue(server: Server, **elements: str) -> str:
    name = f"transactions-{next(_numbers)}"
    chosen = {"EnablePartitioning": "false", "LockDuration": "PT5S", **elements}
    create_queue(server, name, **chosen)
    return name


# Proton.


class Unsettled(LinkOption):
    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST


class Mover(MessagingHandler, TransactionHandler):
    """Takes a message from one queue and sends another to a second, in one transaction."""

    def __init__(self, server: Server, source: str, target: str, *, is_commit: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._server = server
        self._source, self._target = source, target
        self._is_commit = is_commit
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._transaction: Transaction | None = None
        self.story: list[str] = []

    def on_start(self, event: Event) -> None:
        container = event.container
        credential = parse_connection_string(self._server.connection_string).credential
        connection = container.connect(
            f"amqp://{self._server.host}:{self._server.amqp_port}",
            user=credential.key_name,
            password=credential.key,
            allowed_mechs="PLAIN",
            reconnect=False,
        )
        self._receiver = container.create_receiver(connection, self._source, options=Unsettled())
        self._sender = container.create_sender(connection, self._target)
        container.declare_transaction(connection, handler=self)

    def on_transaction_declared(self, event: Event) -> None:
        self.story.append("declared")
        self._transaction = event.transaction
        assert self._receiver is not None
        self._receiver.flow(1)

    def on_message(self, event: Event) -> None:
        self.story.append(f"received {event.message.body}")
        assert self._transaction is not None and self._sender is not None
        assert event.delivery is not None
        self._transaction.send(self._sender, Message(body=b"moved"))
        self._transaction.accept(event.delivery)
        if self._is_commit:
            self._transaction.commit()
        else:
            self._transaction.abort()

    def on_transaction_committed(self, event: Event) -> None:
        self._end(event, "committed")

    def on_transaction_aborted(self, event: Event) -> None:
        self._end(event, "aborted")

    def on_transaction_commit_failed(self, event: Event) -> None:
        self._end(event, "failed")

    def on_transaction_declare_failed(self, event: Event) -> None:
        self._end(event, "not declared")

    def _end(self, event: Event, how: str) -> None:
        self.story.append(how)
        assert event.connection is not None
        event.connection.close()


@pytest.mark.parametrize("is_commit", [True, False])
async def test_proton_moves_a_message_in_a_transaction(short: Server, is_commit: bool) -> None:
    """R22, R34: receive and send, committed or rolled back, by a client we did not write."""
    source, target = new_queue(short), new_queue(short)
    async with Hand.at(short) as hand:
        await hand.send(source, b"message")
    mover = Mover(short, source, target, is_commit=is_commit)

    Container(mover).run()

    assert mover.story[0] == "declared"
    assert mover.story[1].startswith("received")
    assert mover.story[2:] == ["committed" if is_commit else "aborted"]
    async with Hand.at(short) as hand:
        found = await hand.waiting(target)
        assert len(found) == (1 if is_commit else 0)
        # The lock of a message that was settled in a transaction that was rolled back runs out.
        left = [] if is_commit else await hand.take(source, 1)
        assert len(left) == (0 if is_commit else 1)


# By hand.


class Hand:
    """One connection of our own engine with a coordinator."""

    def __init__(self, client: AmqpClient, coordinator: amqp_client.Sender) -> None:
        self.client = client
        self._coordinator = coordinator
        self._senders: dict[str, amqp_client.Sender] = {}
        self._requests: dict[str, amqp_client.Requests] = {}
        # Apart from the coordinator, where receivers may come after senders.
        self._reading = client.connection.begin_session()

    @staticmethod
    @asynccontextmanager
    async def at(server: Server) -> AsyncIterator[Hand]:
        address = Address(server.host, server.amqp_port)
        credential: Credential = parse_connection_string(server.connection_string).credential
        async with connected(address, credential) as client:
            link = client.session.attach_sender("coordinator", target=Coordinator())
            coordinator = amqp_client.Sender(client, link)
            client.flush()
            await coordinator.opened
            yield Hand(client, coordinator)

    async def declare(self) -> bytes:
        state = await self._ask(Described(Ulong(codes.DECLARE), [None]))
        assert isinstance(state, Declared)
        return state.transaction_id

    async def discharge(self, transaction_id: bytes, *, is_failed: bool = False) -> str:
        """The condition of what went wrong, "" for nothing."""
        body = Described(Ulong(codes.DISCHARGE), [transaction_id, is_failed])
        return condition_of(await self._ask(body))

    async def _ask(self, body: Value) -> DeliveryState | None:
        return await self._coordinator.send(build_message(body=body))

    async def send(
        self,
        queue: str,
        content: bytes,
        transaction_id: bytes | None = None,
        *,
        session_id: str | None = None,
        partition_key: str | None = None,
    ) -> str:
        """The condition of what went wrong, "" for nothing."""
        if queue not in self._senders:
            self._senders[queue] = await self.client.sender(queue)
        payload = encode_data_message(content, session_id=session_id, partition_key=partition_key)
        state = None if transaction_id is None else TransactionalState(transaction_id, None)
        outcome = await self._senders[queue].send(payload, state=state)
        if transaction_id is not None and not isinstance(outcome, Rejected):
            assert outcome == TransactionalState(transaction_id, ACCEPTED)
        return condition_of(outcome)

    async def ask(
        self, queue: str, operation: str, body: Value, transaction_id: bytes | None = None
    ) -> tuple[int, str, Value]:
        """The status of a request, the condition of what went wrong, and what it says."""
        if queue not in self._requests:
            self._requests[queue] = await self.client.requests(f"{queue}/$management")
        state = None if transaction_id is None else TransactionalState(transaction_id, None)
        properties: dict[str, Value] = {"operation": f"com.microsoft:{operation}"}
        answer = await self._requests[queue].ask(body, properties, state)
        said = answer.application_properties
        return (
            integer_of(said["statusCode"]) or 0,
            text_of(said.get("errorCondition")) or "",
            answer.body,
        )

    async def schedule(self, queue: str, content: bytes, delay_s: float, *where: bytes) -> int:
        """The number of a message for later, perhaps in a transaction."""
        moment = Timestamp(int((time.time() + delay_s) * 1000))
        annotations = encode({Symbol("x-opt-scheduled-enqueue-time"): moment})
        payload = b"\x00\x53\x72" + annotations + encode_data_message(content)
        messages: Value = {"messages": [{"message-id": "1", "message": payload}]}
        status, _, body = await self.ask(queue, "schedule-message", messages, *where)
        assert status == 200 and isinstance(body, dict)
        numbers = body["sequence-numbers"]
        assert isinstance(numbers, Array)
        [number] = [each for each in numbers.values if isinstance(each, int)]
        return number

    async def cancel(self, queue: str, number: int, *where: bytes) -> str:
        """The condition of what went wrong, "" for nothing."""
        body: Value = {"sequence-numbers": Array(codes.LONG, [number])}
        _, condition, _ = await self.ask(queue, "cancel-scheduled-message", body, *where)
        return condition

    async def take(self, queue: str, count: int) -> list[Received]:
        receiver = await self.client.receiver(queue, credit=count, session=self._reading)
        return await receiver.take_many(count)

    async def waiting(self, queue: str) -> list[bytes]:
        """What can be received right now."""
        receiver = await self.client.receiver(queue, session=self._reading)
        receiver.grant(100, drain=True)
        await receiver.drained()
        bodies = [seen(delivery.payload).body for delivery in receiver.take_waiting()]
        await receiver.close()
        return bodies


def condition_of(state: DeliveryState | None) -> str:
    if isinstance(state, Rejected):
        assert state.error is not None
        return state.error.condition
    return ""


async def test_what_is_sent_in_a_transaction_appears_with_its_end(short: Server) -> None:
    """R22."""
    queue = new_queue(short)
    async with Hand.at(short) as hand:
        kept, dropped = await hand.declare(), await hand.declare()
        assert await hand.send(queue, b"kept", kept) == ""
        assert await hand.send(queue, b"dropped", dropped) == ""
        assert await hand.waiting(queue) == []

        assert await hand.discharge(kept) == ""
        assert await hand.discharge(dropped, is_failed=True) == ""

        assert await hand.waiting(queue) == [b"kept"]


async def test_many_queues_take_part(short: Server) -> None:
    """R22: on several brokers, with two phases."""
    queues = [new_queue(short) for _ in range(6)]
    async with Hand.at(short) as hand:
        transaction_id = await hand.declare()
        for queue in queues:
            await hand.send(queue, b"x", transaction_id)

        assert await hand.discharge(transaction_id) == ""

        assert [await hand.waiting(queue) for queue in queues] == [[b"x"]] * 6


async def test_a_lock_that_ran_out_rolls_everything_back(short: Server) -> None:
    queue, other = new_queue(short), new_queue(short)
    async with Hand.at(short) as hand:
        await hand.send(queue, b"x")
        receiver = await hand.client.receiver(queue, credit=1)
        deliveries = await receiver.take_many(1)
        transaction_id = await hand.declare()
        [echo] = await receiver.settle(deliveries, TransactionalState(transaction_id, ACCEPTED))
        assert echo == TransactionalState(transaction_id, ACCEPTED)
        await hand.send(other, b"never", transaction_id)
        # Somebody else settles it first: the lock is not held any more.
        receiver_again = await hand.client.requests(f"{queue}/$management")
        await receiver_again.ask(
            {"disposition-status": "completed", "lock-tokens": tokens_of(deliveries)},
            {"operation": "com.microsoft:update-disposition"},
        )

        assert await hand.discharge(transaction_id) == "com.microsoft:message-lock-lost"

        assert await hand.waiting(other) == []


def tokens_of(deliveries: list[Received]) -> Value:
    return Array(codes.UUID, [Uuid(guid_swapped(delivery.tag)) for delivery in deliveries])


async def test_a_transaction_that_lasts_too_long_is_rolled_back(short: Server) -> None:
    """R22: two minutes, here less by a setting."""
    queue = new_queue(short)
    async with Hand.at(short) as hand:
        transaction_id = await hand.declare()
        await hand.send(queue, b"never", transaction_id)
        # The server's clock is the real one: there is nothing to wait for but time.
        await asyncio.sleep(LIFETIME_MS / 1000)

        condition = await hand.send(queue, b"never", transaction_id)
        assert condition == "amqp:transaction:timeout"
        assert await hand.discharge(transaction_id) == "amqp:transaction:timeout"
        assert await hand.waiting(queue) == []


async def test_who_goes_away_has_done_nothing(short: Server) -> None:
    """R22: the loss of the connection rolls back."""
    queue = new_queue(short)
    async with Hand.at(short) as hand:
        transaction_id = await hand.declare()
        await hand.send(queue, b"never", transaction_id)
    async with Hand.at(short) as hand:
        assert await hand.discharge(transaction_id) == "amqp:transaction:unknown-id"
        assert await hand.waiting(queue) == []


PARTITIONED: Final = {"EnablePartitioning": "true"}
SESSIONS: Final = {"RequiresSession": "true"}


async def test_a_partitioned_queue_wants_one_key_in_a_transaction(short: Server) -> None:
    """R23: none, or another one, is an invalid operation, and the transaction has no effect."""
    queue = new_queue(short, **PARTITIONED)
    async with Hand.at(short) as hand:
        for key in (None, "other"):
            transaction_id = await hand.declare()
            assert await hand.send(queue, b"x", transaction_id, partition_key="key") == ""
            refusal = await hand.send(queue, b"x", transaction_id, partition_key=key)
            assert refusal == NOT_ALLOWED
            assert await hand.discharge(transaction_id) == "amqp:transaction:rollback"
        assert await hand.waiting(queue) == []

        transaction_id = await hand.declare()
        for _ in range(3):
            assert await hand.send(queue, b"x", transaction_id, partition_key="key") == ""
        assert await hand.discharge(transaction_id) == ""
        assert await hand.waiting(queue) == [b"x"] * 3


@pytest.mark.parametrize("is_partitioned", [False, True])
async def test_sessions_in_a_transaction(short: Server, is_partitioned: bool) -> None:
    """R24."""
    elements = {**SESSIONS, **(PARTITIONED if is_partitioned else {})}
    queue = new_queue(short, **elements)
    async with Hand.at(short) as hand:
        transaction_id = await hand.declare()
        assert await hand.send(queue, b"x", transaction_id) == NOT_ALLOWED
        assert await hand.discharge(transaction_id) == "amqp:transaction:rollback"

        transaction_id = await hand.declare()
        assert await hand.send(queue, b"x", transaction_id, session_id="a") == ""
        second = await hand.send(queue, b"x", transaction_id, session_id="b")
        assert second == (NOT_ALLOWED if is_partitioned else "")
        ending = await hand.discharge(transaction_id)
        assert ending == ("amqp:transaction:rollback" if is_partitioned else "")


async def test_a_hundred_messages_are_the_most(short: Server) -> None:
    queue = new_queue(short)
    async with Hand.at(short) as hand:
        transaction_id = await hand.declare()
        for _ in range(100):
            assert await hand.send(queue, b"x", transaction_id) == ""

        assert await hand.send(queue, b"x", transaction_id) == NOT_ALLOWED

        assert await hand.discharge(transaction_id) == "amqp:transaction:rollback"


# Requests.


@pytest.mark.parametrize("is_commit", [True, False])
async def test_scheduling_and_cancelling_in_a_transaction(short: Server, is_commit: bool) -> None:
    """R22: on two queues, of different brokers or of one."""
    first, second = new_queue(short), new_queue(short)
    async with Hand.at(short) as hand:
        old = await hand.schedule(first, b"old", 1)
        transaction_id = await hand.declare()
        new = await hand.schedule(second, b"new", 1, transaction_id)
        assert await hand.cancel(first, old, transaction_id) == ""
        assert await hand.discharge(transaction_id, is_failed=not is_commit) == ""

        if is_commit:
            other = await hand.schedule(second, b"other", 60)
            assert other > new
        await asyncio.sleep(2)

        assert await hand.waiting(first) == ([] if is_commit else [b"old"])
        assert await hand.waiting(second) == ([b"new"] if is_commit else [])


async def test_what_a_transaction_scheduled_is_cancelled_by_the_number_it_was_told(
    short: Server,
) -> None:
    queue = new_queue(short)
    async with Hand.at(short) as hand:
        transaction_id = await hand.declare()
        number = await hand.schedule(queue, b"never", 1, transaction_id)
        assert await hand.cancel(queue, number) == "com.microsoft:message-not-found"
        assert await hand.discharge(transaction_id) == ""

        assert await hand.cancel(queue, number) == ""

        await asyncio.sleep(1.5)
        assert await hand.waiting(queue) == []


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_session_state_is_set_in_a_transaction(short: Server, is_commit: bool) -> None:
    """R22: together with the message that it is about."""
    queue, other = new_queue(short, **SESSIONS), new_queue(short)
    async with Hand.at(short) as hand:
        await hand.send(queue, b"x", session_id="s")
        source = Source()
        source.address = queue
        source.filters = {"com.microsoft:session-filter": "s"}
        receiver = await hand.client.receiver(source, credit=1)
        [delivery] = await receiver.take_many(1)
        transaction_id = await hand.declare()
        await receiver.settle([delivery], TransactionalState(transaction_id, ACCEPTED))
        body: Value = {"session-id": "s", "session-state": b"seen"}
        status, _, _ = await hand.ask(queue, "set-session-state", body, transaction_id)
        assert status == 200
        await hand.send(other, b"out", transaction_id)

        assert await hand.discharge(transaction_id, is_failed=not is_commit) == ""

        status, _, found = await hand.ask(queue, "get-session-state", {"session-id": "s"})
        assert (status, found) == (200, {"session-state": b"seen" if is_commit else None})
        assert await hand.waiting(other) == ([b"out"] if is_commit else [])


async def test_messages_of_two_partitions_are_not_completed_in_one_transaction(
    short: Server,
) -> None:
    queue = new_queue(short, **PARTITIONED)
    async with Hand.at(short) as hand:
        receiver = await hand.client.receiver(queue, credit=20)
        for number in range(20):
            await hand.send(queue, b"x", partition_key=str(number))
        deliveries = await receiver.take_many(20)
        homes = {delivery.tag[:2]: delivery for delivery in deliveries}
        first, second = list(homes.values())[:2]
        transaction_id = await hand.declare()
        state = TransactionalState(transaction_id, ACCEPTED)
        assert [condition_of(each) for each in await receiver.settle([first], state)] == [""]

        refused = await receiver.settle([second], state)

        assert [condition_of(each) for each in refused] == [NOT_ALLOWED]
        assert await hand.discharge(transaction_id) == "amqp:transaction:rollback"


async def test_a_receiver_of_another_queue_is_refused_after_a_sender(short: Server) -> None:
    first, second = new_queue(short), new_queue(short)
    async with Hand.at(short) as hand:
        transaction_id = await hand.declare()
        await hand.send(first, b"x", transaction_id)

        with pytest.raises(Ended) as ended:
            await hand.client.receiver(second)

        assert NOT_ALLOWED in str(ended.value)
        hand.client.new_session()
        await hand.client.receiver(second)
