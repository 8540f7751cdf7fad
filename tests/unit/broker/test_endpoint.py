"""A broker's door: who may come in, what is dropped with a connection, what is never exceeded."""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from shardbus.broker.fragment.answers import ReplyTo
from shardbus.broker.fragment.runner import AVAILABLE, UNAVAILABLE, Runner
from shardbus.broker.remote.endpoint import GATEWAYS_MAX, TICK_MS
from shardbus.broker.remote.served_gateway import REQUESTS_MAX, SILENT_TICKS_MAX, STRANGER_TICKS_MAX
from shardbus.broker.wire.codec import FrameBuffer, decode, encode, proof
from shardbus.broker.wire.frames import (
    PROTOCOL_VERSION,
    Answered,
    Ask,
    Beat,
    Browse,
    Fence,
    Fenced,
    Frame,
    Hello,
    ListSessions,
    Open,
    Prove,
    Reject,
    Request,
    State,
    Told,
    Watch,
    Welcome,
    Woken,
)
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.message import MAIN_LINE, Entry, Message
from shardbus.core.messages.command import Delivery, Purge, Receive, Received, Send, Sent, Settle
from shardbus.core.sessions.command import AcceptSession, SessionAccepted
from shardbus.stores.base.store import FragmentId
from tests.support.unread import Unread
from tests.unit.broker.ports import ScriptedPort
from tests.unit.broker.wires import SECRET, SEED, Wire, World, run_world

T = TypeVar("T")

NONCE = b"g" * 32
FRAGMENT = FragmentId(7, 0)


class Client(asyncio.Protocol):
    """A gateway that says exactly what a test wants it to say."""

    def __init__(self) -> None:
        self.heard: list[Frame] = []
        self.is_lost = False
        self._buffer = FrameBuffer(2**30)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        self.heard += [decode(piece) for piece in self._buffer.feed(data)]

    def say(self, *frames: Frame) -> None:
        self.say_bytes(b"".join(encode(frame) for frame in frames))

    def say_bytes(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def hang_up(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def of(self, kind: type[T]) -> list[T]:
        return [frame for frame in self.heard if isinstance(frame, kind)]


async def stranger(world: World) -> tuple[Client, Wire]:
    client, wire = Client(), world.wire()
    await wire.dial(lambda: client)
    await asyncio.sleep(0.01)
    return client, wire


async def gateway(world: World) -> tuple[Client, Wire]:
    client, wire = await stranger(world)
    hello = client.of(Hello)[0]
    shown = proof(SECRET, "gateway", hello.nonce, NONCE)
    client.say(Prove(PROTOCOL_VERSION, "gateway-0", NONCE, shown))
    client.say(Open(world.entity.to_json(), [0, 1]))
    await asyncio.sleep(0.01)
    return client, wire


def with_gateway(story: Callable[[World, Client, Wire], Coroutine[object, object, None]]) -> None:
    async def tell(world: World) -> None:
        client, wire = await gateway(world)
        await story(world, client, wire)

    run_world(tell)


def test_a_gateway_that_knows_the_secret_is_welcome_and_is_shown_that_the_broker_knows_it() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        hello, welcome = client.of(Hello)[0], client.of(Welcome)[0]

        assert (hello.version, hello.name) == (PROTOCOL_VERSION, "broker-0")
        assert welcome.proof == proof(SECRET, "broker", NONCE, hello.nonce)
        assert [frame.fragment for frame in client.of(State)] == [(7, 0), (7, 1)]

    with_gateway(story)


def test_nothing_is_done_for_a_stranger() -> None:
    async def story(world: World) -> None:
        client, _ = await stranger(world)

        client.say(Open(world.entity.to_json(), [0]), Request(1, FRAGMENT, Purge(MAIN_LINE, 1)))
        await asyncio.sleep(0.01)

        assert client.is_lost and client.of(Answered) == [] and world.endpoint.runners == {}

    run_world(story)


def test_a_wrong_proof_or_version_is_rejected_with_the_reason() -> None:
    async def story(world: World) -> None:
        for version, expected in ((PROTOCOL_VERSION, "secret"), (99, "version")):
            client, _ = await stranger(world)
            client.say(Prove(version, "gateway-0", NONCE, bytes(32)))
            await asyncio.sleep(0.01)

            assert client.is_lost and expected in client.of(Reject)[0].reason

    run_world(story)


def test_a_stranger_who_says_nothing_is_cut_off() -> None:
    async def story(world: World) -> None:
        client, _ = await stranger(world)

        await asyncio.sleep((STRANGER_TICKS_MAX + 2) * TICK_MS / 1000)

        assert client.is_lost

    run_world(story)


def test_a_gateway_that_falls_silent_is_cut_off_and_one_that_beats_is_kept() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        for _ in range(3):
            await asyncio.sleep(SILENT_TICKS_MAX * TICK_MS / 1000)
            client.say(Beat(0))
        assert not client.is_lost

        await asyncio.sleep((SILENT_TICKS_MAX + 3) * TICK_MS / 1000)
        assert client.is_lost

    with_gateway(story)


def test_only_so_many_connections_are_taken() -> None:
    async def story(world: World) -> None:
        clients = [(await stranger(world))[0] for _ in range(GATEWAYS_MAX + 1)]

        assert [client.is_lost for client in clients].count(True) == 1
        assert clients[-1].is_lost

    run_world(story)


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_end_in_a_cut_connection_and_hurt_nobody_else(data: bytes) -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        other, _ = await gateway(world)
        # A length of its own, so that the bytes are looked at and not waited for.
        client.say_bytes(len(data).to_bytes(4, "big") + data)
        client.say_bytes(b"\xff\xff\xff\xff")
        await asyncio.sleep(0.01)

        other.say(Request(1, FRAGMENT, Send([Message(b"x")])))
        await asyncio.sleep(0.01)

        assert client.is_lost
        assert isinstance(other.of(Answered)[0].answer, Sent)

    with_gateway(story)


def test_answers_of_one_turn_share_one_write() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        far = wire.ends[1]
        before = far.written

        client.say(*(Request(n, FRAGMENT, Send([Message(b"x")])) for n in range(1, 101)))
        await asyncio.sleep(0.01)

        assert len(client.of(Answered)) == 100
        assert far.written <= before + 2

    with_gateway(story)


def test_locks_taken_for_a_gateway_that_is_gone_are_let_go() -> None:
    """R18."""

    async def story(world: World, client: Client, wire: Wire) -> None:
        client.say(Request(1, FRAGMENT, Send([Message(b"x")])))
        await asyncio.sleep(0.01)
        client.say(Request(2, FRAGMENT, Receive(MAIN_LINE, 9, is_locking=True, token_seed=SEED)))
        client.hang_up()
        await asyncio.sleep(0.01)

        runner = world.endpoint.runners[FRAGMENT]
        assert isinstance(runner, Runner)
        fragment = runner.statistics()
        assert fragment is not None
        assert fragment.locked() == 0 and fragment.counters.lines[MAIN_LINE].count == 1

    with_gateway(story)


class Garbled(Unread, ScriptedPort):
    """A ServedFragment whose answers nobody can write down."""

    fragment_id = FRAGMENT
    state = AVAILABLE
    reason = ""

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        if isinstance(command, Settle):
            self.released += command.tokens
        else:
            entry = Entry(1, b"m", -1, enqueued_at_ms=0)
            reply_to(Received([Delivery(entry, b"m", 0, b"token", 0)], False))


def test_an_answer_that_cannot_be_said_is_unknown_and_leaves_nothing_locked() -> None:
    """R18."""

    async def story(world: World, client: Client, wire: Wire) -> None:
        world.loop.tolerated = (struct.error,)
        garbled = Garbled()
        world.endpoint.runners[FRAGMENT] = garbled
        receive = Receive(MAIN_LINE, 1, is_locking=True, token_seed=SEED)
        client.say(Request(1, FRAGMENT, receive), Request(2, FragmentId(7, 1), receive))
        await asyncio.sleep(0.1)

        first, second = (frame.answer for frame in client.of(Answered))
        assert isinstance(first, Unavailable) and first.is_unknown
        assert isinstance(second, Received)
        assert garbled.released == [b"token"]

    with_gateway(story)


def test_a_session_granted_to_a_gateway_that_is_gone_is_let_go() -> None:
    """R18, R26."""

    async def story(world: World, client: Client, wire: Wire) -> None:
        fragment = FragmentId(8, 0)
        client.say(Open(world.with_sessions.to_json(), [0]))
        await asyncio.sleep(0.01)
        client.say(Request(1, fragment, AcceptSession("s", SEED)))
        client.hang_up()
        await asyncio.sleep(0.01)

        other, _ = await gateway(world)
        other.say(Open(world.with_sessions.to_json(), [0]))
        other.say(Request(1, fragment, AcceptSession("s", SEED)))
        await asyncio.sleep(0.01)

        assert isinstance(other.of(Answered)[0].answer, SessionAccepted)

    with_gateway(story)


def test_what_needs_an_open_fragment_is_unavailable_without_one() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        nowhere = FragmentId(99, 0)
        client.say(
            Browse(1, nowhere, MAIN_LINE, start=0, count_max=1, bytes_max=1),
            ListSessions(2, nowhere, updated_after_ms=-1, skip=0, count_max=1),
        )
        await asyncio.sleep(0.01)

        answers = [frame.answer for frame in client.of(Answered)]
        assert [type(answer) for answer in answers] == [Unavailable, Unavailable]

    with_gateway(story)


def test_a_watch_rings_once_for_each_gateway_and_goes_with_its_connection() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        other, _ = await gateway(world)
        for one in (client, other):
            one.say(Watch(FRAGMENT, MAIN_LINE), Watch(FRAGMENT, MAIN_LINE))
        await asyncio.sleep(0.01)
        client.hang_up()
        await asyncio.sleep(0.01)

        for number in (1, 2):
            other.say(Request(number, FRAGMENT, Send([Message(b"x")])))
            await asyncio.sleep(0.01)

        assert len(other.of(Woken)) == 1
        assert client.of(Woken) == []

    with_gateway(story)


def test_a_state_that_lasts_for_less_than_a_tick_is_not_the_last_that_a_gateway_hears() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        runner = world.broker.runner(world.entity, 0)
        await asyncio.sleep(2 * TICK_MS / 1000)
        runner.state = UNAVAILABLE
        client.say(Open(world.entity.to_json(), [0]))
        await asyncio.sleep(0.01)
        assert [frame.state for frame in client.of(State)][-1] == UNAVAILABLE

        runner.state = AVAILABLE
        await asyncio.sleep(2 * TICK_MS / 1000)

        assert [frame.state for frame in client.of(State)][-1] == AVAILABLE

    with_gateway(story)


def test_reading_stops_while_the_gateway_does_not_take_its_answers() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        far = wire.ends[1]
        assert far.protocol is not None
        far.protocol.pause_writing()
        client.say(Request(1, FRAGMENT, Send([Message(b"x")])))
        await asyncio.sleep(1)
        assert (far.reads, client.of(Answered)) == (False, [])

        far.protocol.resume_writing()
        await asyncio.sleep(0.01)

        assert (far.reads, len(client.of(Answered))) == (True, 1)

    with_gateway(story)


def test_reading_stops_while_too_much_is_being_worked_on() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        far, runner = wire.ends[1], world.endpoint.runners[FRAGMENT]
        message = Message(bytes(16 * 1024 * 1024))

        for number in range(1, 6):
            client.say(Request(number, FRAGMENT, Send([message])))
        paused = []
        for _ in range(20):
            await asyncio.sleep(0)
            paused.append(not far.reads)
        await asyncio.sleep(0.1)

        assert any(paused) and far.reads
        assert len(client.of(Answered)) == 5
        assert runner.is_available and REQUESTS_MAX > 5

    with_gateway(story)


def test_a_command_for_a_fragment_that_is_not_open_is_unavailable() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        client.say(Request(1, FragmentId(9, 0), Purge(MAIN_LINE, 1)))
        await asyncio.sleep(0.01)

        answer = client.of(Answered)[0].answer
        assert isinstance(answer, Unavailable) and not answer.is_unknown

    with_gateway(story)


def test_questions_that_are_none_are_refused() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        documents = ["", "[]", '{"do":1}', '{"do":"dance"}', '{"do":"statistics"}', "[" * 99_999]
        client.say(*(Ask(number, text) for number, text in enumerate(documents, start=1)))
        await asyncio.sleep(0.01)

        answers = [frame.answer for frame in client.of(Answered)]
        assert [type(answer) for answer in answers] == [Refused] * len(documents)
        assert client.of(Told) == [] and not client.is_lost

    with_gateway(story)


def test_after_standing_still_only_what_was_not_given_up_is_done() -> None:
    async def story(world: World, client: Client, wire: Wire) -> None:
        world.stood_still_s = 5.0
        client.say(*(Request(n, FRAGMENT, Send([Message(b"%d" % n)])) for n in (1, 2, 3)))
        await asyncio.sleep(0.01)
        assert client.of(Answered) == []

        client.say(Fenced(client.of(Fence)[0].number, 2))
        await asyncio.sleep(0.01)
        client.say(Request(4, FRAGMENT, Receive(MAIN_LINE, 9, is_locking=True, token_seed=SEED)))
        await asyncio.sleep(0.01)

        received = client.of(Answered)[-1].answer
        assert isinstance(received, Received)
        assert [delivery.payload for delivery in received.deliveries] == [b"3"]

    with_gateway(story)


def test_an_older_description_does_not_undo_a_newer_one() -> None:
    """Gateways learn of an update one after the other."""

    async def story(world: World, client: Client, wire: Wire) -> None:
        newer = world.entity.updated(world.entity.spec.copy(), world.clock.now_ms())
        newer.spec.lock_ms = 5_000
        client.say(Open(newer.to_json(), [0]), Open(world.entity.to_json(), [0]))
        client.say(Request(1, FRAGMENT, Send([Message(b"x")])))
        client.say(Request(2, FRAGMENT, Receive(MAIN_LINE, 9, is_locking=True, token_seed=SEED)))
        await asyncio.sleep(0.01)

        received = client.of(Answered)[-1].answer
        assert isinstance(received, Received)
        locked_ms = received.deliveries[0].locked_until_ms - world.clock.now_ms()
        assert 4_900 <= locked_ms <= 5_000

    with_gateway(story)
