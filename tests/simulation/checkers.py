"""The promises of the bus, checked against everything that anyone was told.

A fragment's answers are heard where they leave the fragment, so that every lock and every outcome
is known exactly, whoever asked; what senders and receivers were told is heard at the client.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from shardbus.broker.fragment.answers import Answer
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.command import Command, FragmentRules
from shardbus.core.message import ACTIVE, DEFERRED, NEVER_MS, SCHEDULED, Message
from shardbus.core.messages.command import (
    Cancel,
    Delivery,
    Done,
    Purge,
    Purged,
    Receive,
    Received,
    ReceiveDeferred,
    Renew,
    Send,
    Sent,
    Settle,
    Ticket,
)
from shardbus.core.sessions.command import (
    AcceptSession,
    GetState,
    ReleaseSession,
    RenewSession,
    SetState,
)
from shardbus.core.tickets.command import AskTickets, Judged
from shardbus.core.transactions.command import COMMITTED, Decide, Decided, Finish, Prepare
from shardbus.stores.base.store import FragmentId
from tests.simulation.holds import HoldBook, MayLose
from tests.simulation.journal import Journal
from tests.simulation.locks import Heard, LockBook, is_not_found
from tests.simulation.records import Place, Record
from tests.simulation.registers import Registers
from tests.simulation.sending import Sending, Violation, mark_of


class Numbered(NamedTuple):
    """A send as its fragment can be asked about it."""

    fragment: FragmentId
    sender: bytes
    number: int


class Checker:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.sendings = journal.sendings
        self.deliveries = 0
        self.events: Counter[str] = Counter()
        self.locks = LockBook(journal, self.events)
        self.holds = HoldBook(journal, self.locks, self.events)
        self.registers = Registers()
        # Duplicates that each fragment said it had dropped, and those it may have besides.
        self.dropped: Counter[FragmentId] = Counter()
        self.maybe_dropped: Counter[FragmentId] = Counter()
        # Messages that a purge may have removed, or something else.
        self._perhaps_purged: dict[FragmentId, list[Record]] = {}
        # When a fragment last forgot what it had decided.
        self._forgot_at_ms: dict[FragmentId, int] = {}
        self._lives: dict[FragmentId, int] = {}
        self._last_of_key: dict[tuple[int, str], int] = {}
        self._seen: set[int] = set()
        # What was sent under which number, and what was told never to be stored under it.
        self._numbered: dict[Numbered, list[Sending]] = {}
        self._given_up: dict[Numbered, int] = {}
        # What each fragment has promised, by transaction.
        self._promised: dict[tuple[FragmentId, bytes], list[Sending]] = {}
        # Messages that may be promised and not stored yet.
        self._owed: set[int] = set()
        self.may_lose: MayLose = lambda fragment, from_ms, to_ms: False
        # The seeds of locks and holds that somebody was to let go who died before.
        self.forgiven: set[bytes] = set()

    # What senders are told.

    def attempted(self, sending: Sending) -> None:
        self.sendings[sending.mark] = sending

    def told(self, mark: int, answer: Answer) -> None:
        sending = self.sendings[mark]
        if sending.outcome != "pending":
            raise Violation(f"message {mark} was answered twice")
        if isinstance(answer, Sent):
            sending.outcome = "accepted"
            is_found = self.journal.is_stored(mark) != sending.is_dropped
            if not is_found and mark not in self._owed:
                raise Violation(f"message {mark} was accepted but neither stored nor dropped")
        elif isinstance(answer, Unavailable) and answer.is_unknown:
            sending.outcome = "unknown"
        else:
            assert isinstance(answer, Refused | Unavailable)
            sending.outcome = "refused"

    # What fragments say.

    def loaded(self, fragment: FragmentId) -> None:
        self._lives[fragment] = self.life(fragment) + 1
        self.events["reloaded"] += 1

    def life(self, fragment: FragmentId) -> int:
        return self._lives.get(fragment, 0)

    def asked(
        self, fragment: FragmentId, rules: FragmentRules, command: Command, now_ms: int
    ) -> Heard:
        heard = Heard(fragment, rules, self.life(fragment), now_ms)
        heard.newest = self.locks.newest(fragment)
        self._open(command, 1)
        return heard

    def answered(self, heard: Heard, command: Command, answer: Answer) -> None:
        """`heard` is what `asked` gave, with the moment of the answer."""
        heard.life = self.life(heard.fragment)
        self._open(command, -1)
        if isinstance(answer, Unavailable) and "internal error" in answer.message:
            raise Violation(f"{heard.fragment} decided wrongly: {answer.message}")
        if not self._is_hasty(heard, answer):
            self._check(heard, command, answer)

    def _open(self, command: Command, change: int) -> None:
        """What ends a lock or a hold is asked for (1) or answered (-1)."""
        if isinstance(command, Settle):
            self.locks.settling(command.tokens, change)
        elif isinstance(command, RenewSession | ReleaseSession | Purge | Receive):
            self.holds.asking(command, change)

    def _is_hasty(self, heard: Heard, answer: Answer) -> bool:
        """Whether a refusal is told that was decided upon what the fragment has just forgotten."""
        if isinstance(answer, Unavailable):
            # Whether it is certain or not that nothing was stored.
            self._forgot_at_ms[heard.fragment] = heard.now_ms
        is_refused = isinstance(answer, Refused)
        return is_refused and self._forgot_at_ms.get(heard.fragment) == heard.now_ms

    def _check(self, heard: Heard, command: Command, answer: Answer) -> None:
        if isinstance(command, Send):
            self._sent(heard, command.messages, command.ticket, answer)
        elif isinstance(command, Prepare | Decide | Finish):
            self._transacted(heard, command, answer)
        elif isinstance(command, AskTickets):
            self._judged(heard, command, answer)
        elif isinstance(command, Receive | ReceiveDeferred):
            self._received(heard, command, answer)
        elif isinstance(command, Settle):
            self.locks.settled(heard, command, answer)
        elif isinstance(command, Renew):
            self.locks.renewed(heard, command, answer)
        elif isinstance(command, AcceptSession):
            self.holds.accepted(heard, command, answer)
        elif isinstance(command, RenewSession | ReleaseSession | GetState | SetState):
            self.holds.answered(heard, command, answer)
        elif isinstance(command, Cancel):
            self._cancelled(heard, command, answer)
        elif isinstance(command, Purge):
            self._purged(heard, command, answer)

    def _sendings(self, messages: Sequence[Message]) -> list[Sending]:
        return [self.sendings[mark_of(message.payload)] for message in messages]

    def _transacted(self, heard: Heard, command: Prepare | Decide | Finish, answer: Answer) -> None:
        if isinstance(command, Decide):
            self._sent(heard, command.work.messages, command.ticket, answer)
            if isinstance(answer, Decided) and answer.how == COMMITTED:
                self._stored(heard, self._sendings(command.work.messages))
            return
        promised = (heard.fragment, command.transaction_id)
        if isinstance(command, Prepare):
            self._promised[promised] = self._sendings(command.work.messages)
            self._owed.update(sending.mark for sending in self._promised[promised])
        elif command.is_commit and promised in self._promised:
            self._finished(heard, self._promised[promised], answer)

    def _finished(self, heard: Heard, sendings: list[Sending], answer: Answer) -> None:
        """What was promised is stored, and numbered if somebody wants to know."""
        if isinstance(answer, Sent):
            for sending, number in zip(sendings, answer.numbers(), strict=True):
                # It may have become active since, under another number.
                record = self.journal.records.get(Place(heard.fragment, number))
                if number and (record is None or record.mark != sending.mark):
                    raise Violation(f"message {sending.mark} is not stored as {number}")
        if isinstance(answer, Done | Sent):
            self._stored(heard, sendings)
            self._owed.difference_update(sending.mark for sending in sendings)
        elif isinstance(answer, Unavailable) and answer.is_unknown:
            self.maybe_dropped[heard.fragment] += len(sendings)

    def _stored(self, heard: Heard, sendings: list[Sending]) -> None:
        """What a fragment was told to store and has not is a duplicate."""
        for sending in sendings:
            if not self.journal.is_stored(sending.mark) and not sending.is_dropped:
                self._dropped(heard, sending, sending.attempted_at_ms)

    def _sent(
        self, heard: Heard, messages: Sequence[Message], ticket: Ticket | None, answer: Answer
    ) -> None:
        sendings = self._sendings(messages)
        if ticket is not None:
            numbered = Numbered(heard.fragment, ticket.sender, ticket.number)
            self._check_number(numbered, answer)
            self._numbered[numbered] = sendings
        if isinstance(answer, Sent):
            for sending, number in zip(sendings, answer.numbers(), strict=True):
                if number == 0:
                    self._dropped(heard, sending, heard.asked_at_ms)
                elif self.journal.places.get(sending.mark) != Place(heard.fragment, number):
                    raise Violation(f"message {sending.mark} is not stored as {number}")
        elif isinstance(answer, Unavailable) and answer.is_unknown:
            self.maybe_dropped[heard.fragment] += len(sendings)

    def _check_number(self, numbered: Numbered, answer: Answer) -> None:
        if numbered in self._given_up and isinstance(answer, Sent):
            raise Violation(f"{numbered} was said never to be stored, and was stored then")

    def _judged(self, heard: Heard, command: AskTickets, answer: Answer) -> None:
        """A fragment says what became of sends whose answers were lost."""
        if not isinstance(answer, Judged):
            return
        for number, is_stored in zip(command.numbers, answer.stored, strict=True):
            numbered = Numbered(heard.fragment, command.sender, number)
            self.events["send found stored" if is_stored else "send given up"] += 1
            if not is_stored:
                self._given_up[numbered] = heard.now_ms
                continue
            if numbered in self._given_up or numbered not in self._numbered:
                raise Violation(f"{numbered} is said to be stored, but cannot be")
            self._stored(heard, self._numbered[numbered])

    def _dropped(self, heard: Heard, sending: Sending, from_ms: int) -> None:
        acceptances = self.journal.acceptances
        acceptances.check_dropped(heard.fragment, heard.rules, sending, from_ms, heard.now_ms)
        sending.is_dropped = True
        self.dropped[heard.fragment] += 1
        self.events["duplicate dropped"] += 1

    def _received(self, heard: Heard, command: Receive | ReceiveDeferred, answer: Answer) -> None:
        if isinstance(answer, Received):
            self._check_asked_for(heard.fragment, command, answer.deliveries)
            term = self.holds.received(heard, command, answer)
            self.locks.received(heard, command, answer.deliveries, term)
        elif isinstance(answer, Unavailable) and not command.is_locking:
            self.locks.perhaps_removed(heard.fragment, is_certain=not answer.is_unknown)
        elif isinstance(command, ReceiveDeferred) and is_not_found(answer):
            hold = self.holds.of_token(command.session)
            session = None if hold is None else hold.key.session
            self.locks.check_not_found(heard, command, session)
        elif isinstance(answer, Refused) and command.session:
            self.holds.refused(heard, command.session, answer)

    def _check_asked_for(
        self,
        fragment: FragmentId,
        command: Receive | ReceiveDeferred,
        deliveries: Sequence[Delivery],
    ) -> None:
        numbers = [delivery.entry.sequence_number for delivery in deliveries]
        if isinstance(command, ReceiveDeferred):
            wanted = [
                number
                for number in command.sequence_numbers
                if number in numbers or Place(fragment, number) not in self.journal.damaged
            ]
            if numbers != wanted:
                raise Violation(f"{fragment} gave {numbers} of {command.sequence_numbers}")
        elif numbers != sorted(set(numbers)):
            raise Violation(f"{fragment} line {command.line} out of order: {numbers}")
        elif len(numbers) > command.count_max:
            raise Violation(f"{fragment} gave {len(numbers)} of {command.count_max} asked for")

    def _cancelled(self, heard: Heard, command: Cancel, answer: Answer) -> None:
        places = [Place(heard.fragment, number) for number in command.sequence_numbers]
        if isinstance(answer, Done):
            for place in places:
                record = self.journal.records[place]
                if record.state != SCHEDULED or self.journal.places[record.mark] != place:
                    raise Violation(f"{place} was cancelled, but had been activated")
                self.locks.gone(place)
                self.events["cancelled"] += 1
        elif is_not_found(answer):
            if all(self._is_scheduled(place) for place in places):
                raise Violation(f"{places} are scheduled, but were not found")
            self.events["cancelled too late"] += 1
        elif isinstance(answer, Unavailable) and answer.is_unknown:
            for place in places:
                self.journal.explain(place)

    def _is_scheduled(self, place: Place) -> bool:
        record = self.journal.records.get(place)
        is_there = record is not None and record.state == SCHEDULED and not record.is_gone
        return is_there and place not in self.journal.damaged

    def _purged(self, heard: Heard, command: Purge, answer: Answer) -> None:
        if isinstance(answer, Unavailable):
            self.locks.perhaps_removed(heard.fragment, is_certain=not answer.is_unknown)
        elif isinstance(answer, Refused) and command.session:
            self.holds.refused(heard, command.session, answer)
        if not isinstance(answer, Purged):
            return
        removed = self.journal.unexplained.get(heard.fragment, {})
        doubtful = self._perhaps_purged.setdefault(heard.fragment, [])
        found = [
            record
            for _, record in sorted(removed.items())
            if self._may_purge(heard, command, record)
        ]
        others = [record for record in doubtful if self._may_purge(heard, command, record)]
        if len(found) + len(others) < answer.count:
            raise Violation(
                f"{heard.fragment}: {answer.count} purged of {len(found) + len(others)} possible "
                "ones"
            )
        for record in found:
            if len(found) == answer.count and not others:
                self.locks.gone(record.place)
            else:
                # Others of them expired, or were removed by answers that are still to come: who
                # removed which nobody can tell.
                self.journal.explain(record.place)
                doubtful.append(record)
        self.events["purged"] += answer.count

    def _may_purge(self, heard: Heard, command: Purge, record: Record) -> bool:
        hold = self.holds.of_token(command.session)
        until_ms = command.enqueued_until_ms
        return (
            record.line == command.line
            and record.state == ACTIVE
            and record.removed_at_ms >= heard.asked_at_ms
            and (until_ms == NEVER_MS or record.enqueued_at_ms <= until_ms)
            and (hold is None or record.session == hold.key.session)
            and not self.locks.must_be_held(record, heard.life, heard.now_ms)
        )

    def told_completed(self, tokens: Sequence[bytes], lost: Sequence[bool]) -> None:
        """A client heard that its messages are completed, or that its locks were lost."""
        for token, is_lost in zip(tokens, lost, strict=True):
            place = self.locks.held[token].track.place
            if not is_lost and not self.journal.is_removed(place):
                raise Violation(f"{place} was told to be completed, but is still stored")

    # What receivers get.

    def delivered(self, deliveries: Sequence[Delivery], *, is_ordered_by: str | None) -> None:
        for delivery in deliveries:
            assert delivery.payload is not None
            self.deliveries += 1
            mark = mark_of(delivery.payload)
            held = self.locks.held.get(delivery.token)
            if held is not None:
                held.is_delivered = True
            if mark in self._seen:
                self.events["delivered again"] += 1
                continue
            self._seen.add(mark)
            # One that was locked for an answer that nobody got may come after its successors.
            was_away = held is not None and held.track.was_handed_again
            if is_ordered_by is not None and not was_away:
                self._check_order(self.sendings[mark], is_ordered_by)

    def _check_order(self, sending: Sending, is_ordered_by: str) -> None:
        name = "*" if is_ordered_by == "all" else str(sending.key)
        last = self._last_of_key.get((sending.entity_id, name), -1)
        if sending.mark < last:
            raise Violation(f"message {sending.mark} of key {name!r} came after {last}")
        self._last_of_key[sending.entity_id, name] = sending.mark

    # When everything is over.

    def finish(self, rules_of: dict[int, FragmentRules]) -> None:
        """Every message has been received and completed, or has a good reason not to have been."""
        batches: dict[int, set[tuple[FragmentId, int] | None]] = {}
        for mark, sending in self.sendings.items():
            self._check_end(sending, rules_of[sending.entity_id])
            if sending.batch is not None and not self._may_be_dropped(sending, rules_of):
                batches.setdefault(sending.batch, set()).add(self._commit_of(mark))
        for batch, commits in batches.items():
            fragments = [None if commit is None else commit[0] for commit in commits]
            if len(set(fragments)) < len(fragments) or (None in commits and len(commits) > 1):
                raise Violation(f"batch {batch} is spread over commits {commits}")
            self.events["batch in several fragments"] += len(commits) > 1
        self.holds.check_owners(self.life, self.may_lose, self.forgiven)
        for held in self.locks.held.values():
            is_current = held.life == self.life(held.track.place.fragment)
            is_known = held.is_delivered or held.is_settling or held.seed in self.forgiven
            if not is_current or is_known:
                continue
            fragment = held.track.place.fragment
            # An answer that takes longer than the lock lasts leaves nothing locked.
            is_over = held.term.until_ms <= held.told_at_ms
            if not is_over and not self.may_lose(fragment, held.told_at_ms, held.term.until_ms):
                raise Violation(f"{held.track.place} was locked for nobody (R18)")

    def _commit_of(self, mark: int) -> tuple[FragmentId, int] | None:
        """Where and with what a message was stored; in one fragment a batch is one commit."""
        commit = self.journal.commit_of.get(mark)
        return None if commit is None else (self.journal.places[mark].fragment, commit)

    def _may_be_dropped(self, sending: Sending, rules_of: dict[int, FragmentRules]) -> bool:
        detects = rules_of[sending.entity_id].duplicate_window_ms > 0
        is_stored = self.journal.is_stored(sending.mark)
        is_unknown = sending.outcome == "unknown"
        return sending.is_dropped or (detects and is_unknown and not is_stored)

    def check_duplicates(self, fragment: FragmentId, counted: int) -> None:
        """A fragment's counter of duplicates is that of those it dropped."""
        least = self.dropped[fragment]
        if not least <= counted <= least + self.maybe_dropped[fragment]:
            raise Violation(f"{fragment} counts {counted} duplicates, and dropped {least}")

    def _check_end(self, sending: Sending, rules: FragmentRules) -> None:
        mark = sending.mark
        if sending.outcome == "pending":
            raise Violation(f"message {mark} was never answered")
        place = self.journal.places.get(mark)
        if place is None:
            if sending.outcome == "accepted" and not sending.is_dropped:
                raise Violation(f"message {mark} was accepted, and is nowhere")
            return
        if sending.outcome == "refused":
            raise Violation(f"message {mark} was refused, but stored at {place}")
        if place in self.journal.damaged:
            return
        record = self.journal.records[place]
        if not record.is_gone:
            raise Violation(f"message {mark} at {place} does not come out")
        is_dropped = not rules.dead_letters_on_expiration or record.state == DEFERRED
        may_expire = is_dropped and record.has_expired(record.removed_at_ms)
        unexplained = self.journal.unexplained.get(place.fragment, {})
        if place.sequence_number in unexplained and not may_expire:
            raise Violation(f"lost: message {mark} at {place} was removed, and nobody had it")
