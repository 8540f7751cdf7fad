"""What transactions schedule, cancel and set, against a model of what should be there (R22)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shardbus.core.errors import MESSAGE_NOT_FOUND, SERVER_BUSY, SESSION_LOCK_LOST, Refused
from shardbus.core.fragment.command import Command, Reply
from shardbus.core.message import MAIN_LINE, SCHEDULED, Message
from shardbus.core.messages.command import COMPLETE, Cancel, Sent
from shardbus.core.sessions.command import GetState, SessionState, SetState
from shardbus.core.transactions.command import Decide, Enlist, Finish, Prepare, Transact, Work
from tests.unit.core.desk import HELD_MS, Desk, rules

DELAYS_MS = (-1, 0, 1_000, 5_000, 60_000)
TRANSACTIONS = (b"t1", b"t2")
SESSIONS = ("a", "b")
# Due messages that nobody may touch are looked at again after a second.
LOOK_AGAIN_MS = 1_000

delays = st.sampled_from(DELAYS_MS)
transactions = st.sampled_from(TRANSACTIONS)
several = st.integers(0, 2)


def asked(desk: Desk, command: Command) -> Reply | Refused:
    try:
        return desk.do(command)
    except Refused as refusal:
        return refusal


class ScheduleMachine(RuleBasedStateMachine):
    """Scheduled messages by number, those that transactions have promised, and what has come."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.scheduled: dict[int, tuple[bytes, int]] = {}
        self.promised: dict[bytes, Work] = {}
        self.come: list[bytes] = []
        self.numbers: list[int] = []
        self.sent = 0

    def pinned(self) -> set[int]:
        return {number for work in self.promised.values() for number in work.cancelled}

    def new_message(self, delay_ms: int) -> Message:
        self.sent += 1
        return Message(b"%d" % self.sent, scheduled_at_ms=self.desk.now_ms + delay_ms)

    def work(self, data: st.DataObject) -> Work:
        """Some messages under new numbers, and some numbers to cancel, whatever has them."""
        work = Work([], [])
        messages = [self.new_message(data.draw(delays)) for _ in range(data.draw(several))]
        if messages:
            given = self.desk.do(Enlist(Work([], []), len(messages)))
            assert isinstance(given, Sent) and not set(given.numbers()) & set(self.numbers)
            self.numbers += given.numbers()
            work.scheduled = list(zip(given.numbers(), messages, strict=True))
        if self.numbers:
            chosen = st.lists(st.sampled_from(self.numbers), max_size=2, unique=True)
            work.cancelled = data.draw(chosen)
        return work

    def is_possible(self, work: Work) -> bool:
        free = self.scheduled.keys() - self.pinned()
        return all(number in free for number in work.cancelled)

    def done(self, work: Work) -> None:
        for number in work.cancelled:
            self.scheduled.pop(number, None)
        for number, message in work.scheduled:
            if message.scheduled_at_ms > self.desk.now_ms:
                self.scheduled[number] = (message.payload, message.scheduled_at_ms)
            else:
                self.come.append(message.payload)

    def activate(self) -> None:
        pinned = self.pinned()
        for number, (payload, at_ms) in list(self.scheduled.items()):
            if at_ms <= self.desk.now_ms and number not in pinned:
                del self.scheduled[number]
                self.come.append(payload)

    def answered(self, reply: Reply | Refused, *, is_possible: bool) -> None:
        if is_possible:
            assert not isinstance(reply, Refused), reply.message
        else:
            assert isinstance(reply, Refused) and reply.kind is MESSAGE_NOT_FOUND

    @rule(delay_ms=delays)
    def send(self, delay_ms: int) -> None:
        message = self.new_message(delay_ms)
        [number] = self.desk.send_all([message]).numbers()
        self.numbers.append(number)
        work = Work([], [])
        work.scheduled.append((number, message))
        self.done(work)

    @rule(data=st.data(), is_decided=st.booleans())
    def transact(self, data: st.DataObject, is_decided: bool) -> None:
        work = self.work(data)
        is_possible = self.is_possible(work)
        self.sent += 1
        decide = Decide(b"d%d" % self.sent, work, [(9, 9)])
        self.answered(
            asked(self.desk, decide if is_decided else Transact(work)), is_possible=is_possible
        )
        if is_possible:
            self.done(work)

    @rule(data=st.data(), transaction_id=transactions)
    def prepare(self, data: st.DataObject, transaction_id: bytes) -> None:
        if transaction_id in self.promised:
            return
        work = self.work(data)
        is_possible = self.is_possible(work)
        command = Prepare(transaction_id, work, (9, 9), 10_000)
        self.answered(asked(self.desk, command), is_possible=is_possible)
        if is_possible:
            self.promised[transaction_id] = work

    @rule(transaction_id=transactions, is_commit=st.booleans())
    def finish(self, transaction_id: bytes, is_commit: bool) -> None:
        self.desk.do(Finish(transaction_id, is_commit=is_commit))
        work = self.promised.pop(transaction_id, None)
        if work is not None and is_commit:
            self.done(work)
        # What is late because it was promised comes at once.
        self.activate()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.numbers:
            return
        work = Work([], [])
        work.cancelled = [data.draw(st.sampled_from(self.numbers))]
        is_possible = self.is_possible(work)
        self.answered(asked(self.desk, Cancel(work.cancelled)), is_possible=is_possible)
        if is_possible:
            self.done(work)

    @rule(ms=st.sampled_from([1, 1_000, 5_000, 60_000]))
    def pass_time(self, ms: int) -> None:
        for each_ms in (ms, LOOK_AGAIN_MS, LOOK_AGAIN_MS):
            self.desk.wait(each_ms)
            self.activate()

    @rule()
    def restart(self) -> None:
        self.desk.reload()
        self.pass_time(1)

    @rule()
    def receive(self) -> None:
        """All that has come, each message once."""
        self.pass_time(1)
        deliveries = self.desk.receive(1_000)
        assert sorted(str(each.payload) for each in deliveries) == sorted(map(str, self.come))
        self.desk.settle(COMPLETE, *deliveries)
        self.come = []

    @invariant()
    def what_is_scheduled_is_stored(self) -> None:
        found = {
            number: (entry.payload, entry.scheduled_at_ms())
            for number, entry in self.desk.shelf.entries.items()
            if entry.state == SCHEDULED
        }
        assert found == self.scheduled
        assert self.desk.shelf.counters.lines[MAIN_LINE].scheduled == len(found)


class StateMachine(RuleBasedStateMachine):
    """The states of two sessions, and those that transactions have promised."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(rules(requires_session=True))
        self.states: dict[str, bytes | None] = dict.fromkeys(SESSIONS)
        self.promised: dict[bytes, tuple[str, bytes | None]] = {}
        self.tokens: dict[str, bytes] = {}

    def is_promised(self, session_id: str) -> bool:
        return any(name == session_id for name, _ in self.promised.values())

    def expected(self, session_id: str, reply: Reply | Refused) -> bool:
        """Whether it was done; that it was refused, and why, is what the model says."""
        if session_id not in self.tokens:
            assert isinstance(reply, Refused) and reply.kind is SESSION_LOCK_LOST
            return False
        if self.is_promised(session_id):
            assert isinstance(reply, Refused) and reply.kind is SERVER_BUSY
            return False
        assert not isinstance(reply, Refused), reply.message
        return True

    @rule(session_id=st.sampled_from(SESSIONS))
    def accept(self, session_id: str) -> None:
        if session_id not in self.tokens:
            self.tokens[session_id] = self.desk.accept(session_id).token

    @rule(
        session_id=st.sampled_from(SESSIONS),
        state=st.none() | st.binary(max_size=5),
        how=st.sampled_from(["set", "transact", "prepare"]),
        transaction_id=transactions,
    )
    def set_state(
        self, session_id: str, state: bytes | None, how: str, transaction_id: bytes
    ) -> None:
        if how == "prepare" and transaction_id in self.promised:
            return
        command = SetState(self.tokens.get(session_id, bytes(16)), state)
        work = Work([], [])
        work.states.append(command)
        if how == "prepare":
            reply = asked(self.desk, Prepare(transaction_id, work, (9, 9), 10_000))
            if self.expected(session_id, reply):
                self.promised[transaction_id] = (session_id, state)
            return
        reply = asked(self.desk, command if how == "set" else Transact(work))
        if self.expected(session_id, reply):
            self.states[session_id] = state

    @rule(session_id=st.sampled_from(SESSIONS))
    def read(self, session_id: str) -> None:
        reply = asked(self.desk, GetState(self.tokens.get(session_id, bytes(16))))
        if self.expected(session_id, reply):
            assert isinstance(reply, SessionState) and reply.state == self.states[session_id]

    @rule(transaction_id=transactions, is_commit=st.booleans())
    def finish(self, transaction_id: bytes, is_commit: bool) -> None:
        self.desk.do(Finish(transaction_id, is_commit=is_commit))
        session_id, state = self.promised.pop(transaction_id, ("", None))
        if session_id and is_commit:
            self.states[session_id] = state

    @rule()
    def lose_sessions(self) -> None:
        self.desk.wait(HELD_MS)
        self.tokens = {}

    @rule()
    def restart(self) -> None:
        self.desk.reload()
        self.tokens = {}

    @invariant()
    def states_are_stored_and_counted(self) -> None:
        kept = {name: state for name, (state, _, _) in self.desk.shelf.kept.states.items()}
        expected = {name: state for name, state in self.states.items() if state is not None}
        assert kept == expected
        counters = self.desk.shelf.counters
        size_bytes = sum(map(len, expected.values()))
        assert (counters.states, counters.state_bytes) == (len(expected), size_bytes)


TestSchedule = ScheduleMachine.TestCase
TestState = StateMachine.TestCase
TestSchedule.settings = settings(stateful_step_count=40)
TestState.settings = settings(stateful_step_count=40)
