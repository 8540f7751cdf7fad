"""What a queue keeps when the process that serves it ends and another one takes over."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError

from shardbus.amqp.outcomes import Modified
from shardbus.app.cli.sas import parse_connection_string
from shardbus.codec.types import Symbol, Uint, Value
from shardbus.message.sections import encode_data_message
from tests.conformance.conftest import sdk_of
from tests.conformance.sdk import (
    Sdk,
    enqueued,
    pair,
    receive_all,
    send_texts,
    sequence_number,
    texts,
)
from tests.conformance.variants import KINDS, SDKS, Each
from tests.support.amqp_client import Address, connected
from tests.support.messages import seen
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

# The SDKs leave the sockets of a server that vanished to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

LATE = timedelta(seconds=1)
TOGETHER_S = 60.0

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def restarting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("restarting") / "data") as server:
        yield server


class Restart:
    """Ends the process for all variants of a test at once, and starts it again for all."""

    def __init__(self, server: Server, variants: int) -> None:
        self.server = server
        self._barrier = asyncio.Barrier(variants)

    async def down(self) -> None:
        """Without a word to anybody: what was answered must be there all the same (D4)."""
        await self._once(self.server.kill)

    async def up(self) -> None:
        await self._once(self.server.start)

    async def _once(self, act: Callable[[], None]) -> None:
        # A variant that failed never comes, and the others must not wait for it without end.
        async with asyncio.timeout(TOGETHER_S):
            position = await self._barrier.wait()
            if position == 0:
                await asyncio.to_thread(act)
            await self._barrier.wait()


@pytest.fixture
def restart(request: pytest.FixtureRequest, restarting: Server) -> Iterator[Restart]:
    by_sdk = len(SDKS) if "sdk" in request.fixturenames else 1
    yield Restart(restarting, by_sdk * len(KINDS))
    if not restarting.is_running:
        restarting.start()
    gc.collect()


@pytest.fixture
def sdk(restarting: Server) -> Each[Sdk]:
    return Each(lambda variant: sdk_of(variant, restarting), by_sdk=True)


def new_queue(server: Server, is_partitioned: bool, **elements: str) -> str:
    name = f"queue-{next(_numbers)}"
    create_queue(
        server,
        name,
        EnablePartitioning=str(is_partitioned).lower(),
        LockDuration="PT30S",
        **elements,
    )
    return name


async def test_a_session_keeps_its_state_and_its_order(
    restart: Restart, sdk: Sdk, is_partitioned: bool
) -> None:
    """R26: the hold itself is volatile, and what was delivered comes again uncounted."""
    queue = new_queue(restart.server, is_partitioned, RequiresSession="true")
    bodies = [str(number) for number in range(6)]
    async with sdk.sender(queue) as sender:
        await send_texts(sender, *bodies, session="s")
    async with sdk.session(queue, "s") as session:
        [first, second] = await receive_all(session, 2)
        await session.complete(first)
        await session.abandon(second)
        await receive_all(session, 2)
        await session.set_state(b"step 1")
        await restart.down()
    await restart.up()
    async with sdk.session(queue, "s") as session:
        messages = await receive_all(session, 5)

        assert await session.state() == b"step 1"
        assert texts(messages) == bodies[1:]
        assert [message.delivery_count for message in messages] == [1, 0, 0, 0, 0]
    assert await sdk.sessions(queue) == ["s"]


async def test_deferred_messages_stay_deferred(
    restart: Restart, sdk: Sdk, is_partitioned: bool
) -> None:
    """R32: with what failed deliveries counted."""
    queue = new_queue(restart.server, is_partitioned)
    async with pair(sdk, queue) as (sender, receiver):
        await send_texts(sender, *(str(number) for number in range(5)))
        messages = await receive_all(receiver, 5)
        for message in messages:
            await receiver.defer(message)
        numbers = [sequence_number(message) for message in messages]
        [first] = await receiver.receive_deferred(numbers[:1])
        await receiver.abandon(first)
        await restart.down()
    await restart.up()
    async with sdk.receiver(queue) as receiver:
        found = await receiver.receive_deferred(numbers)

        assert texts(found) == texts(messages)
        assert [message.delivery_count for message in found] == [2, 1, 1, 1, 1]
        assert {message.state for message in found} == {ServiceBusMessageState.DEFERRED}


async def test_what_was_due_while_the_bus_was_down_comes_when_it_is_up(
    restart: Restart, sdk: Sdk, is_partitioned: bool
) -> None:
    """R32: scheduled messages with new numbers, and those for later still later."""
    queue = new_queue(restart.server, is_partitioned)
    async with sdk.sender(queue) as sender:
        # The wire has milliseconds.
        now = datetime.now(UTC)
        moment = now.replace(microsecond=now.microsecond // 1000 * 1000) + timedelta(seconds=0.5)
        missed = await sender.schedule([ServiceBusMessage(f"{n:02}") for n in range(20)], moment)
        tomorrow = moment + timedelta(days=1)
        [future] = await sender.schedule(ServiceBusMessage("tomorrow"), tomorrow)
        await restart.down()
    await asyncio.sleep((moment - datetime.now(UTC)).total_seconds() + 0.2)
    await restart.up()
    up_at = datetime.now(UTC)
    async with pair(sdk, queue) as (sender, receiver):
        messages = await receive_all(receiver, len(missed))

        assert sorted(texts(messages)) == [f"{number:02}" for number in range(20)]
        assert moment <= min(map(enqueued, messages))
        assert max(map(enqueued, messages)) <= up_at + LATE
        assert not {sequence_number(message) for message in messages} & set(missed)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel(missed[0])
        await sender.cancel(future)


async def test_ids_are_remembered(restart: Restart, sdk: Sdk, is_partitioned: bool) -> None:
    """R13, R35."""
    queue = new_queue(restart.server, is_partitioned, RequiresDuplicateDetection="true")
    idents = [str(number) for number in range(20)]
    async with pair(sdk, queue) as (sender, receiver):
        for ident in idents:
            await sender.send(ServiceBusMessage("first", message_id=ident))
        for message in await receive_all(receiver, 10):
            await receiver.complete(message)
        await restart.down()
    await restart.up()
    async with pair(sdk, queue) as (sender, receiver):
        for ident in [*idents, "new"]:
            await sender.send(ServiceBusMessage("again", message_id=ident))
        found = texts(await receiver.peek(100))

        assert sorted(found) == ["again"] + ["first"] * 10


async def test_a_delayed_message_and_its_changes_outlive_the_process(
    restart: Restart, is_partitioned: bool
) -> None:
    """Beyond the original: it comes when the delay is over, not before."""
    queue = new_queue(restart.server, is_partitioned)
    address = Address(restart.server.host, restart.server.amqp_port)
    credential = parse_connection_string(restart.server.connection_string).credential
    async with connected(address, credential) as amqp:
        sender = await amqp.sender(queue)
        for body in (b"delayed", b"past"):
            await sender.send(encode_data_message(body))
        receiver = await amqp.receiver(queue, credit=2)
        held = {seen(one.payload).body: one for one in await receiver.take_many(2)}
        for body, delay_ms in ((b"delayed", 3_600_000), (b"past", 300)):
            changes: dict[Value, Value] = {Symbol("x-shardbus-delay-ms"): Uint(delay_ms)}
            await receiver.settle([held[body]], Modified(True, False, changes))
        await restart.down()
    await asyncio.sleep(0.3)
    await restart.up()
    async with connected(address, credential) as amqp:
        receiver = await amqp.receiver(queue, credit=2)
        [found] = await receiver.take_many(1)
        await asyncio.sleep(0.3)

        assert (seen(found.payload).body, seen(found.payload).delivery_count) == (b"past", 1)
        assert receiver.waiting == 0
