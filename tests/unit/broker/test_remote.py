"""A broker behind a wire: the same answers as in one process, and honest ones when it is out."""

import asyncio
from dataclasses import dataclass, field

import pytest

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.runner import AVAILABLE, UNAVAILABLE, Runner
from shardbus.broker.remote.broker import (
    ANSWER_TICKS_MAX,
    RETRY_MS_MAX,
    TICK_MS,
    RemoteBroker,
)
from shardbus.broker.routing.dispatch import ignore
from shardbus.core.errors import MESSAGE_LOCK_LOST, Refused, Unavailable
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import (
    COMPLETE,
    NO_SESSION,
    RELEASE,
    Purge,
    Purged,
    Renew,
    Renewed,
    Send,
    Sent,
    Settle,
    Settled,
)
from shardbus.stores.base.store import FragmentId, Page, StoreError
from tests.support.refusals import unavailability
from tests.unit.broker.ports import delivery
from tests.unit.broker.wires import (
    Wire,
    World,
    ask,
    connected,
    new_entity,
    payloads,
    receive,
    receive_command,
    run_world,
    running,
    send,
)

SECOND = 1.0


@dataclass
class Bell:
    """Counts how often it was rung."""

    rings: list[float] = field(default_factory=list)

    def ring(self) -> None:
        self.rings.append(asyncio.get_running_loop().time())


async def outage(remote: RemoteBroker) -> None:
    """Let a second pass: long enough to notice that a broker is silent."""
    await asyncio.sleep(SECOND)
    assert not remote.is_up


async def counts(remote: RemoteBroker) -> list[int]:
    return [part.counts[MAIN_LINE] for part in await remote.statistics(7, [0, 1])]


def test_commands_are_answered_as_if_the_broker_were_here() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"one", b"two", b"three")

        received = await receive(fragment, 2)
        assert payloads(received) == [b"one", b"two"]
        assert received.has_more
        tokens = [delivery.token for delivery in received.deliveries]
        assert isinstance(await ask(fragment, Renew(tokens)), Renewed)
        settled = await ask(fragment, Settle(COMPLETE, tokens))
        assert isinstance(settled, Settled) and settled.lost == [False, False]
        refused = await ask(fragment, Renew(tokens))
        assert isinstance(refused, Refused) and refused.kind is MESSAGE_LOCK_LOST
        purged = await ask(fragment, Purge(MAIN_LINE, 10))
        assert isinstance(purged, Purged) and purged.count == 1

    connected(story)


def test_fragments_are_made_listed_counted_changed_and_removed() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        other = new_entity(9)
        await remote.create_fragments(other, [0, 1])
        assert FragmentId(9, 1) in await remote.fragment_ids()
        await send(remote.runner(other, 1), b"x")
        assert [part.counts[MAIN_LINE] for part in await remote.statistics(9, [0, 1])] == [0, 1]
        other.spec.lock_ms = 5_000
        await remote.update_fragments(other, [0, 1])
        received = await receive(remote.runner(other, 1))
        assert received.deliveries[0].locked_until_ms == world.clock.now_ms() + 5_000
        await remote.delete_fragments(9, [0, 1])
        assert FragmentId(9, 1) not in await remote.fragment_ids()

    connected(story)


def test_browsing_reads_without_touching() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 1)
        await send(fragment, b"one", b"two")
        future: asyncio.Future[Page | Unavailable] = world.loop.create_future()

        fragment.browse(MAIN_LINE, start=0, count_max=9, bytes_max=999, then=future.set_result)

        page = await future
        assert isinstance(page, Page)
        assert [entry.payload for entry in page.entries] == [b"one", b"two"]
        assert await counts(remote) == [0, 2]

    connected(story)


def test_all_commands_of_one_turn_share_one_write() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        near = wire.ends[0]
        fragments = [remote.runner(world.entity, number) for number in (0, 1)]
        await send(fragments[0], b"opened")
        before = near.written

        answers = [ask(fragments[n % 2], Send([Message(b"x")])) for n in range(50)]
        await asyncio.gather(*answers)

        assert near.written == before + 1
        assert await counts(remote) == [26, 25]

    connected(story)


def test_a_waiting_receiver_is_woken_once_by_a_message() -> None:
    """R19: no polling, also across processes."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment, bell = remote.runner(world.entity, 0), Bell()
        fragment.watch(MAIN_LINE, bell.ring)
        await asyncio.sleep(SECOND)
        assert bell.rings == []

        await send(fragment, b"one")
        await send(fragment, b"two")

        assert len(bell.rings) == 1

    connected(story)


def test_a_watch_that_was_taken_back_does_not_ring() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment, bell = remote.runner(world.entity, 0), Bell()
        fragment.watch(MAIN_LINE, bell.ring)
        fragment.unwatch(MAIN_LINE, bell.ring)

        await send(fragment, b"one")
        await asyncio.sleep(SECOND)

        assert bell.rings == []

    connected(story)


def test_a_broken_connection_ends_what_was_asked_as_unknown_and_the_rest_as_unavailable() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"opened")
        wire.hold()
        written = ask(fragment, Send([Message(b"written")]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting = ask(fragment, Send([Message(b"not written")]))

        wire.cut()
        for end in wire.ends:
            end.lost()
        refused = await ask(fragment, Send([Message(b"afterwards")]))

        assert _unknown(await written) == [True]
        assert _unknown(await waiting, refused) == [False, False]

    connected(story)


def test_a_silent_broker_is_out_within_a_second_and_says_why() -> None:
    """R14, R15: what is asked then is told at once that it did not happen."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"opened")
        await asyncio.sleep(2 * TICK_MS / 1000)
        assert (fragment.state, fragment.reason) == (AVAILABLE, "")
        wire.hold()
        in_flight = ask(fragment, Send([Message(b"unknown")]))

        await outage(remote)

        assert _unknown(await in_flight) == [True]
        assert _unknown(await ask(fragment, Send([Message(b"x")]))) == [False]
        assert fragment.state == UNAVAILABLE and not fragment.is_available
        assert remote.problem() == (
            "broker broker-0 is unavailable: it has not responded for 750 ms"
        )

    connected(story)


def test_a_broker_that_goes_on_is_used_again_on_the_same_connection() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        wire.hold()
        await outage(remote)

        wire.release()
        await asyncio.sleep(SECOND)

        assert remote.is_up and remote.problem() == ""
        await send(fragment, b"one")
        assert wire.dialled == 1

    connected(story)


def test_messages_for_a_receive_that_was_given_up_are_unlocked() -> None:
    """R18: a late answer leaves no message locked for nobody."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"one", b"two")
        given_up = ask(fragment, receive_command())
        # The command reaches the broker, its answer does not reach us in time.
        await _until_asked(world)
        wire.hold()
        await outage(remote)
        assert _unknown(await given_up) == [True]

        wire.release()
        await asyncio.sleep(0.1)

        received = await receive(fragment)
        assert payloads(received) == [b"one", b"two"]
        assert [delivery.delivery_count for delivery in received.deliveries] == [0, 0]

    connected(story)


async def break_off(wire: Wire) -> None:
    """The connection breaks with all that is on its way, and another one is made."""
    wire.hold()
    wire.ends[0].abort()
    await asyncio.sleep(0.1)
    wire.release()
    await asyncio.sleep(SECOND)


def test_messages_whose_answer_was_lost_with_its_connection_are_unlocked() -> None:
    """R18, and they come before those that were sent later."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"one", b"two")
        given_up = ask(fragment, receive_command())
        await _until_asked(world)
        await break_off(wire)
        assert _unknown(await given_up) == [True]

        await send(fragment, b"three")
        received = await receive(fragment)

        assert payloads(received) == [b"one", b"two", b"three"]
        assert [delivery.delivery_count for delivery in received.deliveries] == [0, 0, 0]

    connected(story)


@pytest.mark.parametrize("is_out", [False, True])
def test_what_nobody_has_is_unlocked_when_the_broker_is_back(is_out: bool) -> None:
    """R18: whether it was out already, or stood still and was not to do what was given up."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"one", b"two")
        tokens = [delivery.token for delivery in (await receive(fragment)).deliveries]
        wire.hold()
        if is_out:
            await outage(remote)
        fragment.submit(Settle(RELEASE, tokens), ignore)
        await outage(remote)

        world.stood_still_s += 1.0
        wire.release()
        await asyncio.sleep(SECOND)

        received = await receive(fragment)
        assert payloads(received) == [b"one", b"two"]
        assert [delivery.delivery_count for delivery in received.deliveries] == [0, 0]

    connected(story)


def test_messages_deleted_for_a_receive_that_was_given_up_go_to_the_next_one() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment, bell = remote.runner(world.entity, 0), Bell()
        await send(fragment, b"one", b"two")
        given_up = ask(fragment, receive_command(is_locking=False))
        await _until_asked(world)
        wire.hold()
        await outage(remote)
        assert _unknown(await given_up) == [True]
        fragment.watch(MAIN_LINE, bell.ring)

        wire.release()
        await asyncio.sleep(0.1)

        assert len(bell.rings) == 1
        assert payloads(await receive(fragment, 1, is_locking=False)) == [b"one"]
        assert payloads(await receive(fragment, 1, is_locking=False)) == [b"two"]
        assert payloads(await receive(fragment, 1, is_locking=False)) == []

    connected(story)


def test_whoever_locks_is_woken_once_for_deleted_messages_that_are_not_for_it() -> None:
    """R19: nobody polls, not even for messages that only a receive and delete can have."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment, bell = remote.runner(world.entity, 0), Bell()
        fragment.strand(MAIN_LINE, NO_SESSION, [delivery(1, is_locking=False)])

        for _ in range(3):
            fragment.watch(MAIN_LINE, bell.ring)
            await asyncio.sleep(0.1)

        assert len(bell.rings) == 1
        await send(fragment, b"new")
        await asyncio.sleep(0.1)
        assert len(bell.rings) == 3

    connected(story)


def test_a_broker_that_stood_still_does_not_do_what_was_given_up() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"before")
        wire.hold()
        given_up = ask(fragment, Send([Message(b"given up")]))
        await outage(remote)
        assert _unknown(await given_up) == [True]

        world.stood_still_s += 1.0
        wire.release()
        await asyncio.sleep(SECOND)
        await send(fragment, b"after")

        assert payloads(await receive(fragment)) == [b"before", b"after"]

    connected(story)


def test_a_broker_that_stood_still_unnoticed_does_what_it_was_asked() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"before")
        wire.hold()
        patient = ask(fragment, Send([Message(b"patient")]))
        await asyncio.sleep(0.5)

        world.stood_still_s += 1.0
        wire.release()

        assert isinstance(await patient, Sent)
        assert remote.is_up

    connected(story)


def test_a_receiver_that_waits_on_a_dead_broker_is_served_when_it_is_back() -> None:
    """R17: it needs to do nothing for that."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment, bell = remote.runner(world.entity, 0), Bell()
        fragment.watch(MAIN_LINE, bell.ring)
        wire.cut()
        await asyncio.sleep(5 * SECOND)
        assert not remote.is_up
        assert remote.reason == "it cannot be reached: nobody is there"

        wire.is_cut = False
        await asyncio.sleep(2 * RETRY_MS_MAX / 1000)
        await send(fragment, b"one")
        await asyncio.sleep(SECOND)

        assert len(bell.rings) == 1

    connected(story)


def test_attempts_to_reach_a_dead_broker_are_bounded() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        wire.cut()
        before = wire.dialled

        await asyncio.sleep(60 * SECOND)

        assert 55 <= wire.dialled - before <= 70

    connected(story)


def test_a_request_that_is_never_answered_ends_as_unknown() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"opened")
        stuck = world.endpoint.runners[FragmentId(7, 0)]
        assert isinstance(stuck, Runner)
        stuck._is_busy = True

        started = world.loop.time()
        answer = await ask(fragment, Send([Message(b"x")]))

        assert _unknown(answer) == [True]
        assert world.loop.time() - started <= (ANSWER_TICKS_MAX + 1) * TICK_MS / 1000
        assert remote.is_up
        stuck._is_busy = False

    connected(story)


def test_a_broker_with_another_name_is_not_used() -> None:
    """A list of brokers in the wrong order must not look like fragments that nobody owns."""

    async def story(world: World) -> str:
        wire = world.wire()
        remote = world.remote(wire, broker="broker-1")
        async with running(remote):
            assert not await remote.wait_until_up(3_000)
            return remote.reason

    assert "'broker-0'" in run_world(story)


class Member:
    """A store that belongs to a namespace, once it has joined one."""

    def __init__(self, namespace_id: str = "") -> None:
        self.namespace_id = namespace_id

    def join(self, namespace_id: str, *, is_empty_expected: bool) -> None:
        if not self.namespace_id and not is_empty_expected:
            raise StoreError("it is empty")
        if self.namespace_id not in ("", namespace_id):
            raise StoreError("it belongs to another namespace")
        self.namespace_id = namespace_id


def test_a_broker_joins_the_namespace_of_its_gateway_and_says_which_ids_it_knows() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        world.broker.membership = member = Member()
        with unavailability():
            await remote.join("mine", is_empty_expected=False)

        assert await remote.join("mine", is_empty_expected=True) == 8
        assert member.namespace_id == "mine"
        wire.ends[0].abort()
        await asyncio.sleep(SECOND)
        assert remote.is_up

    connected(story)


def test_a_broker_of_another_namespace_is_not_used_whenever_that_is_found_out() -> None:
    """R28."""

    async def story(world: World) -> None:
        world.broker.membership = Member("theirs")
        remote = world.remote(world.wire())
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            with unavailability("theirs"):
                await remote.join("mine", is_empty_expected=False)
            for _ in range(3):
                await asyncio.sleep(SECOND)
                assert not remote.is_up
                assert "theirs" in remote.reason
            with unavailability("theirs"):
                await remote.fragment_ids()

    run_world(story)


def test_a_wrong_secret_is_turned_away_with_a_reason() -> None:
    async def story(world: World) -> str:
        wire = world.wire()
        remote = world.remote(wire, secret=b"another")
        async with running(remote):
            assert not await remote.wait_until_up(3_000)
            return remote.reason

    assert "does not know the secret" in run_world(story)


def test_a_message_too_large_for_a_frame_is_refused() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        half = Message(bytes(64 * 1024 * 1024))

        answer = await ask(fragment, Send([half, half]))

        assert isinstance(answer, Refused) and answer.kind.name == "too-large"
        await send(fragment, b"small")

    connected(story)


def test_while_the_broker_reads_slowly_requests_are_turned_away_before_memory_runs_out() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await send(fragment, b"opened")
        near = wire.ends[0]
        assert near.protocol is not None
        near.protocol.pause_writing()
        chunk = Message(bytes(16 * 1024 * 1024))

        answers = [ask(fragment, Send([chunk])) for _ in range(9)]
        turned_away = await answers[-1]

        assert (
            isinstance(turned_away, Unavailable)
            and "too many requests waiting" in turned_away.message
        )
        near.protocol.resume_writing()
        assert isinstance(await answers[0], Sent)

    connected(story)


def test_two_gateways_share_a_broker_and_each_others_locks() -> None:
    async def story(world: World, wire: Wire, first: RemoteBroker) -> None:
        second = world.remote(world.wire())
        async with running(second):
            assert await second.wait_until_up(1_000)
            here, there = first.runner(world.entity, 0), second.runner(world.entity, 0)
            await send(here, b"one")
            received = await receive(there)
            token = received.deliveries[0].token

            settled = await ask(here, Settle(COMPLETE, [token]))

            assert isinstance(settled, Settled) and settled.lost == [False]
            assert await counts(second) == [0, 0]

    connected(story)


async def _until_asked(world: World) -> None:
    """Let the broker apply what it was asked, and stop before its answer is heard."""
    runner = world.endpoint.runners[FragmentId(7, 0)]
    assert isinstance(runner, Runner)
    for _ in range(50):
        fragment = runner.statistics()
        assert fragment is not None
        if fragment.locked() or not fragment.counters.lines[MAIN_LINE].count:
            return
        await asyncio.sleep(0)
    raise AssertionError("the command did not arrive")


def _unknown(*answers: Answer) -> list[bool]:
    failures = [answer for answer in answers if isinstance(answer, Unavailable)]
    assert len(failures) == len(answers), answers
    return [failure.is_unknown for failure in failures]
