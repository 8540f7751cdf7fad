"""Sessions: one owner at a time, messages in their order and for the owner alone, states kept."""

from collections import Counter
from collections.abc import Callable

from shardbus.broker.fragment.answers import Answer
from shardbus.core.errors import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, Refused
from shardbus.core.limits import SESSION_GRACE_MS
from shardbus.core.message import ACTIVE
from shardbus.core.messages.command import Done, Purge, Receive, Received, ReceiveDeferred, Renewed
from shardbus.core.sequence import TOKEN_SEED_BYTES, fragment_of_token, is_of_seed
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
from shardbus.stores.base.store import FragmentId
from tests.simulation.journal import Journal, SessionKey
from tests.simulation.locks import Heard, LockBook, Term
from tests.simulation.records import Record
from tests.simulation.sending import Violation, one_spelling

Held = RenewSession | ReleaseSession | GetState | SetState
Ending = RenewSession | ReleaseSession | Purge | Receive
# Whether an answer of a fragment may have been lost on its way between two moments.
MayLose = Callable[[FragmentId, int, int], bool]


class Hold:
    """A session as a fragment gave it to somebody."""

    def __init__(self, key: SessionKey, told_ms: int, life: int, granted_at_ms: int) -> None:
        self.key = key
        self.term = Term(told_ms + SESSION_GRACE_MS)
        self.life = life
        self.granted_at_ms = granted_at_ms
        # Every deadline that its holder was told.
        self.deadlines_ms = [told_ms]
        self.released_at_ms: int | None = None
        # Renewals, releases and removals that were asked for and are not answered yet.
        self.renewing = 0
        self.releasing = 0
        self.removing = 0
        # Whether somebody was told that it is theirs, or wanted to let it go.
        self.is_owned = False
        self.was_let_go = False

    def may_hold(self, life: int, from_ms: int) -> bool:
        """Whether it can have been held at or after a moment."""
        is_released = self.released_at_ms is not None and self.released_at_ms < from_ms
        return self.life == life and self.term.until_ms > from_ms and not is_released

    def must_hold(self, life: int, to_ms: int) -> bool:
        """Whether it was held without a doubt until a moment."""
        is_released = self.released_at_ms is not None or self.releasing > 0
        return self.life == life and self.term.until_ms > to_ms and not is_released


class HoldBook:
    def __init__(self, journal: Journal, locks: LockBook, events: Counter[str]) -> None:
        self._journal = journal
        self._locks = locks
        self._events = events
        self._by_token: dict[bytes, Hold] = {}
        self._last: dict[SessionKey, Hold] = {}

    def of_token(self, token: bytes) -> Hold | None:
        if is_of_seed(token):
            seed = token[-TOKEN_SEED_BYTES:]
            found = [hold for each, hold in self._by_token.items() if each.endswith(seed)]
            return found[0] if found else None
        return self._by_token.get(token)

    def fragment_of(self, token: bytes) -> FragmentId:
        return self._by_token[token].key.fragment

    def until_ms(self, token: bytes) -> int:
        return self._by_token[token].term.until_ms

    def owned(self, token: bytes) -> None:
        """Somebody was told that a session is theirs."""
        self._by_token[token].is_owned = True

    def check_lost(self, token: bytes, life: int, now_ms: int) -> None:
        """Somebody was told that their session is lost."""
        hold = self._by_token[token]
        if hold.must_hold(life, now_ms):
            raise Violation(f"{hold.key} is told to be lost, and is held")

    def check_owners(
        self, life_of: Callable[[FragmentId], int], may_lose: MayLose, forgiven: set[bytes]
    ) -> None:
        """Whoever did not get a session that was granted had it let go at once (R18)."""
        for token, hold in self._by_token.items():
            fragment = hold.key.fragment
            is_current = hold.life == life_of(fragment)
            is_known = hold.is_owned or hold.was_let_go or token[-TOKEN_SEED_BYTES:] in forgiven
            if not is_current or is_known:
                continue
            # An answer that takes longer than the hold lasts leaves nothing held.
            is_over = hold.term.until_ms <= hold.granted_at_ms
            if not is_over and not may_lose(fragment, hold.granted_at_ms, hold.term.until_ms):
                raise Violation(f"{hold.key} was held for nobody")

    def asking(self, command: Ending, change: int) -> None:
        """A renewal, release, purge or receive is asked for (1) or answered (-1)."""
        hold = self.of_token(command.session)
        if hold is None:
            return
        if isinstance(command, RenewSession):
            hold.renewing += change
        elif isinstance(command, ReleaseSession):
            # One that nobody heard of may be granted only while its release waits.
            hold.releasing = max(hold.releasing + change, 0)
            hold.was_let_go = True
        elif isinstance(command, Purge) or not command.is_locking:
            hold.removing += change

    # Accepting.

    def accepted(self, heard: Heard, command: AcceptSession, answer: Answer) -> None:
        if isinstance(answer, SessionAccepted):
            self._granted(heard, command, answer)
        elif isinstance(answer, NoSession):
            free = self.free_in(heard.fragment, heard.life, heard.asked_at_ms, heard.now_ms)
            if free:
                raise Violation(f"{heard.fragment} has no session, but {free[0]} is free")
            self._events["no session"] += 1
        elif isinstance(answer, Refused) and answer.kind is SESSION_CANNOT_BE_LOCKED:
            assert command.session_id is not None
            last = self._last.get(SessionKey(heard.fragment, one_spelling(command.session_id)))
            if last is None or not last.may_hold(heard.life, heard.asked_at_ms):
                raise Violation(f"session {command.session_id!r} is refused, but nobody holds it")
            self._events["session refused"] += 1

    def free_in(
        self, fragment: FragmentId, life: int, from_ms: int, to_ms: int
    ) -> list[SessionKey]:
        """Sessions that had messages and no owner all the time between two moments."""
        found: list[SessionKey] = []
        for key in self._journal.sessions_of(fragment):
            last = self._last.get(key)
            is_free = last is None or not last.may_hold(life, from_ms)
            if is_free and self._waiting(key, from_ms, to_ms):
                found.append(key)
        return found

    def _granted(self, heard: Heard, command: AcceptSession, answer: SessionAccepted) -> None:
        key = SessionKey(heard.fragment, one_spelling(answer.session_id))
        if command.session_id not in (None, answer.session_id):
            raise Violation(
                f"{command.session_id!r} was asked for, {answer.session_id!r} was given"
            )
        if answer.token in self._by_token or fragment_of_token(answer.token) != key.fragment.number:
            raise Violation(f"{key}: the token {answer.token.hex()} is not a new one of its own")
        decided_at_ms = answer.locked_until_ms - heard.rules.lock_ms
        if not heard.asked_at_ms <= decided_at_ms <= heard.now_ms:
            raise Violation(f"{key} is held until {answer.locked_until_ms}")
        last = self._last.get(key)
        if last is not None and last.must_hold(heard.life, decided_at_ms):
            raise Violation(f"{key} is held by two: until {last.term.until_ms} and again")
        if command.session_id is None and not self._may_wait(key, decided_at_ms):
            raise Violation(f"{key} was given as the next one, but has no messages")
        self._last[key] = Hold(key, answer.locked_until_ms, heard.life, heard.now_ms)
        self._by_token[answer.token] = self._last[key]
        self._events["session accepted"] += 1

    def _waiting(self, key: SessionKey, from_ms: int, to_ms: int) -> list[Record]:
        """Its messages that could be delivered all the time between two moments."""
        return [
            record
            for record in self._journal.kept_in_session(key)
            if record.state == ACTIVE
            and record.since_ms < from_ms
            and not record.has_expired(to_ms)
            and not self._journal.is_damaged(record)
        ]

    def _may_wait(self, key: SessionKey, now_ms: int) -> bool:
        # A record that is damaged is noticed when it is read, and may be gone by then.
        return any(place.fragment == key.fragment for place in self._journal.damaged) or any(
            record.state == ACTIVE and not record.has_expired(now_ms)
            for record in self._journal.kept_in_session(key)
        )

    # Receiving.

    def received(
        self, heard: Heard, command: Receive | ReceiveDeferred, answer: Received
    ) -> Term | None:
        """The term of the locks of what was handed out; None where there are no sessions."""
        if not command.session:
            return None
        hold = self._by_token.get(command.session)
        if hold is None or not hold.may_hold(heard.life, heard.asked_at_ms):
            raise Violation(f"{heard.fragment} served somebody who does not hold a session")
        for delivery in answer.deliveries:
            session_id = delivery.entry.session_id
            if session_id is None or one_spelling(session_id) != hold.key.session:
                raise Violation(f"{session_id!r} was served to who holds {hold.key}")
            is_known = delivery.locked_until_ms in hold.deadlines_ms or hold.renewing > 0
            if command.is_locking and not is_known:
                raise Violation(f"a message of {hold.key} has the deadline of no session")
        if isinstance(command, Receive):
            self._check_order(heard, hold, answer)
        return hold.term

    def refused(self, heard: Heard, token: bytes, answer: Refused) -> None:
        hold = self._by_token.get(token)
        if answer.kind is not SESSION_LOCK_LOST:
            return
        if hold is not None and hold.must_hold(heard.life, heard.now_ms):
            raise Violation(f"{hold.key} was lost before its time, {hold.term.until_ms}")
        self._events["session lost"] += 1

    def _check_order(self, heard: Heard, hold: Hold, answer: Received) -> None:
        """Nothing was passed over that could have been delivered, and nothing is forgotten."""
        if hold.removing:
            # What is being removed is passed over by those who are answered beside it.
            return
        waiting = [
            record.place.sequence_number
            for record in self._waiting(hold.key, heard.asked_at_ms, heard.now_ms)
            if not self._locks.may_be_held(record, heard.life, heard.asked_at_ms)
        ]
        numbers = [delivery.entry.sequence_number for delivery in answer.deliveries]
        passed = [n for n in waiting if numbers and n < numbers[-1] and n not in numbers]
        if passed:
            raise Violation(f"{hold.key}: {numbers} were delivered before {passed}")
        if not answer.has_more and set(waiting) - set(numbers):
            raise Violation(f"{hold.key} is said to be empty, but {waiting} wait")

    # Holding.

    def answered(self, heard: Heard, command: Held, answer: Answer) -> None:
        hold = self.of_token(command.session)
        if isinstance(answer, Refused):
            self.refused(heard, command.session, answer)
        elif isinstance(command, ReleaseSession):
            if isinstance(answer, Done) and hold is not None and hold.released_at_ms is None:
                self._release(heard, hold)
        elif isinstance(answer, Renewed | Done | SessionState):
            if hold is None or not hold.may_hold(heard.life, heard.asked_at_ms):
                raise Violation(f"{type(command).__name__} by who does not hold a session")
            self._obeyed(heard, hold, command, answer)

    def _release(self, heard: Heard, hold: Hold) -> None:
        hold.released_at_ms = heard.now_ms
        if hold.life == heard.life:
            self._locks.let_go(heard, hold.term)
            self._events["session released"] += 1

    def _obeyed(
        self, heard: Heard, hold: Hold, command: Held, answer: Renewed | Done | SessionState
    ) -> None:
        if isinstance(answer, Renewed):
            decided_at_ms = answer.locked_until_ms - heard.rules.lock_ms
            if not heard.asked_at_ms <= decided_at_ms <= heard.now_ms:
                raise Violation(f"{hold.key} was renewed until {answer.locked_until_ms}")
            hold.term.until_ms = answer.locked_until_ms + SESSION_GRACE_MS
            hold.deadlines_ms.append(answer.locked_until_ms)
            self._events["session renewed"] += 1
        elif isinstance(command, SetState):
            if command.state not in self._journal.states.get(hold.key, [None]):
                raise Violation(f"the state of {hold.key} was never stored")
            self._events["state set"] += 1
        elif isinstance(answer, SessionState):
            if answer.state != self._journal.state_of(hold.key):
                raise Violation(f"the state of {hold.key} is told as {answer.state!r}")
            self._events["state read"] += 1
