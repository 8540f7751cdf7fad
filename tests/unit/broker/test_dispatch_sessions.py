"""A receiver of one session: served from its fragment, and told when the session is lost (R26)."""

from shardbus.broker.routing.dispatch import Dispatcher
from shardbus.core.errors import SESSION_LOCK_LOST, Refused
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import ABANDON, Receive, Settle
from shardbus.core.sequence import lock_token
from tests.unit.broker.house import House
from tests.unit.broker.ports import Link, ScriptedPort
from tests.unit.broker.queues import LOCK_MS, Queue, queue_rules

TOKEN = lock_token(0, 1, b"12345678")
LOST = Refused(SESSION_LOCK_LOST, "lost")


def joined(port: ScriptedPort, link: Link) -> Dispatcher:
    dispatcher = Dispatcher([port], MAIN_LINE, lambda: bytes(8), [TOKEN])
    dispatcher.add(link)
    dispatcher.wake(link)
    return dispatcher


def test_what_is_watched_and_received_is_the_session() -> None:
    port = ScriptedPort(1)
    link = Link(5)
    joined(port, link)
    assert port.watched_session == TOKEN

    port.wake()

    command, _ = port.asked[0]
    assert isinstance(command, Receive) and command.session == TOKEN
    port.answer()
    assert link.got == [1]


def test_a_receiver_is_told_once_that_the_session_is_lost_and_nothing_more_comes() -> None:
    port = ScriptedPort(5)
    link = Link(5)
    dispatcher = joined(port, link)
    port.wake()

    port.refuse(LOST)
    link.granted = 9
    dispatcher.wake(link)

    assert link.losses == [LOST]
    assert (port.asked, port.watchers, link.got) == ([], [], [])


def test_a_receiver_that_has_gone_is_not_told() -> None:
    port = ScriptedPort(5)
    link = Link(5)
    dispatcher = joined(port, link)
    port.wake()
    dispatcher.remove(link)

    port.refuse(LOST)

    assert link.losses == []


def test_a_refusal_without_a_session_is_no_loss() -> None:
    port = ScriptedPort(5)
    link = Link(5)
    dispatcher = Dispatcher([port], MAIN_LINE, lambda: bytes(8))
    dispatcher.add(link)
    dispatcher.wake(link)
    port.wake()

    port.refuse(LOST)

    assert link.losses == [] and len(port.watchers) == 1


def test_an_outage_is_no_loss() -> None:
    port = ScriptedPort(5)
    link = Link(5)
    joined(port, link)
    port.wake()

    port.fail()

    assert link.losses == [] and len(port.watchers) == 1


# With fragments.


def receiver_of(queue: Queue, session_id: str, link: Link) -> Dispatcher:
    dispatcher = queue.router.session_dispatcher(queue.accept(session_id), MAIN_LINE)
    dispatcher.add(link)
    dispatcher.wake(link)
    queue.house.pass_s()
    return dispatcher


def test_only_messages_of_the_session_are_delivered_and_in_order(house: House) -> None:
    """R11."""
    queue = Queue(house, 2, queue_rules(requires_session=True))
    first, second = queue.session_ids(1, 2)
    queue.send_to_session(first, b"1", b"2")
    queue.send_to_session(second, b"other")
    queue.send_to_session(first, b"3")
    link = Link(100)

    receiver_of(queue, first, link)
    queue.send_to_session(second, b"other")
    queue.send_to_session(first, b"4")

    counters = [number & 0xFFFF for number in link.got]
    assert counters == [1, 2, 4, 6]


def test_an_abandoned_message_comes_again_before_the_next(house: House) -> None:
    queue = Queue(house, 1, queue_rules(requires_session=True))
    queue.send_to_session("s", b"1", b"2", b"3")
    link = Link(1)
    dispatcher = receiver_of(queue, "s", link)
    [token] = link.tokens

    house.answer(queue.runners[0], Settle(ABANDON, [token]))
    link.granted = 2
    dispatcher.wake(link)
    house.pass_s()

    assert [number & 0xFFFF for number in link.got] == [1, 1, 2]


def test_a_receiver_hears_when_the_session_ends_by_its_deadline(house: House) -> None:
    queue = Queue(house, 1, queue_rules(requires_session=True))
    link = Link(10)
    receiver_of(queue, "s", link)

    house.pass_s(LOCK_MS / 1000 + 1)

    assert [loss.kind for loss in link.losses] == [SESSION_LOCK_LOST]


def test_a_receiver_hears_when_its_fragment_forgot_the_session(house: House) -> None:
    """ADR 0002: locks are volatile."""
    queue = Queue(house, 1, queue_rules(requires_session=True))
    link = Link(10)
    receiver_of(queue, "s", link)

    house.disk.commit_failures.append("before")
    queue.send_to_session("other", b"x")
    house.pass_s(10)

    assert [loss.kind for loss in link.losses] == [SESSION_LOCK_LOST]
