"""How messages enter a fragment: quota, sessions, duplicates, numbers and times.

Clients send messages to queues and topics; a topic delivers what it publishes to its subscriptions.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import NOT_ALLOWED, QUOTA_EXCEEDED, Refused
from shardbus.core.fragment.change import Adopt, Append, AppendReserved, ForgetIds, Remember, Update
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.counting import count_in
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.limits import DIGEST_BYTES
from shardbus.core.message import ACTIVE, AT_ONCE_MS, NEVER_MS, SCHEDULED, Entry, Message
from shardbus.core.messages.command import Send, Sent, Ticket
from shardbus.core.messages.history import History, Sifted
from shardbus.core.sequence import counter_of, sequence_number
from shardbus.core.stages.record import ReadPiece
from shardbus.core.tickets.command import AskTickets, Judged
from shardbus.core.tickets.table import Tickets
from shardbus.core.transactions.command import Reserved
from shardbus.core.transactions.promised_keys import PromisedKeys

NO_SESSION_REASON: Final = "Session id is null."
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
        self._fragment_number = fragment_number
        self._ledger = ledger
        self._history = history
        # Ids are dated as if the wall clock had not been set since the fragment was loaded. So no
        # id is forgotten early, and a wrong clock does not make the fragment forget all of them.
        self._ids_ahead_ms = loaded_at_ms - ledger.steady_ms
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
            sifted = self._history.sift(messages, rules.is_partitioned, until_ms)
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
        due: list[Message] = []
        for number, message in reserved:
            if message.scheduled_at_ms > now_ms:
                waiting += self._entries([message], counter_of(number), now_ms)
            else:
                due.append(message)
        if waiting:
            ledger.place(waiting)
            ledger.changes.append(AppendReserved(waiting))
        if due:
            self._enter(due, now_ms)

    def _sift(self, messages: list[Message], now_ms: int, *, is_checked: bool) -> Sifted:
        """The messages that are not duplicates; their ids are remembered from now on."""
        rules = self._ledger.rules
        until_ms = self._ids_at_ms() - rules.duplicate_window_ms
        sifted = self._history.sift(messages, rules.is_partitioned, until_ms)
        if not is_checked:
            self._check_room(len(sifted.digests) // DIGEST_BYTES, until_ms)
        self._remember(sifted.digests, now_ms)
        self._count_duplicates(len(sifted.duplicates))
        return sifted

    def _enter(self, messages: list[Message], now_ms: int) -> int:
        """Number new messages and let them in; returns the counter of the first."""
        ledger = self._ledger
        first = ledger.counters.last_counter + 1
        entries = self._entries(messages, first, now_ms)
        ledger.counters.last_counter += len(entries)
        if ledger.rules.is_topic:
            ledger.publish(entries)
        else:
            ledger.enter(entries)
        return first

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
        """Refused when the fragment is full, or does not accept messages of this kind."""
        self._check_size()
        if self._ledger.sessions is not None:
            _check_sessions(messages)

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
            entries.append(
                Entry(
                    number,
                    payload,
                    len(payload),
                    enqueued_at_ms=now_ms,
                    expires_at_ms=expires_at_ms,
                    state=state,
                    session_id=message.session_id if keeps_session else None,
                    delayed_until_ms=delayed_until_ms,
                )
            )
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


def _check_sessions(messages: list[Message]) -> None:
    for message in messages:
        if message.session_id is None:
            raise Refused(
                NOT_ALLOWED,
                f"{NO_SESSION_TEXT}: set the SessionId of every message.",
            )
