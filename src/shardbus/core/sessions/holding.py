"""The commands about sessions: who may hold a session, for how long, and which state it has
(R26).
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    REPARTITIONING,
    SERVER_BUSY,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    Refused,
)
from shardbus.core.fragment.change import StateChange
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.line import Line
from shardbus.core.fragment.lock import LockBatch
from shardbus.core.fragment.need import Need, NeedSession, NeedSessions, NeedState
from shardbus.core.limits import SESSION_GRACE_MS, SHORT_STATE_BYTES_MAX
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import NO_SESSION, Done, Renewed
from shardbus.core.sealing.seal import FragmentSeal
from shardbus.core.sequence import is_of_seed, lock_token
from shardbus.core.sessions.command import (
    AboutSessions,
    AcceptSession,
    AskHolds,
    GetState,
    Hold,
    HoldsTold,
    NoSession,
    ReleaseSession,
    RenewSession,
    SessionAccepted,
    SessionReply,
    SessionState,
    SetState,
)
from shardbus.core.sessions.table import NO_STATE, STATE_UNREAD, HeldSession, SessionTable

SESSION_LOST_TEXT: Final = (
    "The session lock has expired on the MessageSession, or it was released. "
    "Accept a new MessageSession."
)


def not_received_so(session: bytes) -> Refused:
    """The refusal of a receive with, or without, this session token."""
    if session != NO_SESSION:
        return Refused(SESSION_LOCK_LOST, SESSION_LOST_TEXT)
    return Refused(
        NOT_ALLOWED,
        "It is not possible for an entity that requires sessions to receive without a session: "
        "accept a session first.",
    )


@final
class Candidate:
    """A free session whose first messages were read, so that it can be held with them."""

    def __init__(self, key: str, line: Line) -> None:
        self.key = key
        self.line = line

    def spelling(self) -> str:
        """The session id as its first message spells it, because the client did not name the
        session.
        """
        [first] = self.line.front(1)
        assert first.session_id is not None
        return first.session_id


@final
class PromisedState:
    """A state that a transaction sets; `old_bytes` is the size of the present state, or
    NO_STATE.
    """

    def __init__(self, session_id: str, state: bytes | None, old_bytes: int) -> None:
        self.session_id = session_id
        self.state = state
        self.old_bytes = old_bytes


@final
class NoHolds(Handler):
    """Decides the commands about sessions for a fragment without sessions."""

    def decide(self, command: Command, now_ms: int) -> Done:
        if isinstance(command, ReleaseSession):
            return Done()
        raise Refused(
            NOT_ALLOWED, "The entity does not require sessions: receive from it without a session."
        )


@final
class SessionHolds(Handler):
    """Decides the commands about sessions of one fragment, where sessions are required."""

    def __init__(
        self, fragment_number: int, ledger: Ledger, table: SessionTable, seal: FragmentSeal
    ) -> None:
        self._fragment_number = fragment_number
        self._seal = seal
        self._ledger = ledger
        self._table = table
        self._fed: Candidate | None = None
        # The candidate that was read for the command that is being applied.
        self._candidate: Candidate | None = None
        # The sessions whose states transactions have promised to set.
        self._promised: set[str] = set()

    def begin(self) -> None:
        """A command is being applied: what was read for it can be used by it alone."""
        self._candidate = self._fed
        self._fed = None

    def need(self, command: Command, now_ms: int) -> Need | None:
        if isinstance(command, AcceptSession):
            return self._need_to_accept(command, now_ms)
        return self._need_to_set_state(command) if isinstance(command, SetState) else None

    def decide(self, command: Command, now_ms: int) -> Renewed | Done | SessionReply:
        assert isinstance(command, AboutSessions)
        if isinstance(command, AcceptSession):
            return self._accept(command, now_ms)
        if isinstance(command, RenewSession):
            return self._renew(command, now_ms)
        if isinstance(command, ReleaseSession):
            return self._release(command, now_ms)
        if isinstance(command, GetState):
            return self._get_state(command)
        if isinstance(command, AskHolds):
            return self._holding(command, now_ms)
        return self.set_state(command, now_ms)

    def _holding(self, command: AskHolds, now_ms: int) -> HoldsTold:
        ledger = self._ledger
        holds: list[Hold] = []
        for session_id in command.session_ids:
            held = self._table.named(session_id)
            if held is not None and held.deadline_ms() > ledger.steady_ms:
                until_ms = ledger.moment_of(held.told_ms(), now_ms)
                holds.append(Hold(session_id, until_ms, held.batch.held))
                continue
            claimer = self._table.claimer(session_id)
            if claimer is not None:
                reader = ledger.readers.readers[MAIN_LINE, claimer]
                lease_end_ms = reader.heard_ms + reader.lease_ms
                holds.append(Hold(session_id, ledger.moment_of(lease_end_ms, now_ms), 0))
        return HoldsTold(holds)

    def of(self, token: bytes) -> HeldSession:
        """The session held by this token; refused when it is no longer held."""
        held = self._table.held(token, self._ledger.steady_ms)
        if held is None:
            raise Refused(SESSION_LOCK_LOST, SESSION_LOST_TEXT)
        return held

    # Accepting.

    def _need_to_accept(self, command: AcceptSession, now_ms: int) -> Need | None:
        """A named session is held without a read; the next free session must have messages to hand
        out.
        """
        table = self._table
        if command.session_id is not None or table.is_full() or self._is_outdated(command):
            return None
        key = table.first_known()
        if key is None:
            if not table.has_tail:
                return None
            return NeedSessions(table.end, count_max=self._ledger.bounds.sessions_page_max)
        fed = self._fed
        if fed is not None and fed.key == key and fed.line.has_unexpired(now_ms):
            return None
        return self._need_messages(key, NO_SESSION, table.new_line(has_tail=True))

    def need_more(self, token: bytes, line: Line) -> NeedSession:
        """The next messages of a held session."""
        held = self._table.by_token(token)
        assert held is not None
        return self._need_messages(held.session_id, token, line)

    def _need_messages(self, session_id: str, token: bytes, line: Line) -> NeedSession:
        return NeedSession(
            session_id,
            line.end,
            token,
            count_max=self._ledger.bounds.session_window_count_max,
            bytes_max=line.bytes_max,
        )

    def candidate_in(self, key: str, line: Line, now_ms: int) -> None:
        """Take over a free session with its first messages; a session without messages is no
        candidate.
        """
        expired = line.take_expired(now_ms)
        if expired:
            self._ledger.expire(expired)
        if len(line) > 0:
            self._fed = Candidate(key, line)
        elif not line.has_tail:
            self._table.forget(key)

    def _accept(self, command: AcceptSession, now_ms: int) -> SessionAccepted | NoSession:
        session_id = command.session_id
        if self._is_outdated(command):
            raise Refused(
                REPARTITIONING, "The entity is being repartitioned: accept the session again."
            )
        if command.sharing:
            return self._take_over(session_id, command, now_ms)
        if session_id is not None:
            # Check before any change: a refusal must leave everything as it is.
            self._check_free(session_id)
            if self._is_left_by_all():
                return NoSession()
            self._make_free(session_id, now_ms)
            has_messages = self._ledger.counters.lines[MAIN_LINE].count > 0
            line = self._table.new_line(has_messages)
            return self._grant(session_id, line, command, now_ms)
        candidate = self._candidate
        if candidate is None or self._table.is_full() or not candidate.line.has_unexpired(now_ms):
            return NoSession()
        return self._grant(candidate.spelling(), candidate.line, command, now_ms)

    def _is_outdated(self, command: AcceptSession) -> bool:
        """Whether the caller does not know that the fragment is of a former map."""
        return self._seal.is_sealed and not command.is_former

    def _is_left_by_all(self) -> bool:
        """Whether the fragment is sealed, gets no more messages, and has no message and no state of
        any session.

        Then it never gets any of a session that nobody holds here.
        """
        counters = self._ledger.counters
        main = counters.lines[MAIN_LINE]
        messages = main.count + main.deferred + main.scheduled
        return self._seal.is_final and messages + counters.states + len(self._promised) == 0

    def _check_free(self, session_id: str) -> None:
        table, steady_ms = self._table, self._ledger.steady_ms
        held = table.named(session_id)
        if held is not None and held.deadline_ms() > steady_ms:
            raise Refused(
                SESSION_CANNOT_BE_LOCKED,
                f"The requested session '{session_id}' cannot be accepted: "
                "it is locked by another receiver.",
            )
        claimer = table.claimer(session_id)
        if claimer is not None:
            raise Refused(
                SESSION_CANNOT_BE_LOCKED,
                f"The requested session '{session_id}' cannot be accepted: reader '{claimer}' has "
                "claimed messages of it. Try again when its claims are completed or released.",
            )
        if table.is_full() and table.overdue(steady_ms) is None:
            raise Refused(
                SERVER_BUSY,
                f"Fragment {self._fragment_number} has {table.held_count()} locked sessions, "
                "its maximum: close some of them, or try again later.",
            )

    def _make_free(self, session_id: str, now_ms: int) -> None:
        """End the overdue holds that are in the way; other overdue holds end later."""
        table = self._table
        held = table.named(session_id)
        if held is not None:
            self._end(held, now_ms)
        if table.is_full():
            overdue = table.overdue(self._ledger.steady_ms)
            assert overdue is not None, "the check before found room for one more hold"
            self._end(overdue, now_ms)

    def _grant(
        self, session_id: str, line: Line, command: AcceptSession, now_ms: int
    ) -> SessionAccepted:
        ledger = self._ledger
        token = self._new_token(command)
        batch = LockBatch(self._new_deadline_ms(), [], is_session=True)
        shared = b"" if command.sharing is None else token
        held = HeldSession(session_id, token, line, batch, shared)
        held.is_joint = command.is_former
        self._table.hold(held)
        return SessionAccepted(session_id, token, ledger.moment_of(held.told_ms(), now_ms))

    def _new_deadline_ms(self) -> int:
        return self._ledger.steady_ms + self._ledger.rules.lock_ms + SESSION_GRACE_MS

    def _take_over(
        self, session_id: str | None, command: AcceptSession, now_ms: int
    ) -> SessionAccepted:
        """Pass a shared hold on to the client that presents its token."""
        if session_id is None:
            raise Refused(
                INVALID_ARGUMENT,
                "A lock token is of one session: name the session that is to be taken over.",
            )
        ledger = self._ledger
        held = self._table.named(session_id)
        if held is None or held.deadline_ms() <= ledger.steady_ms:
            raise Refused(
                SESSION_LOCK_LOST,
                f"The session '{session_id}' cannot be taken over: no receiver holds it any more. "
                "Accept it without a lock token.",
            )
        if held.shared != command.sharing:
            raise Refused(
                SESSION_CANNOT_BE_LOCKED,
                f"The requested session '{session_id}' cannot be accepted: it is locked by another "
                "receiver, and the lock token is not the one of that lock.",
            )
        token = self._new_token(command)
        self._table.pass_on(held, session_id, token)
        self._table.renew(held, self._new_deadline_ms())
        return SessionAccepted(session_id, token, ledger.moment_of(held.told_ms(), now_ms))

    def _new_token(self, command: AcceptSession) -> bytes:
        self._ledger.lock_counter += 1
        return lock_token(self._fragment_number, self._ledger.lock_counter, command.token_seed)

    # Renewing and releasing.

    def _renew(self, command: RenewSession, now_ms: int) -> Renewed:
        held = self.of(command.session)
        self._table.renew(held, self._new_deadline_ms())
        return Renewed(self._ledger.moment_of(held.told_ms(), now_ms))

    def _release(self, command: ReleaseSession, now_ms: int) -> Done:
        """Release a session by its token, or by the token's seed if the caller never got the
        token.
        """
        token = command.session
        if is_of_seed(token):
            unheard = self._table.of_seed(token)
            token = NO_SESSION if unheard is None else unheard.token
        held = self._table.held(token, self._ledger.steady_ms)
        if held is not None:
            self._ledger.release(self._ledger.locks.end_session(held.batch), now_ms)
            self._table.let_go(held)
        return Done()

    def end_overdue(self, now_ms: int, count_max: int) -> None:
        """End holds whose deadline has come; their locked messages count as failed deliveries.

        Ends at most about `count_max` locks and holds: the next deadline says whether there are
        more.
        """
        steady_ms = self._ledger.steady_ms
        held = self._table.overdue(steady_ms)
        ended = 0
        while held is not None and ended < count_max:
            ended += 1 + held.batch.held
            self._end(held, now_ms)
            held = self._table.overdue(steady_ms)

    def _end(self, held: HeldSession, now_ms: int) -> None:
        entries = self._ledger.locks.end_session(held.batch)
        if entries:
            self._ledger.fail(entries, now_ms, b"", 0)
        self._table.let_go(held)

    # State.

    def _need_to_set_state(self, command: SetState) -> Need | None:
        held = self._table.held(command.session, self._ledger.steady_ms)
        if held is None or held.state_bytes != STATE_UNREAD:
            return None
        return NeedState(held.session_id, held.token)

    def state_in(self, token: bytes, state: bytes | None) -> None:
        """Take over the size of the stored state."""
        held = self._table.by_token(token)
        assert held is not None, "the hold ended while its state was being read"
        held.state_bytes = NO_STATE if state is None else len(state)

    def need_to_set_states(self, commands: list[SetState]) -> Need | None:
        for command in commands:
            need = self._need_to_set_state(command)
            if need is not None:
                return need
        return None

    def _get_state(self, command: GetState) -> SessionState:
        held = self.of(command.session)
        self._check_settled(held)
        # The size of the state is usually unknown before it is read.
        self._ledger.lacking_bytes += self._ledger.rules.state_bytes_max
        return SessionState(held.session_id)

    def set_state(self, command: SetState, now_ms: int) -> Done:
        held = self._checked(command)
        self._replace(held.session_id, command.state, held.state_bytes, now_ms)
        return Done()

    def _checked(self, command: SetState) -> HeldSession:
        held = self.of(command.session)
        self._check_settled(held)
        assert held.state_bytes != STATE_UNREAD, (
            "the size of a state must be read before the state is replaced"
        )
        self._check_state(held, _size_of(command.state))
        return held

    def _replace(self, session_id: str, state: bytes | None, old_bytes: int, now_ms: int) -> None:
        size_bytes = _size_of(state)
        held = self._table.named(session_id)
        if held is not None:
            held.state_bytes = size_bytes
        if size_bytes == NO_STATE and old_bytes == NO_STATE:
            return
        counters = self._ledger.counters
        counters.states += int(size_bytes != NO_STATE) - int(old_bytes != NO_STATE)
        counters.state_bytes += max(size_bytes, 0) - max(old_bytes, 0)
        self._ledger.changes.append(StateChange(session_id, state, now_ms))

    # State that a transaction sets.

    def check_states(self, commands: list[SetState]) -> list[PromisedState]:
        """The states to set, by session. Refused unless all of them can be set."""
        promised: list[PromisedState] = []
        seen: set[bytes] = set()
        for command in commands:
            held = self._checked(command)
            if held.token in seen:
                raise Refused(
                    INVALID_ARGUMENT,
                    f"The transaction sets the state of session '{held.session_id}' twice: "
                    "set it once.",
                )
            seen.add(held.token)
            promised.append(PromisedState(held.session_id, command.state, held.state_bytes))
        return promised

    def promise(self, states: list[PromisedState]) -> None:
        """From now on nobody can read or set these states, whoever holds the sessions."""
        self._promised.update(promised.session_id for promised in states)

    def finish(self, states: list[PromisedState], now_ms: int, *, is_commit: bool) -> None:
        """Set the promised states, whoever holds the sessions now, or drop the promise on
        rollback.
        """
        for promised in states:
            self._promised.discard(promised.session_id)
            if is_commit:
                self._replace(promised.session_id, promised.state, promised.old_bytes, now_ms)

    def _check_settled(self, held: HeldSession) -> None:
        if any(self._table.named(session_id) is held for session_id in self._promised):
            raise Refused(
                SERVER_BUSY,
                f"A transaction that sets the state of session '{held.session_id}' is being "
                "committed. Try again in a moment.",
            )

    def _check_state(self, held: HeldSession, size_bytes: int) -> None:
        size_bytes_max = self._ledger.rules.state_bytes_max
        if size_bytes > size_bytes_max:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The state of session '{held.session_id}' would have {size_bytes} bytes; the "
                f"maximum is {size_bytes_max}.",
            )
        shortage = self._ledger.shortage
        if shortage and size_bytes > max(held.state_bytes, SHORT_STATE_BYTES_MAX):
            raise Refused(QUOTA_EXCEEDED, shortage)
        states = self._ledger.counters.states
        is_new = size_bytes != NO_STATE and held.state_bytes == NO_STATE
        if is_new and states >= self._ledger.bounds.states_max:
            raise Refused(
                QUOTA_EXCEEDED,
                f"Fragment {self._fragment_number} has {states} session states, its maximum: "
                "clear the states of sessions that are finished.",
            )


def _size_of(state: bytes | None) -> int:
    return NO_STATE if state is None else len(state)
