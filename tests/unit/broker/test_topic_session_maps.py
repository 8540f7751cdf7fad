"""Subscriptions with sessions, whose topic gets other fragments: each session keeps its order, its
state and one holder in each of them (P6, R26).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.broker.fragment.runner import Runner
from shardbus.broker.operations.asking import ask
from shardbus.core.errors import REPARTITIONING, Refused
from shardbus.core.fragment.command import Reply
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.placement import even_hash_starts, fragment_at, hash_point
from shardbus.core.sessions.command import AcceptSession, NoSession, SessionAccepted
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.news import sql_rule
from tests.unit.broker.test_session_maps import Owner
from tests.unit.broker.test_topic_maps import ALL, EVEN, NEWS, TopicTown, mark_in


class Talks(TopicTown):
    def accept(self, name: str, session: str | None) -> SessionAccepted | Refused:
        answers: list[object] = []
        router = self.handle(self.path(name)).router
        router.sessions.accept(session, 1_000, answers.append)
        self.pass_s(6)
        [answer] = answers
        assert isinstance(answer, SessionAccepted | Refused), answer
        return answer

    def held(self, name: str, session: str | None = None) -> SessionAccepted:
        answer = self.accept(name, session)
        assert isinstance(answer, SessionAccepted), answer
        return answer

    def serve(self, name: str, held: SessionAccepted) -> Owner:
        owner = Owner()
        router = self.handle(self.path(name)).router
        dispatcher = router.session_dispatcher(held, MAIN_LINE, is_lasting=True)
        dispatcher.add(owner)
        dispatcher.wake(owner)
        self.pass_s(0.5)
        return owner

    def release(self, name: str, held: SessionAccepted) -> None:
        self.handle(self.path(name)).router.release_session(held.token)
        self.pass_s(0.3)


@pytest.fixture
def talks() -> Iterator[Talks]:
    town = Talks()
    town.make(requires_session=True)
    yield town
    town.close()


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("name", [None, "S"])
def test_a_session_keeps_its_order_and_state_in_each_subscription(
    talks: Talks, name: str | None, is_restarted: bool
) -> None:
    """P6, R26: in each of them it has a state and a holder of its own."""
    for at, each in enumerate((ALL, EVEN)):
        held = talks.held(each, "s")
        operations = talks.handle(talks.path(each)).operations
        talks.run(operations.set_state(held.token, b"%d" % at))
        talks.release(each, held)
    talks.publish(0, 2, session="s")
    talks.remap(3)
    talks.publish(4, session="s")
    if is_restarted:
        talks.restart()

    for at, each in enumerate((ALL, EVEN)):
        held = talks.held(each, name)
        assert [mark_in(one) for one in talks.serve(each, held).deliveries] == [0, 2, 4]
        operations = talks.handle(talks.path(each)).operations
        assert talks.run(operations.state(held.token)) == b"%d" % at
        assert isinstance(talks.accept(each, "S"), Refused)


def test_who_holds_a_session_goes_on_with_it(talks: Talks) -> None:
    """P6: without accepting it again."""
    talks.publish(0, session="s")
    owner = talks.serve(ALL, talks.held(ALL, "s"))
    talks.remap(4)
    talks.publish(1, 2, session="s")
    talks.pass_s(2)
    for delivery in list(owner.deliveries):
        talks.finish(ALL, delivery)
    talks.pass_s(2)

    assert [mark_in(each) for each in owner.deliveries] == [0, 1, 2]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_session_is_held_where_scheduled_messages_will_come(
    talks: Talks, is_restarted: bool
) -> None:
    """P6, R15, R26: the former fragment is empty, but the topic has something for it."""
    talks.publish(0, at_ms=talks.soon_ms(30), session="s")
    talks.remap(3)
    talks.publish(2, session="s")
    if is_restarted:
        talks.restart()
    held = talks.held(EVEN, "s")
    owner = talks.serve(EVEN, held)
    assert [mark_in(each) for each in owner.deliveries] == [2]
    for _ in range(2):
        talks.pass_s(15)
        talks.run(talks.handle(talks.path(EVEN)).operations.renew_session(held.token))
    talks.pass_s(2)

    assert [mark_in(each) for each in owner.deliveries] == [2, 0]
    former = former_of(talks, EVEN)
    talks.release(EVEN, held)
    assert isinstance(accept_at(talks, former, "other"), SessionAccepted), "it has a message"


def former_of(talks: Talks, name: str) -> Runner:
    former = talks.handle(talks.path(name)).runners[0]
    assert isinstance(former, Runner)
    return former


def accept_at(talks: Talks, former: Runner, session: str) -> Reply:
    command = AcceptSession(session, talks.seed(), is_former=True)
    return talks.run(ask(former, command))


def test_a_former_fragment_that_gets_nothing_any_more_is_left_out(talks: Talks) -> None:
    """P6: and nobody holds a session there without knowing that it is a former one."""
    talks.remap(3)
    for is_restarted in (False, True):
        if is_restarted:
            talks.restart()
        former = former_of(talks, EVEN)
        assert isinstance(accept_at(talks, former, "s"), NoSession)
        with refusal_of(REPARTITIONING):
            talks.run(ask(former, AcceptSession("s", talks.seed())))


def test_a_fragment_is_sealed_as_that_of_its_topic_is_stored(talks: Talks) -> None:
    """P6: also before the fragment of the topic is loaded, and by those who know no former map."""
    maps = talks.namespace.maps
    prepared = talks.run(maps.plan(talks.topic(), 3))
    talks.run(maps._put(prepared))
    talks.run(talks.bus.seal(prepared, prepared.present(), prepared.map_number, is_open=False))
    talks.restart()
    [home] = prepared.present()
    broker = talks._broker("another", talks.disks[home.broker_index])
    runner = broker.runner(talks.subscription(EVEN), home.number)
    with refusal_of(REPARTITIONING):
        talks.run(ask(runner, AcceptSession("s", talks.seed())))
    runner.stop()


@pytest.mark.parametrize(
    ("before", "after", "is_early"), [(1, 4, True), (4, 1, True), (1, 4, False)]
)
def test_an_action_changes_a_session_only_where_one_fragment_has_all(
    talks: Talks, before: int, after: int, is_early: bool
) -> None:
    """P6, R11: by the map of the fragment that publishes, which may be a former one."""
    if before > 1:
        talks.remap(before)
    rule = sql_rule("move", "kind = 'even'", "SET sys.SessionId = 'z'")
    talks.run(talks.namespace.create_subscription(NEWS, "moved", sessions(), [rule]))
    session = session_away_from("z", 4)
    if is_early:
        talks.publish(0, at_ms=talks.soon_ms(10), session=session)
    talks.remap(after)
    if not is_early:
        talks.publish(0, session=session)
    talks.pass_s(12)

    is_spread = before > 1 if is_early else after > 1
    letters = talks.subscriber("moved", DEAD_LETTER_LINE).deliveries
    assert len(letters) == is_spread
    if not is_spread:
        owner = talks.serve("moved", talks.held("moved", "z"))
        assert [mark_in(each) for each in owner.deliveries] == [0]


def sessions() -> EntitySpec:
    spec = EntitySpec()
    spec.requires_session = True
    return spec


def session_away_from(other: str, count: int) -> str:
    """A session that another fragment has, if the map is even."""
    starts = even_hash_starts(count)
    places = {each: fragment_at(hash_point(each), starts) for each in [other, *map(str, range(99))]}
    return next(each for each, place in places.items() if place != places[other])


def test_a_reader_of_a_subscription_goes_on_after_a_repartition(talks: Talks) -> None:
    """P6, P2: the fragments of the subscription are sealed as those of the topic are."""
    readers = talks.handle(talks.path(ALL)).readers
    talks.publish(0, session="s")
    talks.publish(5, at_ms=talks.soon_ms(60), session="s")
    talks.remap(3)
    talks.publish(2, session="s")
    for name in ("lake", "pond"):
        talks.run(readers.open(MAIN_LINE, name, b"o", b"i"))
    number = talks.handle(talks.path(ALL)).router.numbers[-1]
    with unavailability("1 older"):
        talks.run(readers.claim(number, MAIN_LINE, "lake", b"o", 1))
    talks.run(readers.claim(0, MAIN_LINE, "lake", b"o", 1))
    talks.run(readers.complete(MAIN_LINE, "lake", b"o", {0: 1}))

    claimed = [
        talks.run(readers.claim(number, MAIN_LINE, "lake", b"o", 1)).claim
        for number in readers.numbers()[1:]
    ]

    assert [each.count for each in claimed if each is not None] == [1]
    with unavailability("'lake' is ahead"):
        talks.run(readers.claim(number, MAIN_LINE, "pond", b"o", 1))
