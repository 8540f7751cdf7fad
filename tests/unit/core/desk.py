"""A fragment at a desk: the memory store behind it, and a hand that turns pages.

It does what a runner does, at once and in one thread, and checks every change against the contract
of `core.fragment.change` on the way.
"""

from collections.abc import Sequence
from typing import Final

from shardbus.broker.fragment.reading import Reading, feed, load, read_lacking
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import (
    Adopt,
    Append,
    AppendReserved,
    Change,
    Counters,
    Remove,
    Update,
)
from shardbus.core.fragment.command import Command, FragmentRules, Reply, Tick
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.fragment.handover import unpacked
from shardbus.core.fragment.need import Need
from shardbus.core.limits import PAGE_BYTES_MAX, PAGE_COUNT_MAX, SESSION_GRACE_MS
from shardbus.core.message import MAIN_LINE, NEVER_MS, Entry, Message, sooner
from shardbus.core.messages.command import (
    NO_SESSION,
    Delivery,
    Receive,
    Received,
    ReceiveDeferred,
    Send,
    Sent,
    Settle,
    Settled,
)
from shardbus.core.sessions.command import AcceptSession, SessionAccepted, SessionState
from shardbus.core.stages.command import PublishOn
from shardbus.stores.base.store import FragmentCommit, FragmentId
from shardbus.stores.memory.store import MemoryFragment, MemoryStore
from tests.unit.core.story import Story

START_MS: Final = 1_000_000
LOCK_MS: Final = 30_000
HELD_MS: Final = LOCK_MS + SESSION_GRACE_MS
"""After this a session is free."""
STEADY_BEHIND_MS: Final = 765_432
TURNS_MAX: Final = 10_000
FRAGMENT: Final = FragmentId(1, 0)


def rules(  # noqa: PLR0913 - a record, all by keyword
    *,
    lock_ms: int = LOCK_MS,
    delivery_count_max: int = 10,
    default_ttl_ms: int = -1,
    dead_letters_on_expiration: bool = False,
    size_bytes_max: int = 1 << 40,
    requires_session: bool = False,
    duplicate_window_ms: int = 0,
    is_partitioned: bool = False,
    state_bytes_max: int = 1_000,
    is_topic: bool = False,
    lifecycle: bool = False,
) -> FragmentRules:
    return FragmentRules(
        lock_ms=lock_ms,
        delivery_count_max=delivery_count_max,
        default_ttl_ms=default_ttl_ms,
        dead_letters_on_expiration=dead_letters_on_expiration,
        size_bytes_max=size_bytes_max,
        requires_session=requires_session,
        duplicate_window_ms=duplicate_window_ms,
        is_partitioned=is_partitioned,
        state_bytes_max=state_bytes_max,
        is_topic=is_topic,
        lifecycle=lifecycle,
    )


class Shelf:
    """What was committed, each change checked against its contract."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.store.create([FRAGMENT])
        self.commits = 0
        self._last_number = 0

    @property
    def kept(self) -> MemoryFragment:
        return self.store._fragments[FRAGMENT]

    @property
    def entries(self) -> dict[int, Entry]:
        return self.kept.entries

    @property
    def counters(self) -> Counters:
        return self.kept.counters

    @property
    def damaged(self) -> set[int]:
        return self.kept.damaged

    @damaged.setter
    def damaged(self, numbers: set[int]) -> None:
        self.kept.damaged = numbers

    def commit(self, changes: list[Change], counters: Counters) -> None:
        self.commits += 1
        known = set(self.entries)
        for change in changes:
            if isinstance(change, Append):
                self._check_new(change.entries)
                known.update(entry.sequence_number for entry in change.entries)
            elif isinstance(change, Adopt):
                self._check_adopted(change)
            elif isinstance(change, AppendReserved):
                assert known.isdisjoint(entry.sequence_number for entry in change.entries)
                known.update(entry.sequence_number for entry in change.entries)
            elif isinstance(change, Update):
                assert known.issuperset(entry.sequence_number for entry in change.entries)
            elif isinstance(change, Remove):
                assert known.issuperset(change.sequence_numbers)
                known.difference_update(change.sequence_numbers)
        self.store.commit([FragmentCommit(FRAGMENT, changes, counters)])

    def _check_adopted(self, change: Adopt) -> None:
        """What is adopted may not be touched by the same commit, so it is not known yet."""
        assert change.first > self._last_number
        self._last_number = change.last()
        payloads = self.kept.payloads[change.stage, change.piece]
        assert len(payloads) == change.count
        assert len(change.expires_at_ms) in (1, change.count)

    def _check_new(self, entries: list[Entry]) -> None:
        assert entries
        for entry in entries:
            assert entry.sequence_number > self._last_number
            self._last_number = entry.sequence_number
            assert entry.payload is not None and len(entry.payload) == entry.size_bytes


class Desk:
    """One fragment with its shelf and its own time."""

    def __init__(
        self,
        fragment_rules: FragmentRules | None = None,
        *,
        page_count: int = PAGE_COUNT_MAX,
        bounds: Bounds | None = None,
        is_batching: bool = False,
    ) -> None:
        """With `is_batching`, changes wait for `flush`, or until something must be read."""
        self.now_ms = START_MS
        self.rules = fragment_rules or rules()
        self.shelf = Shelf()
        self._story = Story()
        self._bounds = bounds or Bounds(page_count_max=page_count)
        self._is_batching = is_batching
        # Without, whoever uses the desk says when the next bite is sent.
        self.publishes_on = True
        self._pending: list[Change] = []
        self._seed = 0
        self._set_by_ms = STEADY_BEHIND_MS
        self.fragment = self._loaded()

    # Whole conversations.

    def do(self, command: Command) -> Reply:
        """Apply a command as a runner would: read first, then decide, store, and tidy up."""
        self._read_what_is_lacking(command)
        outcome = self.fragment.apply(command, self.now_ms, self.steady_ms)
        self._check_lacking(command, outcome.reply)
        self._pending += outcome.changes
        while self.fragment.is_unfinished:
            self._pending += self.fragment.decide_on(self._bounds.admitted_max)
        self._pending += self.fragment.tickets.changes()
        if not self._is_batching or not self.is_pending() or _is_lacking(outcome.reply):
            self._commit()
            self._fill(outcome.reply)
            self.fragment.after_commit()
            self.go_on()
        return outcome.reply

    def is_pending(self) -> bool:
        return len(self._pending) > 0

    def flush(self) -> None:
        """Store what waits, and go on as after every commit."""
        self._commit()
        self.fragment.after_commit()
        self.go_on()

    def feed(self, need: Need) -> None:
        """Read what the fragment needs and let it take that over."""
        self._commit()
        reading = Reading(FRAGMENT, need)
        while (found := reading.step(self.shelf.store)) is None:
            pass
        self._pending += feed(self.fragment, need, found, self.now_ms)
        self._commit()

    def go_on(self) -> None:
        """Read the pages and the due messages that the fragment asks for, and send what is being
        published.
        """
        for _ in range(TURNS_MAX):
            page = self.fragment.reads.wanted()
            if page is not None:
                self.feed(page)
            elif self.fragment.is_publishing and self.publishes_on:
                self.publish_on()
            elif self.fragment.wants_due(self.now_ms):
                self._read_due()
            else:
                return
        raise AssertionError("the fragment never stops asking")

    def publish_on(self) -> None:
        """Send and store the next bite of what is being published."""
        command = PublishOn()
        self._read_what_is_lacking(command)
        self._pending += self.fragment.apply(command, self.now_ms, self.steady_ms).changes
        while self.fragment.is_unfinished:
            self._pending += self.fragment.decide_on(self._bounds.admitted_max)
        self._commit()
        self.fragment.after_commit()

    def wait(self, ms: int) -> None:
        """Let time pass and the fragment notice."""
        self.now_ms += ms
        self.do(Tick())

    def reload(self) -> None:
        """Forget everything in memory, as after a crash or an unknown commit."""
        self._pending = []
        self.fragment = self._loaded()

    def move(self, steady_by_ms: int = 0) -> None:
        """Go on in another process with the locks and holds of this one; its steady clock reads
        something else.
        """
        self.flush()
        data = self.fragment.hand_over(self.steady_ms).packed()
        self._set_by_ms -= steady_by_ms
        self.reload()
        handed = unpacked(data)
        entries = self.shelf.store.read_entries(FRAGMENT, handed.numbers(), bytes_max=0)
        self.fragment.take_over(handed, entries, self.steady_ms)

    def turn_page(self, line: int) -> None:
        self.feed(self.fragment.reads.page(line))

    # Short forms.

    def send(
        self,
        *payloads: bytes,
        ttl_ms: int = -1,
        session_id: str | None = None,
        scheduled_at_ms: int = NEVER_MS,
    ) -> list[int]:
        return self.send_all(
            [
                Message(
                    payload,
                    ttl_ms=ttl_ms,
                    session_id=session_id,
                    scheduled_at_ms=scheduled_at_ms,
                )
                for payload in payloads
            ]
        ).numbers()

    def send_all(self, messages: Sequence[Message]) -> Sent:
        reply = self.do(Send(list(messages)))
        assert isinstance(reply, Sent)
        return reply

    def receive(
        self,
        count_max: int = 1,
        *,
        line: int = MAIN_LINE,
        is_locking: bool = True,
        session: bytes = NO_SESSION,
    ) -> list[Delivery]:
        command = Receive(
            line, count_max, is_locking=is_locking, token_seed=self.seed(), session=session
        )
        reply = self.do(command)
        assert isinstance(reply, Received)
        return reply.deliveries

    def receive_deferred(
        self,
        *numbers: int,
        line: int = MAIN_LINE,
        is_locking: bool = True,
        session: bytes = NO_SESSION,
    ) -> list[Delivery]:
        command = ReceiveDeferred(
            line, list(numbers), is_locking=is_locking, token_seed=self.seed(), session=session
        )
        reply = self.do(command)
        assert isinstance(reply, Received)
        return reply.deliveries

    def payloads(
        self, count_max: int = 1, *, line: int = MAIN_LINE, session: bytes = NO_SESSION
    ) -> list[bytes | None]:
        deliveries = self.receive(count_max, line=line, session=session)
        return [delivery.payload for delivery in deliveries]

    def settle(
        self,
        how: int,
        *deliveries: Delivery,
        reason: str | None = None,
        modified: bytes = b"",
        delay_ms: int = 0,
    ) -> list[bool]:
        tokens = [delivery.token for delivery in deliveries]
        reply = self.do(Settle(how, tokens, reason=reason, modified=modified, delay_ms=delay_ms))
        assert isinstance(reply, Settled)
        return reply.lost

    def accept(self, session_id: str | None = None) -> SessionAccepted:
        reply = self.do(AcceptSession(session_id, self.seed()))
        assert isinstance(reply, SessionAccepted)
        return reply

    def wake_at_ms(self) -> int:
        """When time has something to do, by the wall clock, if that is not set again."""
        deadline_ms = self.fragment.deadline_ms()
        if deadline_ms != NEVER_MS:
            deadline_ms += self.now_ms - self.steady_ms
        return sooner(self.fragment.due_at_ms(), deadline_ms)

    @property
    def steady_ms(self) -> int:
        """What a clock reads that is never set; by that alone nobody can tell what time it is."""
        return self.now_ms - self._set_by_ms

    def set_clock(self, by_ms: int) -> None:
        """The wall clock jumps, forward or back; no time passes."""
        self.now_ms += by_ms
        self._set_by_ms += by_ms

    def seed(self) -> bytes:
        self._seed += 1
        return self._seed.to_bytes(8, "big")

    def _loaded(self) -> Fragment:
        loaded = load(self.shelf.store, FRAGMENT, self.rules.duplicate_window_ms, self.now_ms)
        image = loaded.image
        fragment = Fragment(
            FRAGMENT.number,
            self.rules,
            image.counters,
            image.next_due_ms,
            loaded.history,
            self._bounds,
            records=image.records,
            loaded_at_ms=self.now_ms,
            steady_ms=self.steady_ms,
        )
        self._story.listen(fragment, self.now_ms, self.steady_ms)
        return fragment

    def _commit(self) -> None:
        if self._pending:
            self._pending += self.fragment.records()
            self.shelf.commit(self._pending, self.fragment.counters)
            self._story.check(self.fragment, self._pending, self.shelf.kept)
            self._pending = []

    def deliver(self, entries: list[Entry]) -> list[Change]:
        """Take over and store what a topic has published; returns the changes."""
        changes = self.fragment.deliver(entries)
        self._pending += changes
        self._commit()
        return changes

    def _read_what_is_lacking(self, command: Command) -> None:
        for _ in range(TURNS_MAX):
            need = self.fragment.need(command, self.now_ms, self.steady_ms)
            if need is None:
                return
            self.feed(need)
        raise AssertionError("reading never ends")

    def _read_due(self) -> None:
        due = self.shelf.store.read_due(
            FRAGMENT,
            now_ms=self.now_ms,
            count_max=self.fragment.due_count_max(),
            bytes_max=PAGE_BYTES_MAX,
            claimed=self.fragment.claims(),
        )
        self._pending += self.fragment.due_in(
            due.entries, due.damaged, due.next_due_ms, self.now_ms
        )
        self._commit()

    def _check_lacking(self, command: Command, reply: Reply) -> None:
        """A receive leaves no more to be read than is read at once, unless it is one message."""
        if isinstance(command, Receive) and isinstance(reply, Received):
            unread = [each.entry for each in reply.deliveries if each.payload is None]
            size_bytes = sum(entry.size_bytes for entry in unread)
            assert len(unread) <= 1 or size_bytes <= self._bounds.page_bytes_max

    def _fill(self, reply: Reply) -> None:
        if isinstance(reply, Received):
            unread = [d for d in reply.deliveries if d.payload is None]
            numbers = [delivery.entry.sequence_number for delivery in unread]
            lacking = read_lacking(self.shelf.store, FRAGMENT, numbers, [])
            for delivery in unread:
                delivery.payload = lacking.payloads[delivery.entry.sequence_number]
        elif isinstance(reply, SessionState):
            states = read_lacking(self.shelf.store, FRAGMENT, [], [reply.session_id]).states
            reply.state = states[reply.session_id].state


def _is_lacking(reply: Reply) -> bool:
    """Whether the store must be asked before the reply can be given."""
    if isinstance(reply, Received):
        return any(delivery.payload is None for delivery in reply.deliveries)
    return isinstance(reply, SessionState)
