"""How messages enter a fragment: quota, sessions, duplicates, numbers and times.

Clients send messages to queues and topics; a topic delivers what it publishes to its subscriptions.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED, QUOTA_EXCEEDED, Refused
from shardbus.core.fragment.backfill_boundary import BackfillBoundary
from shardbus.core.fragment.change import Adopt, Append, AppendReserved, ForgetIds, Remember, Update
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.counting import count_in
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.lifecycle import rows as events
from shardbus.core.lifecycle.journal import Journal
from shardbus.core.limits import DIGEST_BYTES
from shardbus.core.message import (
    ACTIVE,
    AT_ONCE_MS,
    DEAD_LETTER_LINE,
    NEVER_MS,
    SCHEDULED,
    Entry,
    Message,
)
from shardbus.core.messages.command import Done, Send, Sent, Ticket
from shardbus.core.messages.duplicate_history import History, Sifted, by_age, count_in_page
from shardbus.core.sealing.command import IdsTold, LearnIds
from shardbus.core.sealing.seal import FragmentSeal
from shardbus.core.sequence import counter_of, fragment_of, sequence_number
from shardbus.core.stages.record import ReadPiece
from shardbus.core.tickets.command import AskTickets, Judged
from shardbus.core.tickets.table import Tickets
from shardbus.core.transactions.command import Reserved
from shardbus.core.transactions.promised_keys import PromisedKeys

NO_SESSION_REASON: Final = "Session id is null."
# How many bytes of ids a fragment tells at once, and how finely their ages are kept.
IDS_PAGE_BYTES: Final = 64 * 1024
IDS_AGES: Final = 100

NO_SESSION_TEXT: Final = (
    "Session enabled entity doesn't allow a message whose session identifier is null"
)


@final
class Entrance(Handler):
    """Decides what happens to messages that are sent to one fragment."""

    def __init__(
        self,
        fragment_number: int,
        ledger: Ledger,
        history: History,
        records: dict[tuple[int, bytes], bytes],
        loaded_at_ms: int,
    ) -> None:
        self.tickets = Tickets(records, loaded_at_ms)
        self.promised_keys = PromisedKeys()
        self.seal = FragmentSeal(records)
        self._fragment_number = fragment_number
        self._ledger = ledger
        self._history = history
        # Ids are dated as if the wall clock had not been set since the fragment was loaded. So no
        # id is forgotten early, and a wrong clock does not make the fragment forget all of them.
        self._ids_ahead_ms = loaded_at_ms - ledger.steady_ms
        self._boundary = BackfillBoundary(records, ledger.counters.last_counter)
        # When to check whether all remembered ids have expired, in case nobody sends any more.
        self.deadline_ms = NEVER_MS
        if history.is_stored():
            self._note_deadline(max(ledger.rules.duplicate_window_ms, 1))

    def send(self, command: Send, now_ms: int) -> Sent:
        self.check_ticket(command.ticket)
        if self.promised_keys.promises:
            self.check_turn(command.messages)
        self.check_kind(command.messages)
        sent = self.admit(command.messages, now_ms, is_checked=False)
        self.note_ticket(command.ticket, sent)
        return sent

    def check_ticket(self, ticket: Ticket | None) -> None:
        """Refused when the sender has given the command up, or when the ticket cannot be
        remembered.
        """
        if ticket is not None:
            self.tickets.check(ticket, self._ids_at_ms())

    def note_ticket(self, ticket: Ticket | None, reply: Sent | None) -> None:
        """The next commit stores the command of a ticket that was checked."""
        if ticket is not None:
            self.tickets.note(ticket, reply, self._ids_at_ms())

    def decide(self, command: Command, now_ms: int) -> Judged:
        """Tell a sender which of the sends whose answers it lost are stored."""
        assert isinstance(command, AskTickets)
        return self.tickets.judge(command, self._ids_at_ms())

    def check(self, messages: list[Message]) -> None:
        """Refused when these messages cannot be sent now."""
        self.check_turn(messages)
        self.check_kind(messages)
        self.check_ids(messages)

    def check_turn(self, messages: list[Message]) -> None:
        """Refused when one of these messages would overtake a promised message with the same
        key.
        """
        ledger = self._ledger
        detects_duplicates = ledger.rules.duplicate_window_ms > 0
        self.promised_keys.check(messages, detects_duplicates, ledger.steady_ms)

    def check_ids(self, messages: list[Message]) -> None:
        """Refused when the fragment cannot remember the ids of all these messages."""
        rules = self._ledger.rules
        if len(self._history) + len(messages) <= self._remembered_max():
            # There is room for all ids, even if none of the messages is a duplicate.
            return
        if rules.duplicate_window_ms > 0:
            until_ms = self._ids_at_ms() - rules.duplicate_window_ms
            sifted = self._sifted(messages, until_ms)
            self._check_room(len(sifted.digests) // DIGEST_BYTES, until_ms)

    def check_id_count(self, count: int) -> None:
        """Refused when the fragment cannot remember `count` more ids, assuming that none is a
        duplicate.
        """
        rules = self._ledger.rules
        if rules.duplicate_window_ms > 0:
            self._check_room(count, self._ids_at_ms() - rules.duplicate_window_ms)

    def _remembered_max(self) -> int:
        """How many ids the fragment may remember, leaving room for those of promised messages."""
        return self._ledger.bounds.remembered_max - self._ledger.promised_ids

    def admit(self, messages: list[Message], now_ms: int, *, is_checked: bool) -> Sent:
        """Store messages. Messages that were checked before are never refused."""
        duplicates: list[int] | None = None
        if self._ledger.rules.duplicate_window_ms > 0:
            sifted = self._sift(messages, now_ms, is_checked=is_checked)
            messages, duplicates = sifted.messages, sifted.duplicates
        first = self._enter(messages, now_ms)
        return Sent(sequence_number(self._fragment_number, first), len(messages), duplicates)

    def admit_reserved(self, reserved: list[Reserved], now_ms: int) -> None:
        """Schedule checked messages under the numbers that were reserved for them.

        A message whose time has come already gets a new number, as if it had waited for that
        moment. The number of a duplicate stays unused.
        """
        ledger = self._ledger
        if ledger.rules.duplicate_window_ms > 0:
            messages = [message for _, message in reserved]
            known = set(self._sift(messages, now_ms, is_checked=True).duplicates)
            reserved = [each for at, each in enumerate(reserved) if at not in known]
        waiting: list[Entry] = []
        keys: list[str | None] = []
        due: list[Message] = []
        for number, message in reserved:
            if message.scheduled_at_ms > now_ms:
                keys.append(_key_of(message))
                waiting += self._entries([message], counter_of(number), now_ms)
            else:
                due.append(message)
        if waiting:
            if ledger.journal is not None:
                ledger.journal.entered(events.SCHEDULE, waiting, keys)
            ledger.place(waiting)
            ledger.changes.append(AppendReserved(waiting))
        if due:
            self._enter(due, now_ms)

    def _sift(self, messages: list[Message], now_ms: int, *, is_checked: bool) -> Sifted:
        """The messages that are not duplicates; their ids are remembered from now on."""
        until_ms = self._ids_at_ms() - self._ledger.rules.duplicate_window_ms
        sifted = self._sifted(messages, until_ms)
        if not is_checked:
            self._check_room(len(sifted.digests) // DIGEST_BYTES, until_ms)
        self._remember(sifted.digests, now_ms)
        if self._ledger.journal is not None:
            self._ledger.journal.dropped([_key_of(messages[at]) for at in sifted.duplicates])
        self._count_duplicates(len(sifted.duplicates))
        return sifted

    def _sifted(self, messages: list[Message], until_ms: int) -> Sifted:
        is_partitioned, has_both = self._ledger.rules.is_partitioned, self.seal.has_both_forms
        return self._history.sift(messages, is_partitioned, until_ms, has_both_forms=has_both)

    # Ids that another map takes over.

    def id_count(self) -> int:
        """How many ids are remembered; a few of them may have expired."""
        return len(self._history)

    def tell_ids(self, start: int) -> IdsTold:
        at_ms = self._ids_at_ms()
        until_ms = at_ms - self._ledger.rules.duplicate_window_ms
        page, following = self._history.page(start, at_ms, until_ms, IDS_PAGE_BYTES)
        return IdsTold(page, following, self.seal.has_both_forms)

    def learn_ids(self, command: LearnIds, now_ms: int) -> Done:
        """Remember the ids of a former fragment for the rest of their window."""
        ids_at_ms, window_ms = self._ids_at_ms(), self._ledger.rules.duplicate_window_ms
        self._check_room(count_in_page(command.page), ids_at_ms - window_ms)
        unit_ms = max(window_ms // IDS_AGES, 1)
        for age_ms, digests in by_age(command.page, unit_ms).items():
            self._history.add(ids_at_ms - age_ms, digests)
            self._history.note_stored(now_ms - age_ms)
            self._ledger.changes.append(Remember(now_ms - age_ms, digests))
        if command.has_both_forms and not self.seal.has_both_forms:
            self._ledger.changes.append(self.seal.note_both_forms(True))
        if self.deadline_ms == NEVER_MS:
            self._note_deadline(window_ms)
        return Done()

    def _enter(self, messages: list[Message], now_ms: int) -> int:
        """Number new messages and let them in; returns the counter of the first."""
        ledger = self._ledger
        first = ledger.counters.last_counter + 1
        if ledger.rules.is_topic:
            past = [message for message in messages if message.past_number]
            if past:
                self._publish_again(past, now_ms)
                messages = [message for message in messages if not message.past_number]
        entries = self._entries(messages, first, now_ms)
        ledger.counters.last_counter += len(entries)
        if ledger.journal is not None:
            _note_entered(ledger.journal, entries, messages, is_topic=ledger.rules.is_topic)
        if ledger.rules.is_topic:
            ledger.publish(entries)
        else:
            ledger.enter(entries)
        return first

    def _publish_again(self, messages: list[Message], now_ms: int) -> None:
        """Publish messages under the numbers that the topic gave them long ago."""
        entries: list[Entry] = []
        for message in messages:
            [entry] = self._entries([message], counter_of(message.past_number), now_ms)
            entry.past_number = entry.sequence_number
            entries.append(entry)
        if self._ledger.journal is not None:
            keys = [_key_of(message) for message in messages]
            self._ledger.journal.entered(events.PUBLISH, entries, keys)
        self._ledger.publish(entries)

    def takes_plain(self, messages: list[Message]) -> bool:
        """Whether only the times to live of these messages matter when they are published later."""
        ledger = self._ledger
        if ledger.rules.is_topic or ledger.rules.duplicate_window_ms > 0:
            return False
        if ledger.sessions is not None:
            return False
        return all(message.scheduled_at_ms == NEVER_MS for message in messages)

    def adopt(self, stage: bytes, number: int, piece: ReadPiece, now_ms: int) -> None:
        """Publish messages that were plain when they were staged; none is refused."""
        ledger = self._ledger
        counters = ledger.counters
        first = counters.last_counter + 1
        expires_at_ms: list[int] = []
        for ttl_ms in piece.ttls_ms:
            at_ms = self._expiry_ms(ttl_ms, now_ms)
            ledger.note_due(at_ms)
            expires_at_ms.append(at_ms)
        counters.last_counter += piece.count
        ledger.adopt(piece.count, piece.size_bytes)
        first_number = sequence_number(self._fragment_number, first)
        if ledger.journal is not None:
            ledger.journal.adopted(events.ENQUEUE, first_number, piece.count)
        ledger.changes.append(
            Adopt(stage, number, first_number, piece.count, now_ms, expires_at_ms)
        )

    def _expiry_ms(self, said_ms: int, enqueued_at_ms: int) -> int:
        """When a message expires whose sender gave this time to live (-1: none)."""
        ttl_ms = said_ms
        default_ttl_ms = self._ledger.rules.default_ttl_ms
        if ttl_ms < 0 or 0 <= default_ttl_ms < ttl_ms:
            ttl_ms = default_ttl_ms
        return NEVER_MS if ttl_ms < 0 else enqueued_at_ms + ttl_ms

    def number_copies(self, count: int) -> int:
        """Reserve `count` numbers for further copies of published messages; returns the first."""
        counters = self._ledger.counters
        first = counters.last_counter + 1
        counters.last_counter += count
        return sequence_number(self._fragment_number, first)

    def deliver(self, entries: list[Entry]) -> None:
        """Take over copies of what a topic published. None is refused."""
        ledger = self._ledger
        past = [entry for entry in entries if entry.past_number == entry.sequence_number]
        if past:
            entries = [entry for entry in entries if entry.past_number != entry.sequence_number]
        if entries:
            begun = self._boundary.begin(entries[0].sequence_number)
            if begun is not None:
                ledger.changes.append(begun)
        if past:
            filled = self._boundary.fill(past)
            self._fill(filled)
            # A message that was here before, or is filled in already, had its further copies then.
            numbers = {entry.sequence_number for entry in filled}
            entries = [
                entry for entry in entries if not entry.past_number or entry.past_number in numbers
            ]
        if entries:
            self._take_over(entries)

    def _fill(self, entries: list[Entry]) -> None:
        """Take over earlier messages of the topic at their places in the order."""
        if not entries:
            return
        ledger = self._ledger
        ledger.changes.append(self._boundary.change())
        last = sequence_number(self._fragment_number, ledger.counters.last_counter)
        late = [entry for entry in entries if entry.sequence_number <= last]
        if late:
            ledger.changes.append(AppendReserved(late))
            for entry in late:
                self._adapt(entry)
                if entry.reason is not None:
                    entry.line, entry.expires_at_ms = DEAD_LETTER_LINE, NEVER_MS
                count_in(ledger.counters, entry)
                ledger.arrived += 1
                ledger.wait_again(entry)
            if ledger.journal is not None:
                ledger.journal.at_ms = late[-1].enqueued_at_ms
                ledger.journal.entered(events.ENQUEUE, late, None)
                for entry in late:
                    if entry.reason is not None:
                        ledger.journal.moved(events.DEAD_LETTER, [entry], entry.reason)
        if len(late) < len(entries):
            self._take_over(entries[len(late) :])

    def _take_over(self, entries: list[Entry]) -> None:
        """Take over copies whose numbers are greater than all others here."""
        ledger = self._ledger
        welcome: list[Entry] = []
        dead: list[Entry] = []
        for entry in entries:
            self._adapt(entry)
            if entry.reason is None:
                welcome.append(entry)
                ledger.note_due(entry.expires_at_ms)
            else:
                dead.append(entry)
        ledger.counters.last_counter = counter_of(entries[-1].sequence_number)
        if ledger.journal is not None:
            ledger.journal.at_ms = entries[-1].enqueued_at_ms
            ledger.journal.entered(events.ENQUEUE, entries, None)
        ledger.changes.append(Append(entries))
        ledger.place(welcome)
        for entry in dead:
            count_in(ledger.counters, entry)
            ledger.dead_letter([entry], entry.reason, entry.description)

    def forget_expired_ids(self, now_ms: int) -> None:
        """Free memory and stored rows once the last id has expired."""
        if self.deadline_ms == NEVER_MS or self._ledger.steady_ms < self.deadline_ms:
            return
        window_ms = self._ledger.rules.duplicate_window_ms
        ids_at_ms = self._ids_at_ms()
        if not self._history.clear_if_expired(ids_at_ms - window_ms):
            self._note_deadline(window_ms)
            return
        self.deadline_ms = NEVER_MS
        until_ms = now_ms - window_ms
        if self._history.must_forget(until_ms, ids_at_ms, 0):
            self._ledger.changes.append(ForgetIds(until_ms))
        if self.seal.has_both_forms:
            self._ledger.changes.append(self.seal.note_both_forms(False))

    def _ids_at_ms(self) -> int:
        return self._ledger.steady_ms + self._ids_ahead_ms

    def _note_deadline(self, window_ms: int) -> None:
        at_ms = self._history.newest_ms() + window_ms - self._ids_ahead_ms
        self.deadline_ms = max(at_ms, AT_ONCE_MS)

    def is_full(self) -> bool:
        """Whether the next send is refused because of the fragment's size."""
        return self._total_bytes() >= self._ledger.rules.size_bytes_max

    def _total_bytes(self) -> int:
        ledger = self._ledger
        return ledger.counters.total_bytes() + ledger.subscribed_bytes + ledger.staged_bytes

    def check_kind(self, messages: list[Message]) -> None:
        """Refused when the fragment is sealed or full, or does not accept messages of this kind."""
        self.seal.check()
        self._check_size()
        if self._ledger.sessions is not None:
            _check_sessions(messages)

    def check_past(self, messages: list[Message]) -> None:
        """Refused unless the past numbers of these messages were given out here, and ascend."""
        last = 0
        for message in messages:
            number = message.past_number
            if number == 0:
                continue
            is_known = counter_of(number) <= self._ledger.counters.last_counter
            if fragment_of(number) != self._fragment_number or not is_known or number <= last:
                raise Refused(
                    INVALID_ARGUMENT,
                    f"Sequence number {number} was not given out by fragment "
                    f"{self._fragment_number} of this topic, or comes after {last}: only what the "
                    "topic has published can be filled in, in the order of the numbers.",
                )
            last = number

    def _check_size(self) -> None:
        if self._ledger.shortage:
            raise Refused(QUOTA_EXCEEDED, self._ledger.shortage)
        total_bytes = self._total_bytes()
        if total_bytes >= self._ledger.rules.size_bytes_max:
            raise Refused(
                QUOTA_EXCEEDED,
                "The maximum entity size has been reached or exceeded: fragment "
                f"{self._fragment_number} holds {total_bytes} bytes of "
                f"{self._ledger.rules.size_bytes_max}. "
                "Receive or purge messages, or use a larger entity.",
            )

    def _check_room(self, count: int, until_ms: int) -> None:
        history = self._history
        if count > 0 and not history.has_room(count, self._remembered_max(), until_ms):
            raise Refused(
                QUOTA_EXCEEDED,
                f"Fragment {self._fragment_number} remembers {len(history)} message ids for "
                f"duplicate detection, has room reserved for {self._ledger.promised_ids} "
                f"promised ones, and cannot take {count} more: shorten the duplicate "
                "detection window, partition the entity, use smaller batches, or send more "
                "slowly.",
            )

    def _remember(self, digests: bytes, now_ms: int) -> None:
        history = self._history
        window_ms = self._ledger.rules.duplicate_window_ms
        ids_at_ms, until_ms = self._ids_at_ms(), now_ms - window_ms
        history.sweep(ids_at_ms - window_ms)
        if history.must_forget(until_ms, ids_at_ms, window_ms):
            self._ledger.changes.append(ForgetIds(until_ms))
        if digests:
            history.add(ids_at_ms, digests)
            history.note_stored(now_ms)
            self._ledger.changes.append(Remember(now_ms, digests))
            if self.deadline_ms == NEVER_MS:
                self._note_deadline(window_ms)

    def _count_duplicates(self, count: int) -> None:
        if count > 0:
            self._ledger.counters.duplicates += count
            # Counters are stored only together with changes, and there may be no other change.
            self._ledger.changes.append(Update([]))

    def _entries(self, messages: list[Message], counter: int, now_ms: int) -> list[Entry]:
        ledger = self._ledger
        is_topic = ledger.rules.is_topic
        keeps_session = is_topic or ledger.sessions is not None
        number = sequence_number(self._fragment_number, counter)
        entries: list[Entry] = []
        for message in messages:
            state = ACTIVE
            begins_at_ms = now_ms
            delayed_until_ms = NEVER_MS
            if message.scheduled_at_ms > now_ms:
                state = SCHEDULED
                begins_at_ms = delayed_until_ms = message.scheduled_at_ms
                ledger.note_due(begins_at_ms)
            expires_at_ms = self._expiry_ms(message.ttl_ms, begins_at_ms)
            if expires_at_ms != NEVER_MS and state == ACTIVE and not is_topic:
                ledger.note_due(expires_at_ms)
            payload = message.payload
            entry = Entry(
                number,
                payload,
                len(payload),
                enqueued_at_ms=now_ms,
                expires_at_ms=expires_at_ms,
                state=state,
                session_id=message.session_id if keeps_session else None,
                delayed_until_ms=delayed_until_ms,
            )
            entry.subscription_id = message.subscription_id
            entries.append(entry)
            number += 1
        return entries

    def _adapt(self, entry: Entry) -> None:
        """Apply the subscription's time to live, and keep the session id where sessions are
        required.
        """
        rules = self._ledger.rules
        if rules.default_ttl_ms >= 0:
            latest_ms = entry.enqueued_at_ms + rules.default_ttl_ms
            if entry.expires_at_ms == NEVER_MS or entry.expires_at_ms > latest_ms:
                entry.expires_at_ms = latest_ms
        if not rules.requires_session:
            entry.session_id = None
        elif entry.session_id is None and entry.reason is None:
            entry.reason = NO_SESSION_REASON
            entry.description = f"{NO_SESSION_TEXT}."


def _key_of(message: Message) -> str | None:
    return message.session_id or message.partition_key


def _note_entered(
    journal: Journal, entries: list[Entry], messages: list[Message], *, is_topic: bool
) -> None:
    """Note new messages, the scheduled ones apart from the others."""
    now = events.PUBLISH if is_topic else events.ENQUEUE
    keys = [_key_of(message) for message in messages]
    if all(entry.state == ACTIVE for entry in entries):
        journal.entered(now, entries, keys)
        return
    for entry, key in zip(entries, keys, strict=True):
        journal.entered(now if entry.state == ACTIVE else events.SCHEDULE, [entry], [key])


def _check_sessions(messages: list[Message]) -> None:
    for message in messages:
        if message.session_id is None:
            raise Refused(
                NOT_ALLOWED,
                f"{NO_SESSION_TEXT}: set the SessionId of every message.",
            )
