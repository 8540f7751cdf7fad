"""A fragment at a desk: the simplest store that keeps the contract, and a hand that turns pages.

It does what a runner does, at once and in one thread, and checks every change against the contract
of `core.change` on the way.
"""

from typing import Final

from shardbus.core.change import Append, Change, Counters, Remove, Update, new_counters
from shardbus.core.command import (
    Command,
    Delivery,
    FragmentRules,
    Purge,
    Receive,
    Received,
    Reply,
    Send,
    Sent,
    Settle,
    Settled,
    Tick,
)
from shardbus.core.fragment import Fragment
from shardbus.core.limits import DUE_COUNT_MAX, PAGE_BYTES_MAX, PAGE_COUNT_MAX
from shardbus.core.message import ACTIVE, MAIN_LINE, NEVER_MS, SET_ASIDE, Entry, Message

START_MS: Final = 1_000_000
LOCK_MS: Final = 30_000
TURNS_MAX: Final = 10_000


def rules(
    *,
    lock_ms: int = LOCK_MS,
    max_delivery_count: int = 10,
    default_ttl_ms: int = -1,
    dead_letters_on_expiry: bool = False,
    size_bytes_max: int = 1 << 40,
) -> FragmentRules:
    return FragmentRules(
        lock_ms=lock_ms,
        max_delivery_count=max_delivery_count,
        default_ttl_ms=default_ttl_ms,
        dead_letters_on_expiry=dead_letters_on_expiry,
        size_bytes_max=size_bytes_max,
    )


def copy_of(entry: Entry, payload: bytes | None) -> Entry:
    return Entry(
        entry.sequence_number,
        payload,
        entry.size_bytes,
        enqueued_at_ms=entry.enqueued_at_ms,
        expires_at_ms=entry.expires_at_ms,
        delivery_count=entry.delivery_count,
        line=entry.line,
        state=entry.state,
        reason=entry.reason,
        description=entry.description,
        modified=entry.modified,
    )


class Shelf:
    """What was committed, in one dict."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.counters = new_counters()
        self.damaged: set[int] = set()
        self.commits = 0
        self._last_number = 0

    def commit(self, changes: list[Change], counters: Counters) -> None:
        self.commits += 1
        for change in changes:
            if isinstance(change, Append):
                self._append(change.entries)
            elif isinstance(change, Update):
                self._update(change.entries)
            else:
                assert isinstance(change, Remove)
                for number in change.sequence_numbers:
                    del self.entries[number]
        self.counters = counters.copy()

    def _append(self, entries: list[Entry]) -> None:
        assert entries
        for entry in entries:
            assert entry.sequence_number > self._last_number
            self._last_number = entry.sequence_number
            assert entry.payload is not None and len(entry.payload) == entry.size_bytes
            self.entries[entry.sequence_number] = copy_of(entry, entry.payload)

    def _update(self, entries: list[Entry]) -> None:
        for entry in entries:
            kept = self.entries[entry.sequence_number]
            self.entries[entry.sequence_number] = copy_of(entry, kept.payload)

    def line(self, line: int) -> list[Entry]:
        return [
            entry
            for _, entry in sorted(self.entries.items())
            if entry.line == line and entry.state == ACTIVE
        ]

    def page(self, line: int, after: int, count_max: int) -> tuple[list[Entry], list[int], bool]:
        entries: list[Entry] = []
        damaged: list[int] = []
        size_bytes = 0
        for entry in self.line(line):
            if entry.sequence_number <= after:
                continue
            if len(entries) >= count_max or size_bytes >= PAGE_BYTES_MAX:
                return entries, damaged, False
            if entry.sequence_number in self.damaged:
                damaged.append(entry.sequence_number)
            else:
                entries.append(copy_of(entry, entry.payload))
                size_bytes += entry.size_bytes
        return entries, damaged, True

    def payloads(self, numbers: list[int]) -> dict[int, bytes | None]:
        found: dict[int, bytes | None] = {}
        for number in numbers:
            entry = self.entries.get(number)
            found[number] = None if entry is None or number in self.damaged else entry.payload
        return found

    def due(self, now_ms: int) -> tuple[list[Entry], int]:
        waiting = sorted(
            (entry.expires_at_ms, number)
            for number, entry in self.entries.items()
            if entry.expires_at_ms != NEVER_MS
            and entry.line == MAIN_LINE
            and entry.state != SET_ASIDE
        )
        expired = [number for expires_at_ms, number in waiting if expires_at_ms <= now_ms]
        entries = [copy_of(self.entries[number], None) for number in expired[:DUE_COUNT_MAX]]
        return entries, waiting[0][0] if waiting else NEVER_MS


class Desk:
    """One fragment with its shelf and its own time."""

    def __init__(
        self, fragment_rules: FragmentRules | None = None, *, page_count: int = PAGE_COUNT_MAX
    ) -> None:
        self.now_ms = START_MS
        self.rules = fragment_rules or rules()
        self.shelf = Shelf()
        self._page_count = page_count
        self._seed = 0
        self.fragment = self._loaded()

    # Whole conversations.

    def do(self, command: Command) -> Reply:
        """Apply a command as a runner would: pages first, then decide, store, and tidy up."""
        if isinstance(command, Receive | Purge):
            self._read_what_is_lacking(command)
        outcome = self.fragment.apply(command, self.now_ms)
        self._commit(outcome.changes)
        reply = outcome.reply
        if isinstance(reply, Received):
            self._fill(reply.deliveries)
        self.fragment.after_commit()
        self.go_on()
        return reply

    def go_on(self) -> None:
        """Read the pages and the expired messages that the fragment asks for."""
        for _ in range(TURNS_MAX):
            line = self.fragment.wanted_page()
            if line >= 0:
                self.turn_page(line)
            elif self.fragment.wants_due(self.now_ms):
                entries, next_due_ms = self.shelf.due(self.now_ms)
                self._commit(self.fragment.due_in(entries, next_due_ms, self.now_ms))
            else:
                return
        raise AssertionError("the fragment never stops asking")

    def wait(self, ms: int) -> None:
        """Let time pass and the fragment notice."""
        self.now_ms += ms
        self.do(Tick())

    def reload(self) -> None:
        """Forget everything in memory, as after a crash or an unknown commit."""
        self.fragment = self._loaded()

    def turn_page(self, line: int) -> None:
        page = self.shelf.page(line, self.fragment.page_start(line), self._page_count)
        self._commit(self.fragment.page_in(line, *page))

    # Short forms.

    def send(self, *payloads: bytes, ttl_ms: int = -1) -> list[int]:
        reply = self.do(Send([Message(payload, ttl_ms=ttl_ms) for payload in payloads]))
        assert isinstance(reply, Sent)
        return list(range(reply.first, reply.first + reply.count))

    def receive(
        self, count_max: int = 1, *, line: int = MAIN_LINE, is_locking: bool = True
    ) -> list[Delivery]:
        self._seed += 1
        seed = self._seed.to_bytes(8, "big")
        reply = self.do(Receive(line, count_max, is_locking=is_locking, token_seed=seed))
        assert isinstance(reply, Received)
        return reply.deliveries

    def payloads(self, count_max: int = 1, *, line: int = MAIN_LINE) -> list[bytes | None]:
        return [delivery.payload for delivery in self.receive(count_max, line=line)]

    def settle(self, how: int, *deliveries: Delivery, reason: str | None = None) -> list[bool]:
        tokens = [delivery.token for delivery in deliveries]
        reply = self.do(Settle(how, tokens, reason=reason))
        assert isinstance(reply, Settled)
        return reply.lost

    def _loaded(self) -> Fragment:
        _, next_due_ms = self.shelf.due(self.now_ms)
        return Fragment(0, self.rules, self.shelf.counters.copy(), next_due_ms)

    def _commit(self, changes: list[Change]) -> None:
        if changes:
            self.shelf.commit(changes, self.fragment.counters)

    def _read_what_is_lacking(self, command: Receive | Purge) -> None:
        for _ in range(TURNS_MAX):
            if self.fragment.must_page(command.line):
                assert self.fragment.wanted_page() == command.line
                self.turn_page(command.line)
                continue
            if isinstance(command, Purge) or command.is_locking:
                return
            numbers = self.fragment.unread(command.line, command.count_max)
            if not numbers:
                return
            self._commit(self.fragment.payloads_in(command.line, self.shelf.payloads(numbers)))
        raise AssertionError("reading never ends")

    def _fill(self, deliveries: list[Delivery]) -> None:
        numbers = [each.entry.sequence_number for each in deliveries if each.payload is None]
        found = self.shelf.payloads(numbers)
        for delivery in deliveries:
            if delivery.payload is None:
                delivery.payload = found[delivery.entry.sequence_number]
