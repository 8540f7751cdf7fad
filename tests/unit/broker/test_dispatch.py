"""Receivers with credit meet fragments with messages (D6, R17-R19)."""

import weakref

import pytest

from shardbus.broker.fragment.answers import ReplyTo
from shardbus.broker.routing.dispatch import TAKE_MAX, TAKE_MIN, Dispatcher
from shardbus.core.fragment.command import Command
from shardbus.core.limits import WINDOW_COUNT_MAX
from shardbus.core.message import MAIN_LINE
from tests.unit.broker.house import House, send_of
from tests.unit.broker.ports import Link, ScriptedPort


def dispatcher_of(*ports: ScriptedPort) -> Dispatcher:
    return Dispatcher(list(ports), MAIN_LINE, lambda: bytes(8))


class PromptPort(ScriptedPort):
    """Answers while it is being asked."""

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        super().submit(command, reply_to)
        if self.asked:
            self.answer()


def joined(dispatcher: Dispatcher, link: Link) -> Link:
    dispatcher.add(link)
    dispatcher.wake(link)
    return link


def test_nobody_is_asked_before_anyone_has_credit() -> None:
    """R18: nothing is locked early."""
    port = ScriptedPort(5)
    joined(dispatcher_of(port), Link(0))

    assert (port.asked, port.watchers) == ([], [])


def test_a_receiver_with_credit_watches_every_fragment_and_asks_none() -> None:
    """R19: no polling round over the fragments."""
    ports = [ScriptedPort() for _ in range(16)]
    joined(dispatcher_of(*ports), Link(1))

    assert all(len(port.watchers) == 1 and not port.asked for port in ports)


def test_one_message_in_one_of_sixteen_fragments_asks_that_fragment_only() -> None:
    """R19."""
    ports = [ScriptedPort() for _ in range(16)]
    link = joined(dispatcher_of(*ports), Link(1))

    ports[7].messages = 1
    ports[7].wake()
    ports[7].answer()

    assert link.got == [1]
    assert sum(len(port.takes) for port in ports) == 1


def test_a_fragment_that_answers_at_once_is_watched_for_the_rest_of_the_credit() -> None:
    """R19: whoever has credit left is woken by the next message."""
    port = PromptPort(1)
    link = joined(dispatcher_of(port), Link(5))
    port.wake()
    assert link.got == [1]

    port.messages = 1
    port.wake()

    assert link.got == [1, 2]


def test_a_fragment_that_is_away_is_watched_until_it_is_back() -> None:
    port = ScriptedPort(1)
    link = joined(dispatcher_of(port), Link(5))
    port.is_available = False
    port.wake()

    port.is_available = True
    port.wake()
    port.answer()

    assert link.got == [1]


def test_never_more_is_taken_than_there_is_credit_for() -> None:
    """R18."""
    ports = [ScriptedPort(100, first=1), ScriptedPort(100, first=1_000)]
    link = joined(dispatcher_of(*ports), Link(40))

    for port in ports:
        port.wake()

    assert [port.takes for port in ports] == [[40], []]
    ports[0].answer()
    assert len(link.got) == 40


def test_a_large_credit_is_shared_over_the_ready_fragments() -> None:
    ports = [ScriptedPort(1_000, first=1_000 * number + 1) for number in range(4)]
    dispatcher = dispatcher_of(*ports)
    link = Link(0)
    joined(dispatcher, link)
    link.granted = 1
    dispatcher.wake(link)
    for port in ports:
        port.wake()
    ports[0].answer()

    link.granted = 400
    dispatcher.wake(link)

    assert [port.takes[-1] for port in ports[1:]] == [100, 100, 100]
    assert ports[0].takes == [1, 100]


def test_a_take_is_neither_tiny_nor_huge() -> None:
    ports = [ScriptedPort(1_000) for _ in range(16)]
    dispatcher = dispatcher_of(*ports)
    link = joined(dispatcher, Link(10_000))
    for port in ports:
        port.wake()
    assert max(port.takes[0] for port in ports) == TAKE_MAX

    small = [ScriptedPort(1_000) for _ in range(16)]
    other = dispatcher_of(*small)
    joined(other, link)
    link.granted = 2 * TAKE_MIN
    for port in small:
        port.wake()
    assert [port.takes for port in small[:3]] == [[TAKE_MIN * 2], [], []]


def test_fragments_are_asked_in_turn() -> None:
    ports = [ScriptedPort(100, first=1), ScriptedPort(100, first=1_000)]
    dispatcher = dispatcher_of(*ports)
    link = joined(dispatcher, Link(1))
    for port in ports:
        port.wake()

    for _ in range(4):
        for port in ports:
            if port.asked:
                port.answer()
        link.granted = 1
        dispatcher.wake(link)

    assert [len(port.takes) for port in ports] == [3, 2]
    assert sorted(link.got) == [1, 2, 1_000, 1_001]


def test_receivers_are_served_in_turn() -> None:
    ports = [ScriptedPort(1_000, first=1_000 * number + 1) for number in range(4)]
    dispatcher = dispatcher_of(*ports)
    links = [joined(dispatcher, Link(1_000)) for _ in range(2)]
    for port in ports:
        port.wake()

    for port in ports:
        port.answer()

    assert [len(link.got) for link in links] == [512, 512]


def test_a_fragment_that_has_more_is_asked_again_without_being_watched() -> None:
    port = ScriptedPort(10)
    link = joined(dispatcher_of(port), Link(100))
    port.wake()

    port.answer(at_most=4)
    assert (len(port.asked), port.watchers) == (1, [])
    port.answer()

    assert len(link.got) == 10
    assert (port.asked, len(port.watchers)) == ([], 1)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_fragment_that_comes_back_has_its_turn_beside_long_backlogs(is_lost: bool) -> None:
    """R17: it was empty, or moved, and a slow receiver never comes to the end of the others."""
    late = ScriptedPort(1, first=9_000)
    long = [ScriptedPort(1_000, first=1), ScriptedPort(1_000, first=2_000)]
    dispatcher = dispatcher_of(late, *long)
    link = joined(dispatcher, Link(1))
    for port in (late, *long):
        port.wake()
    if is_lost:
        late.fail()
    else:
        late.answer()

    late.messages = 5
    for _ in range(9):
        link.granted = 1
        dispatcher.wake(link)
        late.wake()
        for port in (*long, late):
            if port.asked:
                port.answer()

    of_late = [number for number in link.got if number >= 9_000]
    assert len(of_late) == (3 if is_lost else 4), link.got


def test_a_fragment_that_is_slow_to_answer_keeps_nobody_from_watching_the_others() -> None:
    """R17."""
    slow, other = ScriptedPort(5), ScriptedPort(1, first=100)
    dispatcher = dispatcher_of(slow, other)
    link = joined(dispatcher, Link(1))
    other.wake()
    slow.wake()
    other.answer()

    link.granted = 5
    dispatcher.wake(link)
    assert len(slow.asked) == len(other.watchers) == 1
    link.granted += 1
    other.messages = 1
    other.wake()
    other.answer()

    assert link.got == [100, 101]


def test_an_unavailable_fragment_delays_nobody_and_rejoins_by_itself() -> None:
    """R17."""
    away, here = ScriptedPort(5), ScriptedPort(5, first=100)
    away.is_available = False
    link = joined(dispatcher_of(away, here), Link(100))
    away.wake()
    here.wake()
    here.answer()
    assert len(link.got) == 5

    assert len(away.watchers) == 1
    away.is_available = True
    away.wake()
    away.answer()

    assert len(link.got) == 10


def test_a_fragment_that_fails_while_asked_is_watched_again() -> None:
    port = ScriptedPort(5)
    link = joined(dispatcher_of(port), Link(100))
    port.wake()
    port.fail()

    assert len(port.watchers) == 1
    port.wake()
    port.answer()
    assert len(link.got) == 5


def test_what_was_taken_for_a_receiver_that_left_is_released() -> None:
    """R18: a closed link holds no locks."""
    port = ScriptedPort(3)
    dispatcher = dispatcher_of(port)
    link = joined(dispatcher, Link(3))
    port.wake()

    dispatcher.remove(link)
    port.answer()

    assert link.got == []
    assert port.released == [number.to_bytes(16, "big") for number in (1, 2, 3)]


def test_what_there_is_no_credit_for_any_more_is_released() -> None:
    """R18: an idle link holds no locks."""
    port = ScriptedPort(3)
    link = joined(dispatcher_of(port), Link(3))
    port.wake()

    link.granted = 1
    port.answer()

    assert link.got == [1]
    assert port.released == [number.to_bytes(16, "big") for number in (2, 3)]


def test_what_was_deleted_without_credit_waits_for_the_next_credit() -> None:
    """R18: served by the next receives on that connection."""
    port = ScriptedPort(5)
    dispatcher = dispatcher_of(port)
    link = joined(dispatcher, Link(5, is_locking=False))
    port.wake()
    link.granted = 1
    port.answer()
    assert (link.got, port.released) == ([1], [])

    link.granted = 2
    dispatcher.wake(link)
    link.granted = 10
    dispatcher.wake(link)

    assert link.got == [1, 2, 3, 4, 5]


def test_nothing_is_watched_when_the_last_receiver_has_left() -> None:
    port = ScriptedPort()
    dispatcher = dispatcher_of(port)
    link = joined(dispatcher, Link(3))
    assert len(port.watchers) == 1

    dispatcher.remove(link)
    dispatcher.remove(link)

    assert port.watchers == []


def test_receivers_that_come_and_go_leave_nothing_behind() -> None:
    """D3: nobody sends to this queue, but many ask."""
    dispatcher = dispatcher_of(ScriptedPort())
    stays = joined(dispatcher, Link(1))
    gone: list[weakref.ref[Link]] = []

    for _ in range(100):
        link = joined(dispatcher, Link(10))
        dispatcher.remove(link)
        gone.append(weakref.ref(link))
        del link

    assert [ref for ref in gone if ref() is not None] == []
    assert stays.got == []


def test_a_receiver_that_left_takes_nothing_from_the_others() -> None:
    port = ScriptedPort(3)
    dispatcher = dispatcher_of(port)
    gone, here = joined(dispatcher, Link(10)), joined(dispatcher, Link(10))
    dispatcher.remove(gone)

    port.wake()
    port.answer()

    assert (gone.got, here.got) == ([], [1, 2, 3])


def test_a_stranger_cannot_be_woken() -> None:
    port = ScriptedPort(3)
    dispatcher_of(port).wake(Link(5))

    assert (port.asked, port.watchers) == ([], [])


def test_draining_empty_fragments_asks_each_once_and_ends() -> None:
    ports = [ScriptedPort(), ScriptedPort()]
    dispatcher = dispatcher_of(*ports)
    link = Link(5)
    link.is_draining = True
    joined(dispatcher, link)

    ports[0].answer()
    assert link.drains == 0
    ports[1].answer()

    assert (link.drains, [port.takes for port in ports]) == (1, [[5], [5]])


def test_draining_delivers_what_there_is_first() -> None:
    ports = [ScriptedPort(1), ScriptedPort(1, first=10)]
    link = Link(100)
    link.is_draining = True
    joined(dispatcher_of(*ports), link)

    for port in ports:
        port.answer()

    assert (link.got, link.drains) == ([1, 10], 1)


def test_a_drain_does_not_end_while_a_fragment_has_more() -> None:
    """A fragment may answer with part of what it has when the rest is in the store alone."""
    port = ScriptedPort(10)
    link = Link(100)
    link.is_draining = True
    joined(dispatcher_of(port), link)

    port.answer(at_most=3)
    assert link.drains == 0
    port.answer()

    assert (len(link.got), link.drains) == (10, 1)


def test_a_drain_ends_when_credit_does() -> None:
    port = ScriptedPort(10)
    link = Link(4)
    link.is_draining = True
    joined(dispatcher_of(port), link)

    port.answer()

    assert (link.got, link.drains) == ([1, 2, 3, 4], 1)


def test_a_drain_without_credit_ends_at_once() -> None:
    link = Link(0)
    link.is_draining = True
    joined(dispatcher_of(ScriptedPort(3)), link)

    assert link.drains == 1


def test_a_drain_is_not_held_up_by_an_unavailable_fragment() -> None:
    """R17."""
    port = ScriptedPort(3)
    port.is_available = False
    link = Link(5)
    link.is_draining = True
    joined(dispatcher_of(port), link)

    assert link.drains == 1


def test_a_drain_waits_for_a_fragment_that_another_receiver_asked() -> None:
    port = ScriptedPort(3)
    dispatcher = dispatcher_of(port)
    greedy = joined(dispatcher, Link(2))
    port.wake()
    link = Link(5)
    link.is_draining = True
    joined(dispatcher, link)
    assert link.drains == 0

    port.answer()
    port.answer()

    assert (greedy.got, link.got, link.drains) == ([1, 2], [3], 1)


def test_a_receiver_may_ask_for_the_next_drain_when_told_of_the_last() -> None:
    class Eager(Link):
        def drained(self) -> None:
            super().drained()
            if self.drains < 3:
                self.granted, self.is_draining = 1, True
                dispatcher.wake(self)

    port = ScriptedPort()
    dispatcher = dispatcher_of(port)
    link = Eager(1)
    link.is_draining = True
    joined(dispatcher, link)

    for _ in range(3):
        port.answer()

    assert link.drains == 3


def test_a_drain_that_was_called_off_is_not_answered() -> None:
    port = ScriptedPort()
    dispatcher = dispatcher_of(port)
    link = Link(5)
    link.is_draining = True
    joined(dispatcher, link)

    link.is_draining = False
    port.answer()

    assert link.drains == 0


def test_a_receiver_that_left_is_not_told_that_it_is_drained() -> None:
    port = ScriptedPort()
    dispatcher = dispatcher_of(port)
    link = Link(5)
    link.is_draining = True
    joined(dispatcher, link)

    dispatcher.remove(link)
    port.answer()

    assert link.drains == 0


@pytest.mark.parametrize("is_locking", [True, False])
def test_a_drain_of_a_long_line_delivers_all_of_it(house: House, is_locking: bool) -> None:
    """With real fragments, whose lines are longer than their windows."""
    runners = [house.runner(number) for number in range(2)]
    count = WINDOW_COUNT_MAX + 900
    for runner in runners:
        for _ in range(0, count, 100):
            house.ask(runner, send_of(*[b"a"] * 100))
    house.pass_s()
    dispatcher = Dispatcher(list(runners), MAIN_LINE, lambda: bytes(8))
    link = Link(1_000_000, is_locking=is_locking)
    link.is_draining = True

    joined(dispatcher, link)
    house.pass_s(10)

    assert link.drains == 1
    assert len(set(link.got)) == len(link.got) == sum(-(-count // 100) * 100 for _ in runners)


def test_a_waiting_receiver_gets_what_is_sent_and_what_comes_back(house: House) -> None:
    """R19, end to end below the gateway."""
    runners = [house.runner(number) for number in range(16)]
    house.pass_s()
    dispatcher = Dispatcher(list(runners), MAIN_LINE, lambda: bytes(8))
    link = joined(dispatcher, Link(3))

    house.answer(runners[5], send_of(b"a"))
    assert len(link.got) == 1
    house.pass_s(31)

    assert len(link.got) == 2
    assert house.receive(runners[5]) == []


def ready(port: ScriptedPort, *links: Link) -> Dispatcher:
    dispatcher = dispatcher_of(port)
    for link in links:
        joined(dispatcher, link)
    port.wake()
    return dispatcher


def tokens(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in numbers]


def test_what_a_receiver_has_no_room_for_is_unlocked() -> None:
    """R18."""
    port, link = ScriptedPort(5), Link(10)
    link.room = 3
    ready(port, link)

    port.answer()

    assert (link.got, port.released, port.asked) == ([1, 2, 3], tokens(4, 5), [])


def test_what_was_deleted_for_a_receiver_without_room_comes_first_and_in_order() -> None:
    port, link = ScriptedPort(8), Link(5, is_locking=False)
    link.room = 3
    dispatcher = ready(port, link)
    port.answer(5)
    before = list(link.got)

    link.room, link.granted = 10_000, 10
    dispatcher.wake(link)
    port.answer()

    assert (before, link.got) == ([1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8])


@pytest.mark.parametrize("is_prompt", [True, False])
def test_a_receiver_that_fails_is_served_no_more_and_hurts_no_other(is_prompt: bool) -> None:
    port = PromptPort(2) if is_prompt else ScriptedPort(2)
    failing, other = Link(2), Link(0)
    failing.is_failing = True
    dispatcher = ready(port, failing, other)
    if not is_prompt:
        port.answer()

    other.granted = 5
    port.messages = 2
    dispatcher.wake(other)
    port.wake()
    if not is_prompt:
        port.answer()

    assert (failing.got, port.released) == ([], tokens(1, 2))
    assert other.got == [3, 4]
