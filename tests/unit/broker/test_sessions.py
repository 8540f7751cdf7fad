"""Accepting sessions over fragments: first come first served, nobody polls (R26)."""

import asyncio
from collections.abc import Callable

from shardbus.broker.fragment.answers import ReplyTo
from shardbus.broker.routing.dispatch import FragmentPort, ignore
from shardbus.broker.routing.joint_holds import tokens_in
from shardbus.broker.routing.sessions import (
    PATIENCE_MS,
    REST_MS,
    WAITING_MAX,
    Accepting,
    SessionAcceptor,
    timeout_text,
)
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    SERVER_BUSY,
    SESSION_CANNOT_BE_LOCKED,
    TIMEOUT,
    Refused,
    Unavailable,
)
from shardbus.core.fragment.command import Command
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import SESSIONS
from shardbus.core.messages.command import NO_SESSION
from shardbus.core.sequence import fragment_of_token, lock_token
from shardbus.core.sessions.command import (
    SHARED,
    AcceptSession,
    GetState,
    NoSession,
    ReleaseSession,
    SessionAccepted,
    SessionState,
)
from tests.unit.broker.house import House
from tests.unit.broker.queues import LOCK_MS, Queue, queue_rules

MINUTE_MS = 60_000


class Sessions:
    """A FragmentPort with so many free sessions; it answers when `answer` is called."""

    def __init__(self, number: int, free: int = 0) -> None:
        self.number = number
        self.free = free
        self.is_available = True
        self.asked: list[tuple[AcceptSession, ReplyTo]] = []
        self.watchers: list[Callable[[], None]] = []
        self.released: list[bytes] = []
        self._granted = 0

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        if isinstance(command, ReleaseSession):
            self.released.append(command.session)
        elif isinstance(command, GetState):
            reply_to(SessionState(""))
        else:
            assert isinstance(command, AcceptSession)
            self.asked.append((command, reply_to))

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        assert line == SESSIONS and session == NO_SESSION
        self.watchers.append(wake)

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        self.watchers.remove(wake)

    def wake(self) -> None:
        watchers, self.watchers = self.watchers, []
        for wake in watchers:
            wake()

    def answer(self) -> None:
        command, reply_to = self.asked.pop(0)
        if command.session_id is None and not self.free:
            reply_to(NoSession())
            return
        self.free -= 1
        self._granted += 1
        token = lock_token(self.number, self._granted, command.token_seed)
        reply_to(SessionAccepted(command.session_id or f"{self.number}.{self._granted}", token, 1))

    def fail(self, failure: Refused | Unavailable) -> None:
        _, reply_to = self.asked.pop(0)
        reply_to(failure)


class Asker:
    """Somebody who wants a session."""

    def __init__(
        self,
        acceptor: SessionAcceptor,
        session_id: str | None = None,
        wait_ms: int = MINUTE_MS,
        sharing: bytes | None = None,
    ) -> None:
        self.answers: list[SessionAccepted | Refused | Unavailable] = []
        self.accepting: Accepting = acceptor.accept(
            session_id, wait_ms, self.answers.append, sharing
        )

    def granted(self) -> str:
        [answer] = self.answers
        assert isinstance(answer, SessionAccepted), answer
        return answer.session_id

    def refused(self) -> Refused:
        [answer] = self.answers
        assert isinstance(answer, Refused), answer
        return answer


class Plan:
    """Fragments with a map by the lengths of keys; `former` of them are of a former map."""

    def __init__(self, house: House, ports: list[Sessions], former: int) -> None:
        self.ports: list[FragmentPort] = list(ports)
        self._house = house
        self._former = former

    def path_of_key(self, key: str) -> list[int]:
        former, present = self._former, len(self.ports) - self._former
        return (
            [former + len(key) % present]
            if not former
            else [
                len(key) % former,
                former + len(key) % present,
            ]
        )

    def index_of_token(self, token: bytes) -> int:
        return fragment_of_token(token)

    def new_token_seed(self) -> bytes:
        return bytes(8)

    def call_later(self, delay_ms: int, then: Callable[[], None]) -> asyncio.TimerHandle:
        return self._house.loop.call_later(delay_ms / 1000, then)

    def release(self, token: bytes) -> None:
        for each in tokens_in(token):
            self.ports[fragment_of_token(each)].submit(ReleaseSession(each), ignore)


def acceptor_of(house: House, *ports: Sessions, former: int = 0) -> SessionAcceptor:
    plan = Plan(house, list(ports), former)
    return SessionAcceptor(plan, plan.release, former, loop=house.loop, new_seed=lambda: bytes(8))


def test_a_named_session_is_asked_of_its_fragment_once(house: House) -> None:
    """R11."""
    ports = [Sessions(0), Sessions(1)]
    asker = Asker(acceptor_of(house, *ports), "abc")

    assert [len(port.asked) for port in ports] == [0, 1]
    ports[1].answer()

    assert asker.granted() == "abc"


def test_a_named_session_that_somebody_holds_is_refused_at_once(house: House) -> None:
    port = Sessions(0)
    asker = Asker(acceptor_of(house, port), "abc")

    port.fail(Refused(SESSION_CANNOT_BE_LOCKED, "held"))

    assert asker.refused().kind is SESSION_CANNOT_BE_LOCKED


def test_a_session_id_that_is_too_long_is_refused_before_anybody_is_asked(house: House) -> None:
    port = Sessions(0)
    asker = Asker(acceptor_of(house, port), "x" * (KEY_CHARACTERS_MAX + 1))

    assert asker.refused().kind is INVALID_ARGUMENT
    assert port.asked == []


def test_sessions_of_former_fragments_come_first_and_are_held_at_both(house: House) -> None:
    """P6: their messages are older."""
    former, empty, present = Sessions(0, free=2), Sessions(1), Sessions(2, free=2)
    asker = Asker(acceptor_of(house, former, empty, present, former=1))
    for port in (empty, present, former):
        port.wake()
    empty.answer()
    assert (len(former.asked), len(present.asked)) == (1, 0)
    former.answer()
    assert asker.answers == [], "not before it is held at its present fragment"

    [(command, _)] = present.asked
    assert command.session_id == "0.1" and not command.is_former
    present.answer()

    assert asker.granted() == "0.1"


def test_a_free_session_that_is_held_at_a_former_fragment_is_given_back(house: House) -> None:
    """P6: and its fragment is asked again after a moment."""
    former, present = Sessions(0), Sessions(1, free=2)
    acceptor = acceptor_of(house, former, present, former=1)
    asker = Asker(acceptor)
    present.wake()
    present.answer()
    former.fail(Refused(SESSION_CANNOT_BE_LOCKED, "held"))

    assert len(present.released) == 1 and present.asked == [] and asker.answers == []
    house.pass_s(2 * REST_MS / 1000)
    assert len(present.asked) == 1


def test_whoever_wants_any_session_waits_without_asking(house: House) -> None:
    """R19: no polling round over the fragments."""
    ports = [Sessions(n) for n in range(16)]
    asker = Asker(acceptor_of(house, *ports))
    house.pass_s(30)

    assert all(len(port.watchers) == 1 and not port.asked for port in ports)
    ports[7].free = 1
    ports[7].wake()
    ports[7].answer()

    assert asker.granted() == "7.1"


def test_askers_are_served_in_the_order_in_which_they_came(house: House) -> None:
    ports = [Sessions(0, free=1), Sessions(1, free=2)]
    acceptor = acceptor_of(house, *ports)
    askers = [Asker(acceptor) for _ in range(3)]
    for port in ports:
        port.wake()

    ports[1].answer()
    ports[0].answer()
    ports[1].answer()

    assert [asker.granted() for asker in askers] == ["1.1", "0.1", "1.2"]


def test_only_as_many_sessions_are_asked_for_as_are_wanted(house: House) -> None:
    ports = [Sessions(n, free=5) for n in range(4)]
    Asker(acceptor_of(house, *ports))
    for port in ports:
        port.wake()

    assert sum(len(port.asked) for port in ports) == 1


def test_every_fragment_has_its_turn(house: House) -> None:
    ports = [Sessions(n, free=9) for n in range(3)]
    acceptor = acceptor_of(house, *ports)
    granted: list[str] = []
    first = Asker(acceptor)
    for port in ports:
        port.wake()
    ports[0].answer()
    granted.append(first.granted())

    for _ in range(5):
        asker = Asker(acceptor)
        [port] = [port for port in ports if port.asked]
        port.answer()
        granted.append(asker.granted())

    assert [name[0] for name in granted] == ["0", "1", "2", "0", "1", "2"]


def test_a_fragment_without_a_free_session_is_waited_for_again(house: House) -> None:
    port = Sessions(0)
    asker = Asker(acceptor_of(house, port))
    port.wake()

    port.answer()

    assert asker.answers == [] and len(port.watchers) == 1
    port.free = 1
    port.wake()
    port.answer()
    assert asker.granted() == "0.1"


def test_an_unavailable_fragment_keeps_nobody_from_the_others(house: House) -> None:
    """R17."""
    ports = [Sessions(0), Sessions(1, free=1)]
    asker = Asker(acceptor_of(house, *ports))
    for port in ports:
        port.wake()

    ports[0].fail(Unavailable("away"))
    ports[1].answer()

    assert asker.granted() == "1.1"


def test_a_fragment_that_does_not_answer_keeps_nobody_from_the_others(house: House) -> None:
    """R17: and what it grants too late is released."""
    stuck, other = Sessions(0, free=1), Sessions(1, free=1)
    asker = Asker(acceptor_of(house, stuck, other))
    stuck.wake()
    other.wake()
    assert (len(stuck.asked), len(other.asked)) == (1, 0)

    house.pass_s(2 * PATIENCE_MS / 1000)
    other.answer()
    assert asker.granted() == "1.1"

    stuck.answer()
    assert len(stuck.released) == 1


def test_after_its_time_an_asker_is_told_so(house: House) -> None:
    port = Sessions(0)
    asker = Asker(acceptor_of(house, port), wait_ms=59_500)

    house.pass_s(59.4)
    assert asker.answers == []
    house.pass_s(0.2)

    assert asker.refused().kind is TIMEOUT
    assert asker.refused().message == (
        "The operation did not complete within the allotted timeout of 00:00:59.5000000."
    )
    assert port.watchers == []


def test_times_are_written_as_the_original_does() -> None:
    texts = [timeout_text(wait_ms) for wait_ms in (-1, 1_000, 3_723_004)]

    assert [text.rsplit(" ", 1)[1] for text in texts] == [
        "00:00:00.",
        "00:00:01.",
        "01:02:03.0040000.",
    ]


def test_a_session_that_was_granted_too_late_goes_to_the_next_asker(house: House) -> None:
    port = Sessions(0, free=1)
    acceptor = acceptor_of(house, port)
    gone, next_one = Asker(acceptor, wait_ms=1_000), Asker(acceptor)
    port.wake()
    house.pass_s(2)

    port.answer()

    assert gone.refused().kind is TIMEOUT
    assert next_one.granted() == "0.1"
    assert port.released == []


def test_a_session_that_nobody_wants_any_more_is_released_at_once(house: House) -> None:
    port = Sessions(0, free=2)
    acceptor = acceptor_of(house, port)
    any_one, named = Asker(acceptor), Asker(acceptor, "abc")
    port.wake()

    any_one.accepting.cancel()
    named.accepting.cancel()
    while port.asked:
        port.answer()

    assert any_one.answers == named.answers == []
    assert len(port.released) == 2


def test_each_asker_gets_a_session_that_is_held_as_it_wants(house: House) -> None:
    ports = [Sessions(0, free=2), Sessions(1, free=2)]
    acceptor = acceptor_of(house, *ports)
    alone, shared = Asker(acceptor), Asker(acceptor, sharing=SHARED)
    for port in ports:
        port.wake()

    assert [port.asked[0][0].sharing for port in ports] == [None, SHARED]
    ports[1].answer()
    ports[0].answer()
    assert (alone.granted(), shared.granted()) == ("0.1", "1.1")


def test_a_session_that_is_held_otherwise_than_wanted_is_released_and_asked_for_again(
    house: House,
) -> None:
    port = Sessions(0, free=2)
    acceptor = acceptor_of(house, port)
    gone, alone = Asker(acceptor, sharing=SHARED), Asker(acceptor)
    port.wake()
    gone.accepting.cancel()

    port.answer()
    assert alone.answers == [] and len(port.released) == 1
    assert [command.sharing for command, _ in port.asked] == [None]
    port.answer()

    assert alone.granted() == "0.2"


def test_a_session_to_take_over_is_asked_for_with_its_token(house: House) -> None:
    port = Sessions(0, free=1)
    asker = Asker(acceptor_of(house, port), "s", sharing=b"the first token.")

    [(command, _)] = port.asked
    port.answer()

    assert (command.session_id, command.sharing) == ("s", b"the first token.")
    assert asker.granted() == "s"


def test_nobody_is_watched_when_the_last_asker_has_gone(house: House) -> None:
    ports = [Sessions(0), Sessions(1)]
    acceptor = acceptor_of(house, *ports)
    askers = [Asker(acceptor), Asker(acceptor)]

    askers[0].accepting.cancel()
    assert [len(port.watchers) for port in ports] == [1, 1]
    askers[1].accepting.cancel()

    assert [len(port.watchers) for port in ports] == [0, 0]


def test_an_asker_hears_nothing_after_it_was_told(house: House) -> None:
    port = Sessions(0, free=1)
    asker = Asker(acceptor_of(house, port), wait_ms=1_000)
    port.wake()
    port.answer()

    house.pass_s(5)
    asker.accepting.cancel()

    assert asker.granted() == "0.1"
    assert port.released == []


def test_a_refusal_is_told_to_whoever_has_waited_longest(house: House) -> None:
    port = Sessions(0)
    asker = Asker(acceptor_of(house, port))
    port.wake()

    port.fail(Refused(NOT_ALLOWED, "this entity has no sessions"))

    assert asker.refused().kind is NOT_ALLOWED


def test_only_so_many_wait_at_once(house: House) -> None:
    acceptor = acceptor_of(house, Sessions(0))
    askers = [Asker(acceptor) for _ in range(WAITING_MAX + 1)]

    assert askers[-1].refused().kind is SERVER_BUSY
    assert not any(asker.answers for asker in askers[:-1])
    for asker in askers:
        asker.accepting.cancel()


# With fragments.


def test_the_next_free_session_of_any_fragment_is_accepted_until_there_is_none(
    house: House,
) -> None:
    queue = Queue(house, 4, queue_rules(requires_session=True))
    names = [f"s{number}" for number in range(10)]
    for name in names:
        queue.send_to_session(name, b"x")

    accepted = [queue.accept(None).session_id for _ in names]

    assert sorted(accepted) == names
    late = Asker(queue.router.sessions, wait_ms=5_000)
    house.pass_s(6)
    assert late.refused().kind is TIMEOUT


def test_a_waiting_asker_gets_a_session_as_soon_as_a_message_comes(house: House) -> None:
    queue = Queue(house, 4, queue_rules(requires_session=True))
    asker = Asker(queue.router.sessions)
    house.pass_s(20)
    assert asker.answers == []

    queue.send_to_session("s", b"x")

    assert asker.granted() == "s"


def test_a_held_session_is_free_again_when_it_is_released_or_its_time_is_over(
    house: House,
) -> None:
    queue = Queue(house, 2, queue_rules(requires_session=True))
    queue.send_to_session("s", b"x")
    first = queue.accept("s")
    asker = Asker(queue.router.sessions)
    held = Asker(queue.router.sessions, "s")
    house.pass_s(1)
    assert held.refused().kind is SESSION_CANNOT_BE_LOCKED and asker.answers == []

    queue.router.release_session(first.token)
    house.pass_s(1)
    assert asker.granted() == "s"
    house.pass_s(LOCK_MS / 1000)

    assert queue.accept(None).session_id == "s"


def test_releasing_what_is_no_session_does_nothing(house: House) -> None:
    queue = Queue(house, 2, queue_rules(requires_session=True))

    for token in (b"", b"short", lock_token(9, 1, bytes(8))):
        queue.router.release_session(token)

    assert queue.accept("s").session_id == "s"
