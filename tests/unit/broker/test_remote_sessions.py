"""Sessions, deferred and scheduled messages of a broker behind a wire (R26, R32)."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from shardbus.broker.fragment.runner import Runner
from shardbus.broker.operations.entity import Operations
from shardbus.broker.remote.broker import RemoteBroker
from shardbus.broker.remote.fragment import STRANDED_MAX, RemoteFragment
from shardbus.broker.routing.dispatch import ignore
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import SESSION_LOCK_LOST, Refused, Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.message import MAIN_LINE, SESSIONS, Message
from shardbus.core.messages.command import (
    ABANDON,
    DEFER,
    Cancel,
    Done,
    Receive,
    Received,
    ReceiveDeferred,
    Renewed,
    Send,
    Sent,
    Settle,
    Settled,
)
from shardbus.core.namespace.entity import Entity
from shardbus.core.sequence import lock_token
from shardbus.core.sessions.command import (
    AcceptSession,
    GetState,
    NoSession,
    ReleaseSession,
    RenewSession,
    SessionAccepted,
    SessionState,
    SetState,
)
from shardbus.stores.base.store import FragmentId, Page
from tests.unit.broker.ports import Link, delivery
from tests.unit.broker.test_remote import Bell, break_off, outage
from tests.unit.broker.wires import SEED, Wire, World, ask, connected, payloads, running

T = TypeVar("T")

SECOND = 1.0
LOCK_S = 60.0


async def answer_of(fragment: RemoteFragment, command: Command, kind: type[T]) -> T:
    answer = await ask(fragment, command)
    assert isinstance(answer, kind), answer
    return answer


async def send(fragment: RemoteFragment, session_id: str, *texts: bytes) -> Sent:
    messages = [Message(text, session_id=session_id) for text in texts]
    return await answer_of(fragment, Send(messages), Sent)


async def accept(fragment: RemoteFragment, session_id: str | None) -> SessionAccepted:
    return await answer_of(fragment, AcceptSession(session_id, SEED), SessionAccepted)


def receive_from(session: bytes, *, is_locking: bool = True) -> Receive:
    return Receive(MAIN_LINE, 10, is_locking=is_locking, token_seed=SEED, session=session)


def test_a_session_is_used_as_if_the_broker_were_here() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        await answer_of(fragment, AcceptSession(None, SEED), NoSession)
        await send(fragment, "s", b"one", b"two")

        accepted = await accept(fragment, None)
        assert accepted.session_id == "s"
        token = accepted.token
        assert accepted.locked_until_ms == world.clock.now_ms() + LOCK_S * 1000
        received = await answer_of(fragment, receive_from(token), Received)
        assert payloads(received) == [b"one", b"two"]
        assert [each.entry.session_id for each in received.deliveries] == ["s", "s"]
        await answer_of(fragment, SetState(token, b"state"), Done)
        state = await answer_of(fragment, GetState(token), SessionState)
        assert (state.session_id, state.state) == ("s", b"state")
        await answer_of(fragment, RenewSession(token), Renewed)
        await answer_of(fragment, ReleaseSession(token), Done)
        refused = await answer_of(fragment, GetState(token), Refused)
        assert refused.kind is SESSION_LOCK_LOST

    connected(story)


def test_deferred_scheduled_and_delayed_messages_are_as_if_the_broker_were_here() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        at_ms = world.clock.now_ms() + 60_000
        sent = await answer_of(fragment, Send([Message(b"x", scheduled_at_ms=at_ms)]), Sent)
        await answer_of(fragment, Cancel(sent.numbers()), Done)
        await answer_of(fragment, Send([Message(b"one"), Message(b"two")]), Sent)
        receive = Receive(MAIN_LINE, 10, is_locking=True, token_seed=SEED)
        first, second = (await answer_of(fragment, receive, Received)).deliveries

        await answer_of(fragment, Settle(DEFER, [first.token]), Settled)
        await answer_of(fragment, Settle(ABANDON, [second.token], delay_ms=9_000), Settled)
        number = first.entry.sequence_number
        deferred = await answer_of(
            fragment,
            ReceiveDeferred(MAIN_LINE, [number], is_locking=True, token_seed=SEED),
            Received,
        )

        assert payloads(deferred) == [b"one"]
        assert payloads(await answer_of(fragment, receive, Received)) == []
        await asyncio.sleep(10)
        assert payloads(await answer_of(fragment, receive, Received)) == [b"two"]

    connected(story)


def test_the_messages_and_the_names_of_sessions_are_read_without_touching() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        for name in ("a", "b", "c"):
            await send(fragment, name, name.encode())
        page: asyncio.Future[Page | Unavailable] = world.loop.create_future()
        names: asyncio.Future[list[str] | Unavailable] = world.loop.create_future()

        fragment.browse(
            MAIN_LINE, start=0, count_max=9, bytes_max=99, then=page.set_result, session_id="b"
        )
        fragment.list_sessions(updated_after_ms=-1, skip=1, count_max=9, then=names.set_result)

        found, listed = await page, await names
        assert isinstance(found, Page) and isinstance(listed, list)
        assert [entry.payload for entry in found.entries] == [b"b"]
        assert len(listed) == 2 and set(listed) <= {"a", "b", "c"}

    connected(story)


def test_listing_sessions_of_a_broker_that_is_out_is_unavailable() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        answers: list[list[str] | Unavailable] = []
        wire.hold()
        fragment.list_sessions(updated_after_ms=-1, skip=0, count_max=9, then=answers.append)
        await outage(remote)
        fragment.list_sessions(updated_after_ms=-1, skip=0, count_max=9, then=answers.append)

        assert [type(answer) for answer in answers] == [Unavailable, Unavailable]

    connected(story)


def test_watchers_of_sessions_are_woken_each_by_its_own() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        held, other = await accept(fragment, "held"), await accept(fragment, "other")
        free, mine, others, taken_back = Bell(), Bell(), Bell(), Bell()
        fragment.watch(SESSIONS, free.ring)
        fragment.watch(MAIN_LINE, mine.ring, held.token)
        fragment.watch(MAIN_LINE, taken_back.ring, held.token)
        fragment.watch(MAIN_LINE, others.ring, other.token)
        fragment.unwatch(MAIN_LINE, taken_back.ring, held.token)
        await asyncio.sleep(SECOND)

        await send(fragment, "held", b"x")
        await asyncio.sleep(SECOND)
        assert [len(bell.rings) for bell in (free, mine, others, taken_back)] == [0, 1, 0, 0]

        await send(fragment, "free", b"x")
        await asyncio.sleep(SECOND)
        assert [len(bell.rings) for bell in (free, mine, others)] == [1, 1, 0]

        await asyncio.sleep(LOCK_S)
        assert len(others.rings) == 1

    connected(story)


def test_a_session_granted_to_somebody_who_gave_up_is_released_at_once() -> None:
    """R18: a late answer leaves nothing locked for nobody."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        await send(fragment, "s", b"x")
        given_up = ask(fragment, AcceptSession("s", SEED))
        await until(lambda: served(world, 8).held_sessions() > 0)
        wire.hold()
        await outage(remote)
        answer = await given_up
        assert isinstance(answer, Unavailable) and answer.is_unknown

        wire.release()
        await asyncio.sleep(0.5)

        assert (await accept(fragment, "s")).session_id == "s"

    connected(story)


def test_a_session_whose_grant_was_lost_with_its_connection_is_free() -> None:
    """R18."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        await send(fragment, "s", b"x")
        given_up = ask(fragment, AcceptSession("s", SEED))
        await until(lambda: served(world, 8).held_sessions() > 0)
        await break_off(wire)
        assert isinstance(await given_up, Unavailable)

        assert (await accept(fragment, None)).session_id == "s"

    connected(story)


def test_a_session_keeps_its_order_when_an_answer_was_lost_with_its_connection() -> None:
    """R26: its holder gets what nobody got, first, and holds it still."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        await send(fragment, "s", b"one", b"two")
        accepting = AcceptSession("s", b"accepted")
        token = (await answer_of(fragment, accepting, SessionAccepted)).token
        given_up = ask(fragment, receive_from(token))
        await until(lambda: served(world, 8).locked() > 0)
        await break_off(wire)
        assert isinstance(await given_up, Unavailable)

        await send(fragment, "s", b"three")
        received = await answer_of(fragment, receive_from(token), Received)

        assert payloads(received) == [b"one", b"two", b"three"]
        assert [each.delivery_count for each in received.deliveries] == [0, 0, 0]

    connected(story)


@pytest.mark.parametrize("is_out", [False, True])
def test_a_session_that_is_let_go_during_an_outage_is_free_after_it(is_out: bool) -> None:
    """R18: a closed link holds no session, and no message of it."""

    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        await send(fragment, "s", b"x")
        token = (await accept(fragment, "s")).token
        await answer_of(fragment, receive_from(token, is_locking=True), Received)
        wire.hold()
        if is_out:
            await outage(remote)
        fragment.submit(ReleaseSession(token), ignore)
        await outage(remote)

        world.stood_still_s += 1.0
        wire.release()
        await asyncio.sleep(SECOND)

        again = (await accept(fragment, "s")).token
        received = await answer_of(fragment, receive_from(again, is_locking=True), Received)
        assert [each.delivery_count for each in received.deliveries] == [0]

    connected(story)


def test_deferred_messages_for_somebody_who_gave_up_are_unlocked() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.entity, 0)
        await answer_of(fragment, Send([Message(b"x")]), Sent)
        receive = Receive(MAIN_LINE, 1, is_locking=True, token_seed=SEED)
        [delivery] = (await answer_of(fragment, receive, Received)).deliveries
        await answer_of(fragment, Settle(DEFER, [delivery.token]), Settled)
        wanted = ReceiveDeferred(
            MAIN_LINE, [delivery.entry.sequence_number], is_locking=True, token_seed=SEED
        )
        given_up = ask(fragment, wanted)
        await until(lambda: served(world, 7).locked() > 0)
        wire.hold()
        await outage(remote)
        assert isinstance(await given_up, Unavailable)

        wire.release()
        await asyncio.sleep(0.5)

        again = await answer_of(fragment, wanted, Received)
        assert [each.delivery_count for each in again.deliveries] == [1]

    connected(story)


def test_messages_deleted_for_a_session_go_to_the_next_receive_of_that_session_only() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        await send(fragment, "s", b"one", b"two")
        await send(fragment, "other", b"x")
        token, other = (await accept(fragment, "s")).token, (await accept(fragment, "other")).token
        given_up = ask(fragment, receive_from(token, is_locking=False))
        await until(lambda: served(world, 8).counters.lines[MAIN_LINE].count == 1)
        wire.hold()
        await outage(remote)
        assert isinstance(await given_up, Unavailable)
        bell = Bell()
        fragment.watch(MAIN_LINE, bell.ring, token)

        wire.release()
        await asyncio.sleep(0.5)

        assert len(bell.rings) == 1
        elsewhere = await answer_of(fragment, receive_from(other, is_locking=False), Received)
        assert payloads(elsewhere) == [b"x"]
        mine = await answer_of(fragment, receive_from(token, is_locking=False), Received)
        assert payloads(mine) == [b"one", b"two"]

    connected(story)


def test_what_is_left_for_a_session_goes_with_it() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        await send(fragment, "s", b"one")
        token = (await accept(fragment, "s")).token
        given_up = ask(fragment, receive_from(token, is_locking=False))
        await until(lambda: served(world, 8).counters.lines[MAIN_LINE].count == 0)
        wire.hold()
        await outage(remote)
        assert isinstance(await given_up, Unavailable)
        wire.release()
        await asyncio.sleep(0.5)

        await answer_of(fragment, ReleaseSession(token), Done)

        answer = await answer_of(fragment, receive_from(token, is_locking=False), Refused)
        assert answer.kind is SESSION_LOCK_LOST

    connected(story)


def test_messages_are_left_for_a_bounded_number_of_sessions() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragment = remote.runner(world.with_sessions, 0)
        tokens = [lock_token(0, n, SEED) for n in range(1, STRANDED_MAX + 2)]

        for number, token in enumerate(tokens):
            fragment.strand(MAIN_LINE, token, [delivery(number, is_locking=False)])

        oldest = await answer_of(fragment, receive_from(tokens[0], is_locking=False), Refused)
        assert oldest.kind is SESSION_LOCK_LOST
        kept = await answer_of(fragment, receive_from(tokens[1], is_locking=False), Received)
        assert payloads(kept) == [b"1"]

    connected(story)


def test_a_receiver_of_a_session_is_served_on_when_the_broker_goes_on() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        router = router_of(world, remote)
        fragment = remote.runner(world.with_sessions, router.index_of_key("s"))
        link = Link(10)
        dispatcher = router.session_dispatcher(await accept(fragment, "s"), MAIN_LINE)
        dispatcher.add(link)
        dispatcher.wake(link)
        wire.hold()
        await outage(remote)
        wire.release()
        await asyncio.sleep(SECOND)

        await send(fragment, "s", b"x")
        await asyncio.sleep(SECOND)

        assert len(link.got) == 1 and link.losses == []

    connected(story)


def test_a_receiver_of_a_session_hears_that_the_broker_forgot_it_meanwhile() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        router = router_of(world, remote)
        fragment = remote.runner(world.with_sessions, router.index_of_key("s"))
        link = Link(10)
        dispatcher = router.session_dispatcher(await accept(fragment, "s"), MAIN_LINE)
        dispatcher.add(link)
        dispatcher.wake(link)
        wire.cut()
        await asyncio.sleep(LOCK_S + SECOND)
        assert link.losses == []

        wire.is_cut = False
        await asyncio.sleep(3 * SECOND)

        assert [loss.kind for loss in link.losses] == [SESSION_LOCK_LOST]

    connected(story)


def test_gateways_compete_for_the_sessions_of_one_broker() -> None:
    async def story(world: World, wire: Wire, first: RemoteBroker) -> None:
        second = world.remote(world.wire())
        async with running(second):
            assert await second.wait_until_up(1_000)
            routers = [router_of(world, remote) for remote in (first, second)]
            granted: list[SessionAccepted | Refused | Unavailable] = []
            for router in routers:
                router.sessions.accept(None, 30_000, granted.append)
            await asyncio.sleep(SECOND)

            fragment = first.runner(world.with_sessions, routers[0].index_of_key("s"))
            await send(fragment, "s", b"x")
            await asyncio.sleep(SECOND)
            assert [type(answer) for answer in granted] == [SessionAccepted]

            [accepted] = granted
            assert isinstance(accepted, SessionAccepted)
            routers[0].release_session(accepted.token)
            await asyncio.sleep(SECOND)
            assert [type(answer) for answer in granted] == [SessionAccepted, SessionAccepted]

    connected(story)


def test_operations_work_over_fragments_of_another_process() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        router = router_of(world, remote, world.entity)
        fragments = [remote.runner(world.entity, number) for number in (0, 1)]
        operations = Operations(router, fragments, clock=world.clock, new_seed=lambda: SEED)
        at_ms = world.clock.now_ms() + 60_000
        messages = [
            Message(b"%d" % n, partition_key=f"{n}", scheduled_at_ms=at_ms) for n in range(6)
        ]

        numbers = await operations.schedule(messages)
        await operations.cancel(numbers[:3])
        await asyncio.sleep(61)
        removed = await operations.purge(MAIN_LINE, count_max=100)

        assert removed == 3

    connected(story)


def router_of(world: World, remote: RemoteBroker, entity: Entity | None = None) -> EntityRouter:
    entity = entity or world.with_sessions
    return EntityRouter(
        [remote.runner(entity, number) for number in (0, 1)],
        [0, 1],
        entity.hash_starts,
        detects_duplicates=False,
        requires_session=entity.spec.requires_session,
        loop=world.loop,
        clock=world.clock,
        new_seed=lambda: SEED,
    )


def served(world: World, entity_id: int) -> Fragment:
    runner = world.endpoint.runners[FragmentId(entity_id, 0)]
    assert isinstance(runner, Runner)
    fragment = runner.statistics()
    assert fragment is not None
    return fragment


async def until(is_so: Callable[[], bool]) -> None:
    """Let the broker apply what it was asked, and stop before its answer is heard."""
    for _ in range(50):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("the command did not arrive")
