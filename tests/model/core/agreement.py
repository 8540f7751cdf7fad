"""A fragment beside its model: what must agree after every step, and how time and crashes pass."""

import copy

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shardbus.core.errors import (
    Refused,
)
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.command import Command, Reply
from shardbus.core.fragment.line import Line
from shardbus.core.limits import SESSION_GRACE_MS
from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    SCHEDULED,
    SESSIONS,
)
from shardbus.core.messages.command import COMPLETE, NO_SESSION
from shardbus.core.properties import unpack
from shardbus.core.sessions.command import AcceptSession, NoSession, ReleaseSession, SessionAccepted
from tests.model.core.model import Model, is_same
from tests.model.core.replay import counted, replayed
from tests.unit.core.desk import Desk, rules

LINES = (MAIN_LINE, DEAD_LETTER_LINE)
NAMES = ("a", "b", "c", "d", "e", "f", "g")
LOCK_MS = 5_000
HELD_MS = LOCK_MS + SESSION_GRACE_MS
WINDOW_MS = 6_000
REMEMBERED_MAX = 12
HELD_MAX = 4
RUNS_MAX = 6

lines = st.sampled_from(LINES)


class AgreeingMachine(RuleBasedStateMachine):
    requires_session = False
    records_lifecycle = False
    # Whether what is published in bites is sent as soon as it can be.
    publishes_on = True

    @initialize(
        limit=st.sampled_from([1, 2, 5]),
        dead_letters_on_expiration=st.booleans(),
        detects_duplicates=st.booleans(),
        is_batching=st.booleans(),
        is_small=st.booleans(),
    )
    def start(
        self,
        limit: int,
        dead_letters_on_expiration: bool,
        detects_duplicates: bool,
        is_batching: bool,
        is_small: bool,
    ) -> None:
        fragment_rules = rules(
            lock_ms=LOCK_MS,
            delivery_count_max=limit,
            dead_letters_on_expiration=dead_letters_on_expiration,
            requires_session=self.requires_session,
            duplicate_window_ms=WINDOW_MS if detects_duplicates else 0,
            lifecycle=self.records_lifecycle,
        )
        self.bounds = _small_bounds() if is_small else _large_bounds()
        self.detects_duplicates = detects_duplicates
        self.desk = Desk(fragment_rules, bounds=self.bounds, is_batching=is_batching)
        self.desk.publishes_on = self.publishes_on
        self.model = Model(limit, dead_letters_on_expiration)
        self.stored = copy.deepcopy(self.model)
        self.tokens: list[bytes] = []
        self.holds: list[bytes] = []
        self.once_deferred: list[int] = []
        self.sent = 0
        self.commits = 0

    @invariant()
    def the_records_tell_the_state(self) -> None:
        """P8"""
        if not self.records_lifecycle:
            return
        fragment = self.desk.fragment
        told = replayed(self.desk.shelf.kept.stages, [fragment._journal._rows])
        assert told.counts() == counted(fragment)
        assert len(told.locked) == fragment.locked()
        assert told.duplicates == fragment.counters.duplicates

    # Time, pages, commits and crashes.

    @rule(
        ms=st.sampled_from([1, 500, 1_500, LOCK_MS - 1, LOCK_MS, HELD_MS]), is_noticed=st.booleans()
    )
    def pass_time(self, ms: int, is_noticed: bool) -> None:
        self.desk.now_ms += ms
        if is_noticed:
            self.model.tick(self.desk.now_ms)
            self.desk.wait(0)
            self.settle_down()

    @rule(line=lines)
    def turn_page(self, line: int) -> None:
        if line == MAIN_LINE and self.requires_session:
            return
        self.flush()
        if self.desk.fragment._lines[line].is_low():
            self.desk.turn_page(line)

    @rule()
    def flush(self) -> None:
        self.desk.flush()
        self.settle_down()

    @rule()
    def crash(self) -> None:
        """What was not committed is gone, and so are locks and holds."""
        if self.desk.is_pending():
            self.model = copy.deepcopy(self.stored)
        self.model.crash(self.desk.now_ms)
        self.desk.reload()
        self.flush()

    @rule(steady_by_ms=st.sampled_from([0, 12_345, 1_000_000]))
    def move(self, steady_by_ms: int) -> None:
        """Another broker goes on: locks and holds last as long as they would have, whatever the
        steady clock of there reads.
        """
        self.flush()
        self.desk.move(steady_by_ms)
        self.model.load(self.desk.now_ms)
        self.flush()

    def ask(self, command: Command) -> Reply | Refused:
        try:
            return self.desk.do(command)
        except Refused as refusal:
            # What was read for it may have stored what waited.
            self.flush()
            return refusal

    def settle_down(self) -> None:
        """A step ends with all of it stored, or with nothing of it stored.

        What expired leaves with a command that comes upon it, or when the fragment goes on.
        """
        has_stored = self.desk.shelf.commits != self.commits
        if self.desk.is_pending() and (has_stored or self.model.has_expired(self.desk.now_ms)):
            self.desk.flush()
        if not self.desk.is_pending():
            self.model.settle_due(self.desk.now_ms)
            self.stored = copy.deepcopy(self.model)
        self.commits = self.desk.shelf.commits

    # What is true after every step.

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        if self.desk.is_pending():
            return
        stored = [
            (
                entry.sequence_number,
                entry.line,
                entry.state,
                entry.delivery_count,
                entry.payload,
                entry.reason,
                entry.session_id,
                entry.enqueued_at_ms,
                entry.expires_at_ms,
                entry.delayed_until_ms,
                unpack(entry.modified),
            )
            for _, entry in sorted(self.desk.shelf.entries.items())
        ]

        assert stored == [
            (
                each.number,
                each.line,
                each.state,
                each.count,
                each.payload,
                each.reason,
                each.session_id,
                each.enqueued_at_ms,
                each.expires_at_ms,
                each.delayed_until_ms,
                each.modified,
            )
            for each in self.model.messages
        ]
        states = {name: kept[0] for name, kept in self.desk.shelf.kept.states.items()}
        assert states == self.model.states

    @invariant()
    def the_counters_are_those_of_the_model(self) -> None:
        known = [self.desk.fragment.counters]
        if not self.desk.is_pending():
            known.append(self.desk.shelf.counters)
        for counters in known:
            for line in LINES:
                held = [each for each in self.model.messages if each.line == line]
                states = [each.state for each in held]
                assert counters.lines[line].count == states.count(ACTIVE)
                assert counters.lines[line].deferred == states.count(DEFERRED)
                waiting = states.count(SCHEDULED) + states.count(DELAYED)
                assert counters.lines[line].scheduled == waiting
                size_bytes = sum(len(each.payload) for each in held)
                assert counters.lines[line].size_bytes == size_bytes
            assert counters.states == len(self.model.states)
            assert counters.state_bytes == sum(map(len, self.model.states.values()))
            assert counters.duplicates == self.model.duplicates
        assert self.desk.fragment.locked() == len(self.model.locked())
        assert self.desk.fragment.held_sessions() == len(self.model.holds)

    @invariant()
    def every_waiting_message_is_reachable_exactly_once(self) -> None:
        for number in LINES:
            line = self.desk.fragment._lines[number]
            if number == MAIN_LINE and self.requires_session:
                assert len(line) == 0 and not line.has_tail
            else:
                self.check_window(line, number, None)
                assert len(line) <= 2 * self.bounds.window_count_max
                assert line.size_bytes <= 2 * self.bounds.window_bytes_max
        sessions = self.desk.fragment._sessions
        for hold in [] if sessions is None else self.model.holds:
            assert sessions is not None
            held = sessions.by_token(hold.token)
            assert held is not None
            self.check_window(held.line, MAIN_LINE, hold.session_id)
            assert len(held.line) <= 2 * self.bounds.session_window_count_max

    def check_window(self, line: Line, number: int, session_id: str | None) -> None:
        front = line.front(1 << 30)
        in_memory = [entry.sequence_number for entry in front]
        waiting = [
            each.number
            for each in self.model.messages
            if each.line == number
            and each.state == ACTIVE
            and not each.is_taken()
            and (number != MAIN_LINE or is_same(each.session_id, session_id))
        ]
        assert in_memory == [each for each in waiting if each <= line.end]
        assert line.has_tail or in_memory == waiting
        assert len(line) == len(front)
        read = [entry.size_bytes for entry in front if entry.payload is not None]
        assert line.size_bytes == sum(read)

    @invariant()
    def every_free_session_with_messages_will_be_found(self) -> None:
        table = self.desk.fragment._sessions
        if table is None:
            return
        assert len(table._known) <= self.bounds.sessions_known_max
        for name in NAMES:
            active = [
                each.number
                for each in self.model.messages
                if is_same(each.session_id, name)
                and each.line == MAIN_LINE
                and each.state == ACTIVE
            ]
            if not active or self.model.holder(name) is not None:
                continue
            if self.model.claimer(name) is not None:
                continue
            is_ahead = table.has_tail and (min(active) > table.end or table._must_restart)
            assert name in table._known or is_ahead

    def teardown(self) -> None:
        """In the end everything comes out, once and in order."""
        if not hasattr(self, "desk"):
            return
        self.flush()
        self.desk.now_ms += 1_000_000
        self.model.tick(self.desk.now_ms)
        self.desk.wait(0)
        self.flush()
        self.fetch_deferred()
        for line in LINES:
            if line == MAIN_LINE and self.requires_session:
                self.drain_sessions()
            else:
                expected = self.model.available(line, None, self.desk.now_ms)
                self.drain(line, NO_SESSION, [each.payload for each in expected])
        assert self.desk.shelf.entries == {}

    def fetch_deferred(self) -> None:
        for message in [each for each in self.model.messages if each.state == DEFERRED]:
            token = NO_SESSION
            if message.line == MAIN_LINE and message.session_id is not None:
                token = self.desk.accept(message.session_id).token
            [delivery] = self.desk.receive_deferred(
                message.number, line=message.line, session=token
            )
            assert delivery.payload == message.payload
            self.desk.settle(COMPLETE, delivery)
            self.model.forget(message)
            if token:
                self.desk.do(ReleaseSession(token))

    def drain_sessions(self) -> None:
        while self.desk.fragment.is_ready(SESSIONS):
            accepted = self.desk.do(AcceptSession(None, self.desk.seed()))
            if isinstance(accepted, NoSession):
                break
            assert isinstance(accepted, SessionAccepted)
            waiting = self.model.available(MAIN_LINE, accepted.session_id, self.desk.now_ms)
            self.drain(MAIN_LINE, accepted.token, [each.payload for each in waiting])
            self.desk.do(ReleaseSession(accepted.token))

    def drain(self, line: int, session: bytes, expected: list[bytes]) -> None:
        received: list[bytes | None] = []
        while deliveries := self.desk.receive(3, line=line, session=session):
            received += [delivery.payload for delivery in deliveries]
            self.desk.settle(COMPLETE, *deliveries)
        assert received == expected
        self.desk.flush()


def _small_bounds() -> Bounds:
    return Bounds(
        window_count_max=4,
        window_bytes_max=40,
        window_count_low=2,
        page_count_max=2,
        page_bytes_max=5,
        due_count_max=2,
        locks_max=12,
        sessions_held_max=HELD_MAX,
        sessions_known_max=2,
        sessions_page_max=2,
        session_window_count_max=2,
        session_window_bytes_max=20,
        remembered_max=REMEMBERED_MAX,
        claim_runs_max=RUNS_MAX,
        stages_max=2,
        admitted_max=2,
        whole_count_max=3,
        bite_count_max=2,
        producers_max=1,
    )


def _large_bounds() -> Bounds:
    return Bounds(
        sessions_held_max=HELD_MAX,
        remembered_max=REMEMBERED_MAX,
        whole_count_max=6,
        bite_count_max=3,
    )
