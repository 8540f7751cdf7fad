"""The commands about sessions, beside all the others, each checked against the model."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from shardbus.core.errors import (
    NOT_ALLOWED,
    SERVER_BUSY,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    Refused,
)
from shardbus.core.message import (
    MAIN_LINE,
    Message,
)
from shardbus.core.messages.command import COMPLETE, Done, Renewed, Send, Settle
from shardbus.core.sessions.command import (
    SHARED,
    AcceptSession,
    GetState,
    NoSession,
    ReleaseSession,
    RenewSession,
    SessionAccepted,
    SessionState,
    SetState,
)
from tests.model.core.agreement import LOCK_MS, NAMES
from tests.model.core.machine import FragmentMachine, choice, counts, names, ways
from tests.model.core.model import Hold


class SessionMachine(FragmentMachine):
    """The same, and the commands about sessions."""

    requires_session = True

    @rule()
    def send_without_a_session(self) -> None:
        reply = self.ask(Send([Message(b"ok", session_id="a"), Message(b"none")]))

        assert isinstance(reply, Refused) and reply.kind is NOT_ALLOWED

    @rule(session_id=names, is_shared=st.booleans())
    def accept(self, session_id: str, is_shared: bool = False) -> None:
        # As a runner does before commands: accepting ends only the holds that are in its way.
        self.pass_time(0, is_noticed=True)
        now_ms = self.desk.now_ms

        sharing = SHARED if is_shared else None
        reply = self.ask(AcceptSession(session_id, self.desk.seed(), sharing))

        if isinstance(reply, Refused):
            if reply.kind is SESSION_CANNOT_BE_LOCKED:
                hold = self.model.holder(session_id)
                is_held = hold is not None and hold.until_ms() > now_ms
                assert is_held or self.model.claimer(session_id) is not None
            else:
                assert reply.kind is SERVER_BUSY
                held = [hold for hold in self.model.holds if hold.until_ms() > now_ms]
                assert len(held) >= self.bounds.sessions_held_max
            return
        self.model.end_overdue(now_ms)
        assert self.model.holder(session_id) is None and self.model.claimer(session_id) is None
        assert isinstance(reply, SessionAccepted) and reply.session_id == session_id
        self.take_hold(reply)
        if is_shared:
            self.model.holds[-1].shared = reply.token
        self.settle_down()

    @rule(session_id=names, chosen=choice, is_right=st.booleans())
    def take_over(self, session_id: str, chosen: int, is_right: bool) -> None:
        self.pass_time(0, is_noticed=True)
        now_ms = self.desk.now_ms
        if is_right and not any(hold.shared for hold in self.model.holds):
            self.accept(session_id, True)
        known = [hold for hold in self.model.holds if hold.shared is not None]
        token = known[chosen % len(known)].shared if known else None
        if is_right and known:
            session_id = known[chosen % len(known)].session_id.upper()
        hold = self.model.holder(session_id)

        reply = self.ask(AcceptSession(session_id, self.desk.seed(), token or b"of nobody"))

        if hold is None or hold.until_ms() <= now_ms:
            assert isinstance(reply, Refused) and reply.kind is SESSION_LOCK_LOST
            return
        if token is None or hold.shared != token:
            assert isinstance(reply, Refused) and reply.kind is SESSION_CANNOT_BE_LOCKED
            return
        assert isinstance(reply, SessionAccepted) and reply.session_id == session_id
        assert reply.locked_until_ms == now_ms + LOCK_MS
        former = hold.token
        hold.session_id, hold.token, hold.told_ms = session_id, reply.token, now_ms + LOCK_MS
        self.holds.append(reply.token)
        locked = [each.token for each in self.model.messages if each.hold is hold]
        refused = self.ask(Settle(COMPLETE, locked, session=former))
        assert isinstance(refused, Refused) and refused.kind is SESSION_LOCK_LOST
        self.settle_down()

    def hold_one(self, session_id: str) -> None:
        self.accept(session_id)

    @rule(is_topped_up=st.booleans())
    def wait_for_a_session(self, is_topped_up: bool) -> None:
        if is_topped_up:
            self.top_up_sessions()
        self.accept_next()

    def top_up_sessions(self) -> None:
        if not self.model.free_sessions(self.desk.now_ms):
            for name in NAMES[:4]:
                self.send(2, name, None, -1, 0)

    def accept_next(self) -> None:
        self.pass_time(0, is_noticed=True)
        now_ms = self.desk.now_ms
        is_full = len(self.model.holds) >= self.bounds.sessions_held_max
        free = self.model.free_sessions(now_ms)

        reply = self.ask(AcceptSession(None, self.desk.seed()))

        self.model.end_overdue(now_ms)
        if isinstance(reply, NoSession):
            assert is_full or not free
        else:
            assert isinstance(reply, SessionAccepted) and not is_full
            assert reply.session_id in free
            self.take_hold(reply)
        self.settle_down()

    def take_hold(self, accepted: SessionAccepted) -> None:
        assert accepted.locked_until_ms == self.desk.now_ms + LOCK_MS
        hold = Hold(accepted.session_id, accepted.token, accepted.locked_until_ms)
        self.model.holds.append(hold)
        self.holds.append(accepted.token)

    @rule(chosen=choice)
    def renew_session(self, chosen: int) -> None:
        token = self.chosen_hold(chosen)
        hold = self.model.hold_of(token, self.desk.now_ms)

        reply = self.ask(RenewSession(token))

        if isinstance(reply, Refused):
            assert reply.kind is SESSION_LOCK_LOST and hold is None
            return
        assert hold is not None and isinstance(reply, Renewed)
        hold.told_ms = reply.locked_until_ms
        assert hold.told_ms == self.desk.now_ms + LOCK_MS
        self.settle_down()

    @rule(chosen=choice)
    def release_session(self, chosen: int) -> None:
        self.let_go(self.chosen_hold(chosen))

    def let_go(self, token: bytes) -> None:
        hold = self.model.hold_of(token, self.desk.now_ms)

        assert isinstance(self.ask(ReleaseSession(token)), Done)

        if hold is not None:
            self.model.release(hold, self.desk.now_ms)
        self.settle_down()

    @rule(chosen=choice, state=st.one_of(st.none(), st.binary(max_size=4)))
    def set_state(self, chosen: int, state: bytes | None) -> None:
        token = self.chosen_hold(chosen)
        hold = self.model.hold_of(token, self.desk.now_ms)

        reply = self.ask(SetState(token, state))

        if isinstance(reply, Refused):
            assert reply.kind is SESSION_LOCK_LOST and hold is None
            return
        assert hold is not None
        self.model.states.pop(hold.session_id.lower(), None)
        if state is not None:
            self.model.states[hold.session_id.lower()] = state
        self.settle_down()

    @rule(chosen=choice)
    def get_state(self, chosen: int) -> None:
        token = self.chosen_hold(chosen)
        hold = self.model.hold_of(token, self.desk.now_ms)

        reply = self.ask(GetState(token))

        if isinstance(reply, Refused):
            assert reply.kind is SESSION_LOCK_LOST and hold is None
            return
        assert hold is not None and isinstance(reply, SessionState)
        assert reply.state == self.model.states.get(hold.session_id.lower())
        self.settle_down()

    @rule(
        session_id=st.one_of(st.none(), names),
        count_max=counts,
        how=st.one_of(st.none(), ways),
        delay_ms=st.sampled_from([0, 400, 2_500]),
        is_released=st.booleans(),
    )
    def serve(
        self,
        session_id: str | None,
        count_max: int,
        how: int | None,
        delay_ms: int,
        is_released: bool,
    ) -> None:
        """What receivers of sessions do all day: accept, receive, settle, let go."""
        held = len(self.model.holds)
        self.top_up_sessions()
        if session_id is None:
            self.accept_next()
        else:
            self.accept(session_id)
        if len(self.model.holds) <= held:
            return
        hold = self.model.holds[-1]
        self.receive_with(MAIN_LINE, count_max, hold.token, True)
        tokens = [each.token for each in self.model.messages if each.hold is hold]
        if tokens and how is not None:
            self.settle(how, tokens, {}, delay_ms)
        if is_released:
            self.let_go(hold.token)
