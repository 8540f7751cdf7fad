"""The fragment: one ordered slice of an entity, as a pure state machine.

`apply` decides, a large decision in several steps. The caller makes all its changes durable at once
and only then passes the reply on. Locks, session holds and the windows of waiting messages live in
memory alone. A Fragment whose changes could not be committed must be thrown away and loaded from
the store again.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.declared import (
    FAMILIES,
    OF_LIFECYCLE,
    OF_READERS,
    OF_SEALING,
    OF_SESSIONS,
    OF_STAGES,
    OF_TICKETS,
    OF_TRANSACTIONS,
    OF_TRANSFERS,
    Asked,
)
from shardbus.core.errors import MESSAGE_LOCK_LOST, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.calendar import Calendar
from shardbus.core.fragment.change import Change, Counters, Update
from shardbus.core.fragment.command import (
    Command,
    Configure,
    FragmentRules,
    Reply,
    RunnerCommand,
    SetAside,
    Tick,
)
from shardbus.core.fragment.entrance import Entrance
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.handover import HandOver, handed_over, take_over
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.line import Line
from shardbus.core.fragment.need import Need
from shardbus.core.fragment.store_reads import StoreReads
from shardbus.core.fragment.supply import Supply
from shardbus.core.lifecycle import rows as events
from shardbus.core.lifecycle.journal import opened
from shardbus.core.lifecycle.telling import Telling
from shardbus.core.limits import DEFERRED_COUNT_MAX, LOCKS_ENDED_MAX
from shardbus.core.message import (
    MAIN_LINE,
    NEVER_MS,
    SESSIONS,
    Entry,
    sooner,
)
from shardbus.core.messages.command import (
    NO_SESSION,
    AboutMessages,
    Cancel,
    Delivery,
    Done,
    Purge,
    Purged,
    Receive,
    Received,
    ReceiveDeferred,
    ReceiveNumbered,
    Renew,
    Renewed,
    Send,
    Settle,
)
from shardbus.core.messages.deferred import check_bytes, check_locks, find_deferred
from shardbus.core.messages.duplicate_history import History
from shardbus.core.messages.numbered import take_numbered
from shardbus.core.messages.purging import purge
from shardbus.core.messages.settling import LOCK_LOST_TEXT, Settling
from shardbus.core.readers.claiming import Claiming
from shardbus.core.readers.record import ReaderStanding
from shardbus.core.runs import Runs
from shardbus.core.sealing.seal import FragmentSeal
from shardbus.core.sequence import check_numbers, lock_token
from shardbus.core.sessions.holding import NoHolds, SessionHolds, not_received_so
from shardbus.core.sessions.table import HeldSession
from shardbus.core.stages.staging import Staging
from shardbus.core.transactions.committing import FragmentTransactions
from shardbus.core.transfers.transferring import Transfers

# The handler of the commands that the fragment decides itself.
_NOBODY: Final = Handler()


@final
class Outcome:
    """The result of a command: the changes to commit, then the reply to give."""

    def __init__(self, changes: list[Change], reply: Reply) -> None:
        self.changes = changes
        self.reply = reply


@final
class Fragment:
    """One fragment with its lines: main, dead-letter and transfer dead-letter.

    `reads` takes over what was read from the store; `tickets` adds its own changes to a commit.

    Every call gets two readings of time: `now_ms` of the wall clock, for moments, and `steady_ms`
    of a clock that is never set, for durations. With NEVER_MS as `steady_ms` both are `now_ms`.
    """

    def __init__(  # noqa: PLR0913 - what it was when it was stored, and its bounds
        self,
        number: int,
        rules: FragmentRules,
        counters: Counters,
        next_due_ms: int,
        history: History | None = None,
        bounds: Bounds | None = None,
        records: dict[tuple[int, bytes], bytes] | None = None,
        loaded_at_ms: int = NEVER_MS,
        steady_ms: int = NEVER_MS,
    ) -> None:
        self.number = number
        self.counters = counters
        self._bounds = Bounds() if bounds is None else bounds
        self._ledger = Ledger(rules, counters, next_due_ms, self._bounds)
        self._read_clock(loaded_at_ms, steady_ms)
        self._locks = self._ledger.locks
        self._lines = self._ledger.lines
        self._sessions = self._ledger.sessions
        kept = {} if records is None else records
        known = History() if history is None else history
        self._entrance = Entrance(number, self._ledger, known, kept, loaded_at_ms)
        self._holds: SessionHolds | None = None
        if self._sessions is not None:
            self._holds = SessionHolds(number, self._ledger, self._sessions, self.seal)
        self.tickets = self._entrance.tickets
        self._calendar = Calendar(number, self._ledger)
        self._settling = Settling(self._ledger)
        self._supply = Supply(self._ledger)
        self._staging = Staging(number, self._ledger, self._entrance, self._supply, kept)
        ledger = self._ledger
        self._transactions = FragmentTransactions(
            ledger, self._supply, self._entrance, self._settling, self._staging, self._holds, kept
        )
        transfers = Transfers(number, ledger, self._supply, self._entrance, kept, loaded_at_ms)
        self._readers = self._ledger.readers
        self._readers.load(kept, self._ledger.steady_ms)
        self._claiming = Claiming(number, self._ledger, self._supply, self.seal)
        self.reads = StoreReads(self._ledger, self._supply, self._holds, self._claiming.sessions)
        self._handlers = [_NOBODY] * FAMILIES
        self._handlers[OF_SESSIONS] = NoHolds() if self._holds is None else self._holds
        self._handlers[OF_TRANSACTIONS] = self._transactions
        self._handlers[OF_TRANSFERS] = transfers
        self._handlers[OF_TICKETS] = self._entrance
        self._handlers[OF_READERS] = self._claiming
        self._handlers[OF_STAGES] = self._staging
        self._handlers[OF_SEALING] = self._transactions.sealing
        self._delivered: list[Entry] = []
        self._journal = opened(kept, loaded_at_ms, self._ledger.steady_ms, is_on=rules.lifecycle)
        self._ledger.journal = self._journal if rules.lifecycle else None
        self._handlers[OF_LIFECYCLE] = Telling(self._journal, self._supply)
        # How often changes were stored since it was loaded: unless this rises, no count changes.
        self.commits = 0

    def need(self, command: Command, now_ms: int, steady_ms: int = NEVER_MS) -> Need | None:
        """What must be read from the store and taken over before this command can be applied.

        Call it again after each read until it returns None, then apply the command before any
        other.
        """
        self._read_clock(now_ms, steady_ms)
        if isinstance(command, AboutMessages):
            return self.reads.need(command)
        return self._handler(command).need(command, now_ms)

    def _read_clock(self, now_ms: int, steady_ms: int) -> None:
        self._ledger.steady_ms = now_ms if steady_ms == NEVER_MS else steady_ms
        if self._ledger.journal is not None:
            self._ledger.journal.at_ms = now_ms

    def apply(self, command: Command, now_ms: int, steady_ms: int = NEVER_MS) -> Outcome:
        """Decide a command. `Refused` means that nothing has changed."""
        self._read_clock(now_ms, steady_ms)
        self._ledger.changes = []
        self.reads.begin()
        reply = self._decide(command, now_ms)
        return Outcome(self._ledger.changes, reply)

    @property
    def is_unfinished(self) -> bool:
        """Whether the last decision is too large for one step: see `decide_on`."""
        return self._staging.is_publishing

    @property
    def is_publishing(self) -> bool:
        """Whether stages are being published: each `PublishOn` sends the next part of them."""
        return self._staging.is_under_way

    def decide_on(self, count_max: int) -> list[Change]:
        """Take the next step of the last decision, for up to `count_max` messages; 0 ends it here.

        The changes are stored together with those of the command, before any other command. The
        reply stays the same.
        """
        self._ledger.changes = []
        self._staging.publish_on(count_max)
        return self._ledger.changes

    def _decide(self, command: Command, now_ms: int) -> Reply:
        if isinstance(command, Send):
            return self._entrance.send(command, now_ms)
        if isinstance(command, Receive):
            return self._receive(command, now_ms)
        if isinstance(command, Settle):
            return self._settling.settle(command, now_ms)
        if isinstance(command, Renew):
            return self._renew(command, now_ms)
        if isinstance(command, ReceiveDeferred):
            return self._receive_deferred(command, now_ms)
        if isinstance(command, ReceiveNumbered):
            return self._receive_numbered(command, now_ms)
        if isinstance(command, Cancel):
            numbers = command.sequence_numbers
            return self._transactions.scheduled.cancel(numbers, self._supply.entries)
        if isinstance(command, Purge):
            return self._purge(command, now_ms)
        if isinstance(command, (SetAside, Configure, Tick)):
            return self._decide_for_runner(command, now_ms)
        return self._handler(command).decide(command, now_ms)

    def _handler(self, command: Asked) -> Handler:
        return self._handlers[command.FAMILY]

    def _decide_for_runner(self, command: RunnerCommand, now_ms: int) -> Reply:
        if isinstance(command, SetAside):
            return Purged(self._ledger.set_taken_aside(command.sequence_numbers))
        if isinstance(command, Configure):
            return self.configure(command.rules)
        return self._tick(now_ms)

    def receive_beside(
        self, command: Receive, now_ms: int, steady_ms: int = NEVER_MS
    ) -> Received | None:
        """Answer a locking receive while removals are being stored; None: it must wait its turn.

        Such a receive changes nothing that is stored, so it may run during a commit. It must wait
        when it would reach an expired message, or one whose payload only the store has.
        """
        self._read_clock(now_ms, steady_ms)
        line = self.reads.line(command.line, command.session)
        if line is None or not command.is_locking:
            return None
        count_max = min(command.count_max, self._bounds.locks_max - len(self._locks))
        front = line.front(count_max) if count_max > 0 else []
        for entry in front:
            if entry.payload is None or entry.is_expired(now_ms):
                return None
        return self._receive(command, now_ms) if front else None

    # What the runner asks between commands.

    def configure(self, rules: FragmentRules) -> Done:
        """Replace the rules. Whether sessions are required cannot change."""
        assert rules.requires_session == (self._sessions is not None)
        self._ledger.rules = rules
        self._journal.switch(self._ledger.steady_ms, is_on=rules.lifecycle)
        self._ledger.journal = self._journal if rules.lifecycle else None
        return Done()

    def deadline_ms(self) -> int:
        """When `Tick` has something to do, by the steady clock; NEVER_MS if nothing is pending."""
        at_ms = sooner(self._locks.next_deadline_ms(), self._readers.deadline_ms)
        at_ms = sooner(at_ms, sooner(self._entrance.deadline_ms, self._calendar.deadline_ms))
        at_ms = sooner(at_ms, self._staging.deadline_ms)
        if self._sessions is not None:
            at_ms = sooner(at_ms, self._sessions.next_deadline_ms())
        return sooner(at_ms, self._journal.deadline_ms)

    def due_at_ms(self) -> int:
        """When `due_in` has something to do, by the wall clock; NEVER_MS if nothing is pending."""
        return self._ledger.next_due_ms

    def is_ready(self, line: int) -> bool:
        """Whether a receive on this line would find something, in memory or in the store.

        For SESSIONS: whether a session that nobody holds has, or may have, active messages.
        """
        if line == SESSIONS:
            sessions = self._sessions
            return sessions is not None and sessions.is_free_one() and not sessions.is_full()
        return self._is_line_ready(self._lines[line])

    def is_session_ready(self, token: bytes) -> bool:
        """Whether a receive in this session would find a message, or find that the session is
        lost.
        """
        held = None if self._sessions is None else self._sessions.by_token(token)
        if held is None or self._sessions is None:
            return True
        if len(self._locks) >= self._bounds.locks_max:
            # Locks that other holders release make it ready too, and nothing reports those here.
            self._sessions.stir(token)
        return self._is_line_ready(held.line)

    def stirred(self) -> list[bytes]:
        """The tokens of sessions that may have become ready since the last call."""
        return [] if self._sessions is None else self._sessions.stirred()

    def _is_line_ready(self, line: Line) -> bool:
        return (len(line) > 0 or line.has_tail) and len(self._locks) < self._bounds.locks_max

    def locked(self) -> int:
        return len(self._locks)

    def claims(self) -> Runs | None:
        """The numbers of the messages that readers have claimed, if any: time does not change
        those.
        """
        return self._readers.held if self._readers.held.count else None

    def reader_standings(self) -> list[ReaderStanding]:
        """How far each reader is behind; messages that it has claimed count as active."""
        return self._readers.standings(self.counters)

    @property
    def seal(self) -> FragmentSeal:
        return self._entrance.seal

    def size_bytes(self) -> int:
        """What the fragment holds, staged messages included."""
        return self.counters.total_bytes() + self._ledger.staged_bytes

    @property
    def arrived(self) -> int:
        """How many messages have come since the fragment was loaded."""
        return self._ledger.arrived

    @property
    def departed(self) -> int:
        """How many messages have gone since the fragment was loaded."""
        return self._ledger.departed

    def oldest_ms(self) -> int:
        """When the first unlocked message of the main line was enqueued; NEVER_MS when it is not in
        memory.
        """
        first = self._lines[MAIN_LINE].first()
        return NEVER_MS if first is None else first.enqueued_at_ms

    def held_sessions(self) -> int:
        return 0 if self._sessions is None else self._sessions.held_count()

    def after_commit(self) -> None:
        """Drop the payloads of delivered messages from memory: the store still has them."""
        for entry in self._delivered:
            if self._locks.is_locked(entry.sequence_number):
                entry.payload = None
        self._delivered = []
        self._ledger.lacking_bytes = 0
        self.commits += 1

    def lacks_much(self) -> bool:
        """Whether the replies so far lack as much as one read brings: they must be completed
        first.
        """
        return self._ledger.lacking_bytes >= self._bounds.lacking_bytes_max

    def wants_due(self, now_ms: int) -> bool:
        """Whether due messages should be read from the store now."""
        return NEVER_MS < self._ledger.next_due_ms <= now_ms

    def due_count_max(self) -> int:
        return self._calendar.count_max()

    def due_in(
        self, entries: list[Entry], damaged: list[Entry], next_due_ms: int, now_ms: int
    ) -> list[Change]:
        """Expire and activate the due messages that were read while no command was applied."""
        self._ledger.changes = []
        self._journal.at_ms = now_ms
        self.reads.begin()
        self._calendar.turn(entries, damaged, next_due_ms, now_ms)
        return self._ledger.changes

    # The lifecycle of messages.

    def records(self) -> list[Change]:
        """The changes that store the events since the last call; for every commit, at its end."""
        if self._ledger.shortage:
            return self._journal.give_up(self._ledger.steady_ms)
        return self._journal.take()

    # Another broker goes on with it.

    def hand_over(self, steady_ms: int) -> HandOver:
        """The locks and holds there are, after everything was stored; nothing is asked after."""
        self._ledger.steady_ms = steady_ms
        return handed_over(self._ledger)

    def take_over(self, handed: HandOver, entries: list[Entry | None], steady_ms: int) -> None:
        """Go on with locks and holds from elsewhere, before anything else is asked.

        `entries` are the messages that `handed.numbers()` names, as the store has them.
        """
        self._ledger.steady_ms = steady_ms
        take_over(self._ledger, handed, entries)

    # Topics and their subscriptions.

    def published(self) -> list[Entry]:
        """The messages of a topic that became active since the last call, for its subscriptions.

        They are stored nowhere until a commit has the copies and this fragment's counters.
        """
        published, self._ledger.published = self._ledger.published, []
        return published

    def number_copies(self, count: int) -> int:
        """Reserve `count` sequence numbers; returns the first. A subscription may get several
        copies of one message, and only the first copy has the message's own number.
        """
        return self._entrance.number_copies(count)

    def is_full(self) -> bool:
        """Whether the next send is refused because of the fragment's size."""
        return self._entrance.is_full()

    def note_subscribed(self, size_bytes: int) -> None:
        """Note how many bytes the subscriptions of this topic hold: they count towards its size."""
        self._ledger.subscribed_bytes = size_bytes

    def note_shortage(self, reason: str) -> None:
        """Note why the store accepts no additions ("" when it does). While there is a reason,
        commands that add to the store are refused; messages can still be received, settled and
        removed.
        """
        self._ledger.shortage = reason

    def deliver(self, entries: list[Entry]) -> list[Change]:
        """Take over copies that the topic's fragment published, with the numbers it gave them.

        The numbers ascend, also from one delivery to the next, except those of earlier messages
        with which a subscription is filled. Nothing is refused: a copy that cannot be received
        becomes a dead letter, and so does a copy that comes with a reason.
        """
        self._ledger.changes = []
        self.reads.begin()
        self._entrance.deliver(entries)
        return self._ledger.changes

    # Receiving.

    def _receive(self, command: Receive, now_ms: int) -> Received:
        line = self.reads.line(command.line, command.session)
        if line is None:
            raise not_received_so(command.session)
        room = self._bounds.locks_max - len(self._locks)
        if command.is_locking:
            entries = self._ledger.take_to_lock(line, min(command.count_max, room), now_ms)
        else:
            entries = self._ledger.take(line, command.count_max, now_ms)
        if command.session == NO_SESSION:
            self._supply.want(command.line)
        if command.is_locking:
            deliveries = self._lock(
                entries, command.session, command.token_seed, now_ms, command.receiver
            )
        else:
            deliveries = self._hand_out(self._with_payload(entries))
        return Received(deliveries, self.seal.is_left(line) or self._is_line_ready(line))

    def _lock(
        self,
        entries: list[Entry],
        session: bytes,
        token_seed: bytes,
        now_ms: int,
        receiver: str = "",
    ) -> list[Delivery]:
        held: HeldSession | None = None
        deadline_ms = self._ledger.steady_ms + self._ledger.rules.lock_ms
        if session != NO_SESSION and self._holds is not None:
            held = self._holds.of(session)
        told_ms = deadline_ms if held is None else held.told_ms()
        locked_until_ms = self._ledger.moment_of(told_ms, now_ms)
        deliveries: list[Delivery] = []
        tokens: list[bytes] = []
        counter = self._ledger.lock_counter
        for entry in entries:
            counter += 1
            token = lock_token(self.number, counter, token_seed)
            tokens.append(token)
            deliveries.append(
                Delivery(entry, entry.payload, entry.delivery_count, token, locked_until_ms)
            )
        self._ledger.lock_counter = counter
        if entries and held is not None:
            self._locks.hold_in_session(held.batch, entries, tokens)
        elif entries:
            self._locks.hold(entries, tokens, deadline_ms)
        self._delivered += entries
        if self._ledger.journal is not None:
            self._ledger.journal.locked(entries, receiver, self._ledger.steady_ms)
        return deliveries

    def _hand_out(self, entries: list[Entry]) -> list[Delivery]:
        """The deliveries of a receive-and-delete: the messages are removed before they are handed
        over.
        """
        self._ledger.forget(entries, events.RECEIVE)
        return [Delivery(entry, entry.payload, entry.delivery_count, b"", 0) for entry in entries]

    def _with_payload(self, entries: list[Entry]) -> list[Entry]:
        """The first of these messages that have their payloads; the others keep waiting."""
        for position, entry in enumerate(entries):
            if entry.payload is None:
                for unread in entries[position:]:
                    self._ledger.wait_again(unread)
                return entries[:position]
        return entries

    def _receive_deferred(self, command: ReceiveDeferred, now_ms: int) -> Received:
        numbers = command.sequence_numbers
        session = self._session_for(command.line, command.session)
        check_numbers(numbers, DEFERRED_COUNT_MAX)
        entries = find_deferred(self._ledger, command, self._supply.entries, session, now_ms)
        check_bytes(entries)
        if not command.is_locking:
            return Received(self._hand_out(entries), False)
        check_locks(self._ledger, self.number, len(entries))
        for entry in entries:
            if entry.payload is None:
                self._ledger.lacking_bytes += entry.size_bytes
        return Received(self._lock(entries, command.session, command.token_seed, now_ms), False)

    def _receive_numbered(self, command: ReceiveNumbered, now_ms: int) -> Received:
        line = self.reads.line(command.line, command.session)
        if line is None:
            raise not_received_so(command.session)
        key = self._session_for(command.line, command.session)
        check_numbers(command.sequence_numbers, DEFERRED_COUNT_MAX)
        read = [self._supply.entries.get(number) for number in command.sequence_numbers]
        entries = take_numbered(self._ledger, command, line, key, read, now_ms)
        return Received(self._lock(entries, command.session, command.token_seed, now_ms), False)

    def _session_for(self, line: int, session: bytes) -> str | None:
        """The key of the session whose messages are received by number; None: any of the line."""
        if self._holds is None or line != MAIN_LINE:
            if session != NO_SESSION:
                raise not_received_so(session)
            return None
        if session == NO_SESSION:
            raise not_received_so(session)
        return self._holds.of(session).key

    # Settling.

    def _renew(self, command: Renew, now_ms: int) -> Renewed:
        """Renew locks. The locks in a session are not renewed here: they end with the session."""
        steady_ms = self._ledger.steady_ms
        for token in command.tokens:
            if self._locks.held(token, steady_ms) is None:
                raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
        deadline_ms = steady_ms + self._ledger.rules.lock_ms
        self._locks.renew(command.tokens, deadline_ms)
        if self._holds is not None:
            for token in command.tokens:
                deadline_ms = min(deadline_ms, self._locks.batch_of(token).told_ms())
        return Renewed(self._ledger.moment_of(deadline_ms, now_ms))

    # Removing, and time.

    def _purge(self, command: Purge, now_ms: int) -> Purged:
        line = self.reads.line(command.line, command.session)
        if line is None:
            raise not_received_so(command.session)
        purged = purge(self._ledger, line, command, now_ms)
        if command.session == NO_SESSION:
            self._supply.want(command.line)
        return purged

    def _tick(self, now_ms: int) -> Done:
        if expired := self._locks.expire(self._ledger.steady_ms):
            self._ledger.fail(expired, now_ms, b"", 0)
        if self._holds is not None:
            self._holds.end_overdue(now_ms, LOCKS_ENDED_MAX)
        self._claiming.end_overdue()
        self._staging.end_overdue()
        self._calendar.tick()
        self._entrance.forget_expired_ids(now_ms)
        if self._journal.is_due(self._ledger.steady_ms):
            if self._ledger.shortage:
                self._journal.postpone(self._ledger.steady_ms)
            else:
                self._ledger.changes.append(Update([]))  # A commit even without another change.
        return Done()
