"""A fragment against the simplest model, whatever happens in whatever order.

Commands, time, pages and reloads interleave freely; after every step the fragment, what it stored
and the model agree.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardbus.core.calendar import DUE_RETRY_MS
from shardbus.core.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    RELEASE,
    Purge,
    Purged,
    Receive,
    Received,
    Renew,
    Renewed,
    Settle,
    Settled,
)
from shardbus.core.errors import MESSAGE_LOCK_LOST, Refused
from shardbus.core.limits import WINDOW_BYTES_MAX, WINDOW_COUNT_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS
from tests.model.core.model import Model, Modelled
from tests.unit.core.desk import Desk, rules

LINES = (MAIN_LINE, DEAD_LETTER_LINE)
LOCK_MS = 5_000
TTLS_MS = (-1, -1, -1, 0, 700, 4_000, 20_000)

lines = st.sampled_from(LINES)
counts = st.integers(min_value=1, max_value=6)
ways = st.sampled_from([COMPLETE, ABANDON, DEAD_LETTER, RELEASE])
choices = st.lists(st.integers(min_value=0, max_value=40), min_size=1, max_size=4)


class FragmentMachine(RuleBasedStateMachine):
    @initialize(
        limit=st.sampled_from([1, 2, 5]),
        dead_letters_on_expiry=st.booleans(),
        page_count=st.sampled_from([1, 2, 3, 1_000]),
    )
    def start(self, limit: int, dead_letters_on_expiry: bool, page_count: int) -> None:
        fragment_rules = rules(
            lock_ms=LOCK_MS,
            max_delivery_count=limit,
            dead_letters_on_expiry=dead_letters_on_expiry,
        )
        self.desk = Desk(fragment_rules, page_count=page_count)
        self.model = Model(limit, dead_letters_on_expiry)
        self.tokens: list[bytes] = []
        self.sent = 0
        self.seeds = 0

    @rule(count=counts, ttl_ms=st.sampled_from(TTLS_MS))
    def send(self, count: int, ttl_ms: int) -> None:
        payloads = [b"%d" % (self.sent + each) for each in range(count)]
        self.sent += count
        expires_at_ms = NEVER_MS if ttl_ms < 0 else self.desk.now_ms + ttl_ms

        numbers = self.desk.send(*payloads, ttl_ms=ttl_ms)

        for number, payload in zip(numbers, payloads, strict=True):
            self.model.messages.append(Modelled(number, payload, expires_at_ms))
        self.see_expiries()

    @rule(line=lines, count_max=counts)
    def receive(self, line: int, count_max: int) -> None:
        for message, delivery in self.handed_out(line, count_max, is_locking=True):
            message.token = delivery
            message.locked_until_ms = self.desk.now_ms + LOCK_MS
            self.tokens.append(delivery)
        self.see_expiries()

    @rule(line=lines, count_max=st.integers(min_value=1, max_value=2), is_purging=st.booleans())
    def remove(self, line: int, count_max: int, is_purging: bool) -> None:
        if is_purging:
            self.purge(line, count_max)
        else:
            self.receive_and_delete(line, count_max)

    def receive_and_delete(self, line: int, count_max: int) -> None:
        for message, token in self.handed_out(line, count_max, is_locking=False):
            assert token == b""
            self.model.forget(message)
        self.see_expiries()

    def handed_out(
        self, line: int, count_max: int, *, is_locking: bool
    ) -> list[tuple[Modelled, bytes]]:
        """What a receive gave: the first available ones, and if not all, more may be had."""
        self.seeds += 1
        seed = self.seeds.to_bytes(8, "big")
        expected = self.model.available(line, self.desk.now_ms)[:count_max]

        reply = self.desk.do(Receive(line, count_max, is_locking=is_locking, token_seed=seed))

        assert isinstance(reply, Received)
        found = [(each.entry.sequence_number, each.payload) for each in reply.deliveries]
        assert found == [(each.number, each.payload) for each in expected[: len(found)]]
        assert len(found) == len(expected) or reply.has_more
        for message, delivery in zip(expected, reply.deliveries, strict=False):
            assert delivery.delivery_count == message.count
        tokens = [delivery.token for delivery in reply.deliveries]
        return list(zip(expected, tokens, strict=False))

    @precondition(lambda self: self.held_tokens() != [])
    @rule(how=ways, chosen=choices)
    def settle_what_is_held(self, how: int, chosen: list[int]) -> None:
        held = self.held_tokens()
        self.settle(how, [held[each % len(held)] for each in chosen])

    @precondition(lambda self: self.tokens != [])
    @rule(how=ways, chosen=choices)
    def settle_what_was_held_once(self, how: int, chosen: list[int]) -> None:
        self.settle(how, self.chosen_tokens(chosen))

    def settle(self, how: int, tokens: list[bytes]) -> None:
        now_ms = self.desk.now_ms
        held = [self.model.held(token, now_ms) for token in tokens]
        is_refused = how == DEAD_LETTER and any(
            each is not None and each.line == DEAD_LETTER_LINE for each in held
        )

        try:
            reply = self.desk.do(Settle(how, tokens, reason="why"))
        except Refused:
            assert is_refused
            return

        assert not is_refused
        assert isinstance(reply, Settled)
        for token, is_lost in zip(tokens, reply.lost, strict=True):
            message = self.model.held(token, now_ms)
            assert is_lost == (message is None)
            if message is not None:
                self.settle_one(how, message)
        self.see_expiries()

    def settle_one(self, how: int, message: Modelled) -> None:
        if how == COMPLETE:
            self.model.forget(message)
        elif how == ABANDON:
            self.model.fail(message, self.desk.now_ms)
        elif how == DEAD_LETTER:
            message.die("why")
        else:
            self.model.give_back(message, self.desk.now_ms)

    @precondition(lambda self: self.tokens != [])
    @rule(chosen=choices)
    def renew(self, chosen: list[int]) -> None:
        tokens = self.chosen_tokens(chosen)
        held = [self.model.held(token, self.desk.now_ms) for token in tokens]

        try:
            reply = self.desk.do(Renew(tokens))
        except Refused as refusal:
            assert refusal.kind is MESSAGE_LOCK_LOST
            assert None in held
            return

        assert isinstance(reply, Renewed)
        for message in held:
            assert message is not None
            message.locked_until_ms = self.desk.now_ms + LOCK_MS

    def purge(self, line: int, count_max: int) -> None:
        expected = self.model.available(line, self.desk.now_ms)[:count_max]

        reply = self.desk.do(Purge(line, count_max))

        assert isinstance(reply, Purged)
        assert reply.count <= len(expected)
        for message in expected[: reply.count]:
            self.model.forget(message)
        self.see_expiries()

    @rule(ms=st.sampled_from([1, 500, 1_500, LOCK_MS - 1, LOCK_MS]), is_noticed=st.booleans())
    def pass_time(self, ms: int, is_noticed: bool) -> None:
        self.desk.now_ms += ms
        if is_noticed:
            self.desk.wait(0)
            self.model.tick(self.desk.now_ms)
            self.see_expiries()

    @rule()
    def look_for_what_expired(self) -> None:
        """However many of them are locked, the others are gone after a retry."""
        self.desk.wait(0)
        self.model.tick(self.desk.now_ms)
        self.desk.wait(DUE_RETRY_MS)
        self.model.tick(self.desk.now_ms)
        self.see_expiries()
        now_ms = self.desk.now_ms
        late = [each for each in self.model.messages if each.is_expired(now_ms)]
        assert all(each.is_locked() for each in late)

    @rule(line=lines)
    def turn_page(self, line: int) -> None:
        self.desk.turn_page(line)

    @rule()
    def reload(self) -> None:
        self.desk.reload()
        for message in self.model.locked():
            message.unlock()

    def held_tokens(self) -> list[bytes]:
        now_ms = self.desk.now_ms
        return [each.token for each in self.model.locked() if each.locked_until_ms > now_ms]

    def chosen_tokens(self, chosen: list[int]) -> list[bytes]:
        """Tokens of now and of long ago, and one that nobody ever had."""
        known = [b"never given out!", *self.tokens]
        return [known[-(each % len(known))] for each in chosen]

    def see_expiries(self) -> None:
        """Expired messages leave when the fragment comes to it; never before, never otherwise."""
        for message in list(self.model.messages):
            if message.is_locked() or not message.is_expired(self.desk.now_ms):
                continue
            stored = self.desk.shelf.entries.get(message.number)
            if stored is None or stored.line == DEAD_LETTER_LINE:
                self.model.expire(message)

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        stored = [
            (entry.sequence_number, entry.line, entry.delivery_count, entry.payload, entry.reason)
            for _, entry in sorted(self.desk.shelf.entries.items())
        ]

        assert stored == [
            (each.number, each.line, each.count, each.payload, each.reason)
            for each in self.model.messages
        ]

    @invariant()
    def the_counters_are_those_of_the_model(self) -> None:
        for counters in (self.desk.fragment.counters, self.desk.shelf.counters):
            for line in LINES:
                held = [each for each in self.model.messages if each.line == line]
                assert counters.lines[line].count == len(held)
                size_bytes = sum(len(each.payload) for each in held)
                assert counters.lines[line].size_bytes == size_bytes
        assert self.desk.fragment.locked() == len(self.model.locked())

    @invariant()
    def every_waiting_message_is_reachable_exactly_once(self) -> None:
        for number in LINES:
            line = self.desk.fragment._lines[number]
            front = line.front(1 << 30)
            in_memory = [entry.sequence_number for entry in front]
            waiting = [
                each.number
                for each in self.model.messages
                if each.line == number and not each.is_locked()
            ]
            assert in_memory == [each for each in waiting if each <= line.end]
            assert line.has_tail or in_memory == waiting
            assert len(line) == len(front) <= 2 * WINDOW_COUNT_MAX
            read = [entry.size_bytes for entry in front if entry.payload is not None]
            assert line.size_bytes == sum(read) <= 2 * WINDOW_BYTES_MAX

    def teardown(self) -> None:
        """In the end everything comes out, once and in order."""
        if not hasattr(self, "desk"):
            return
        self.desk.wait(1_000_000)
        self.model.tick(self.desk.now_ms)
        self.see_expiries()
        for line in LINES:
            expected = [each.payload for each in self.model.available(line, self.desk.now_ms)]
            received: list[bytes | None] = []
            while deliveries := self.desk.receive(3, line=line):
                received += [delivery.payload for delivery in deliveries]
                self.desk.settle(COMPLETE, *deliveries)
            assert received == expected
        assert self.desk.shelf.entries == {}


# A planted bug need only be found; making its example small can take minutes.
PHASES = [Phase.generate] if os.environ.get("MUTANT") else list(Phase)

TestFragment = FragmentMachine.TestCase
TestFragment.settings = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    phases=PHASES,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
