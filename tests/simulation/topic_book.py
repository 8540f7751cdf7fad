"""What topics promise: each accepted message reaches exactly those whose rules take it.

A change of rules takes effect at some moment between its beginning and its confirmation, so a
subscription has at each moment a set of possible rules. One message is stored for all of its
subscriptions in one transaction, with copies that one possible set of rules gives to each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from shardbus.core.fragment.change import Append, Remove
from shardbus.core.limits import PROMISE_LATE_MS
from shardbus.core.message import ACTIVE, MAIN_LINE, NEVER_MS, SCHEDULED, Entry, Message
from shardbus.core.messages.command import Delivery, Sent
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.payloads import Letter, expected, kind_of, letter_of
from tests.simulation.sending import Violation, mark_of
from tests.simulation.town import outcome_of

Rules = frozenset[str] | None
"""The rules of a subscription by name; None: there is no such subscription."""


class Possible:
    """The rules that a subscription may have had, at every moment so far."""

    def __init__(self) -> None:
        self._since: list[tuple[int, frozenset[Rules]]] = [(0, frozenset([None]))]

    def now(self) -> frozenset[Rules]:
        return self._since[-1][1]

    def begin(self, now_ms: int, change: Callable[[Rules], Rules]) -> None:
        """A change may take effect from now on."""
        self._since.append((now_ms, self.now() | {change(rules) for rules in self.now()}))

    def confirm(self, now_ms: int, rules: Rules) -> None:
        self._since.append((now_ms, frozenset([rules])))

    def between(self, from_ms: int, to_ms: int) -> set[Rules]:
        found: set[Rules] = set()
        for position, (since_ms, rules) in enumerate(self._since):
            is_last = position + 1 == len(self._since)
            if since_ms <= to_ms and (is_last or self._since[position + 1][0] >= from_ms):
                found |= rules
        return found


class Publication:
    """One message as its publisher knows it."""

    def __init__(self, topic: str, message: Message, publisher: int, asked_at_ms: int) -> None:
        self.topic = topic
        self.message = message
        self.letter: Letter = letter_of(message.payload)
        self.publisher = publisher
        # Without a key a partitioned topic promises no order: what one fragment refuses goes to
        # another, and a gateway that is given up may still be at it (R14).
        self.is_ordered = True
        self.asked_at_ms = asked_at_ms
        self.told_at_ms = NEVER_MS
        self.outcome = "pending"
        self.is_dropped = False
        self.is_cancelled = False
        # It may have been cancelled, or it may not.
        self.may_be_cancelled = False
        self.number = 0
        # All that were sent together, this one too.
        self.batch: list[Publication] = []

    @property
    def is_scheduled(self) -> bool:
        return self.message.scheduled_at_ms > self.asked_at_ms

    def from_ms(self) -> int:
        return max(self.asked_at_ms, self.message.scheduled_at_ms)

    def identity(self) -> tuple[str, str | None, str | None]:
        return (self.topic, self.message.message_id, self.message.partition_key)


class Copy(NamedTuple):
    """A copy as a disk keeps it."""

    fragment: FragmentId
    number: int
    mark: int
    kind: str
    payload: bytes


class Found:
    """All copies of one message, and the transaction they came with."""

    def __init__(self, commit: int, at_ms: int) -> None:
        self.commit = commit
        self.at_ms = at_ms
        self.copies: dict[str, Counter[str]] = {}


def _may_be_overtaken(publication: Publication, by: Publication) -> bool:
    """A batch of several keys whose gateway died is not late for its fragments before a second is
    over; whoever goes on over another gateway in that second may be faster.
    """
    keys = {each.message.partition_key for each in publication.batch}
    is_lost = publication.outcome == "unknown" and len(keys) > 1
    return is_lost and by.asked_at_ms < publication.told_at_ms + PROMISE_LATE_MS


class TopicBook:
    def __init__(self, name_of: Callable[[int], str], window_ms: int) -> None:
        self.possible: dict[str, Possible] = {}
        self.publications: dict[int, Publication] = {}
        self.found: dict[int, Found] = {}
        self.kept: dict[tuple[FragmentId, int], Copy] = {}
        self.events: Counter[str] = Counter()
        self._name_of = name_of
        self._window_ms = window_ms
        # For how much longer than its window an id may be remembered.
        self.window_slack_ms = 0
        self._commits = 0
        self._completing: set[tuple[FragmentId, int]] = set()
        self._completed: set[tuple[FragmentId, int]] = set()
        self._seen: set[tuple[FragmentId, int]] = set()
        self._last_of_key: dict[tuple[FragmentId, int, str | None], int] = {}
        self._excused: set[FragmentId] = set()
        self._last_seen: dict[FragmentId, int] = {}

    def of(self, path: str) -> Possible:
        return self.possible.setdefault(path.lower(), Possible())

    # What disks store.

    def stored(self, commits: Sequence[FragmentCommit], now_ms: int) -> None:
        self._commits += 1
        for commit in commits:
            for change in commit.changes:
                if isinstance(change, Append):
                    for entry in change.entries:
                        self._appended(commit.fragment, entry, now_ms)
                elif isinstance(change, Remove):
                    self._removed(commit.fragment, change.sequence_numbers)

    def _appended(self, fragment: FragmentId, entry: Entry, now_ms: int) -> None:
        assert entry.payload is not None
        mark = mark_of(entry.payload)
        publication = self.publications[mark]
        name = self._name_of(fragment.entity_id).lower()
        if name == publication.topic:
            if entry.state != SCHEDULED:
                raise Violation(f"message {mark} was stored in the topic itself")
            return
        if entry.state != ACTIVE or not name.startswith(publication.topic + "/"):
            raise Violation(f"message {mark} of {publication.topic} began at {name} as {entry}")
        found = self.found.setdefault(mark, Found(self._commits, now_ms))
        if found.commit != self._commits:
            raise Violation(f"message {mark} was published twice, or in two transactions")
        kind = kind_of(entry, publication.letter)
        copies = found.copies.setdefault(name, Counter())
        is_first = not copies
        copies[kind] += 1
        copy = Copy(fragment, entry.sequence_number, mark, kind, entry.payload)
        self.kept[fragment, entry.sequence_number] = copy
        self.events[kind] += 1
        if now_ms < publication.from_ms():
            raise Violation(f"message {mark} was published before its moment")
        # Further copies have numbers after those of the whole batch.
        if is_first and publication.is_ordered and not publication.is_scheduled:
            self._check_order(copy, publication)

    def _check_order(self, copy: Copy, publication: Publication) -> None:
        """Numbers follow the order of sending: of a key, or of all in a conventional topic."""
        place = (copy.fragment, publication.publisher, publication.message.partition_key)
        last = self._last_of_key.get(place, 0)
        if copy.mark < last:
            if not _may_be_overtaken(publication, self.publications[last]):
                raise Violation(f"message {copy.mark} came after {last}: {place}")
            self.events["overtaken"] += 1
            return
        self._last_of_key[place] = copy.mark

    def _removed(self, fragment: FragmentId, numbers: Iterable[int]) -> None:
        for number in numbers:
            copy = self.kept.get((fragment, number))
            if copy is not None and (fragment, number) not in self._completing:
                raise Violation(f"{copy} was removed, and nobody had asked for it")

    # What publishers are told.

    def attempted(self, publication: Publication) -> None:
        self.publications[publication.letter.mark] = publication

    def told(self, publications: list[Publication], answer: object, now_ms: int) -> None:
        outcome = outcome_of(answer)
        numbers = answer.numbers() if isinstance(answer, Sent) else [0] * len(publications)
        for publication, number in zip(publications, numbers, strict=True):
            publication.batch = publications
            publication.outcome = outcome
            publication.told_at_ms = now_ms
            publication.number = number
            publication.is_dropped = outcome == "accepted" and number == 0
            self.events[outcome] += 1
            if publication.is_dropped:
                self._check_dropped(publication)
        commits = {
            found.commit
            for publication in publications
            if not publication.is_scheduled and (found := self._of(publication)) is not None
        }
        keys = {publication.message.partition_key for publication in publications}
        if len(commits) > 1 and len(keys) == 1:
            raise Violation(f"one batch was stored by commits {commits}")
        self.events["batch in several commits"] += len(commits) > 1

    def _of(self, publication: Publication) -> Found | None:
        return self.found.get(publication.letter.mark)

    def _accepted_at_ms(self, publication: Publication) -> int:
        """The latest moment at which it can have been accepted."""
        found = self._of(publication)
        if found is None or publication.is_scheduled:
            return publication.told_at_ms
        return min(found.at_ms, publication.told_at_ms)

    def _check_dropped(self, dropped: Publication) -> None:
        self.events["duplicate dropped"] += 1
        for other in self.publications.values():
            if other is not dropped and other.identity() == dropped.identity():
                is_known = other.outcome == "accepted"
                latest_ms = other.told_at_ms if is_known else dropped.told_at_ms
                until_ms = latest_ms + self._window_ms + self.window_slack_ms
                is_recent = dropped.asked_at_ms < until_ms
                if other.outcome != "refused" and not other.is_dropped and is_recent:
                    return
        raise Violation(f"message {dropped.letter.mark} was dropped, and is no duplicate")

    # What subscribers get.

    def delivered(self, fragment: FragmentId, line: int, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            place = (fragment, delivery.entry.sequence_number)
            copy = self.kept.get(place)
            if copy is None or copy.payload != delivery.payload:
                raise Violation(f"{place} was delivered as {delivery.payload!r}, but is {copy}")
            if place in self._completed:
                raise Violation(f"{copy} was delivered after it had been completed")
            if place in self._seen:
                self.events["delivered again"] += 1
                continue
            self._seen.add(place)
            if line == MAIN_LINE and fragment not in self._excused:
                if copy.number < self._last_seen.get(fragment, 0):
                    raise Violation(f"{copy} was delivered out of order")
                self._last_seen[fragment] = copy.number

    def unheard(self, fragment: FragmentId) -> None:
        """Nobody heard what was received: it may be locked for a while, and come late."""
        self._excused.add(fragment)

    def completing(self, fragment: FragmentId, deliveries: Sequence[Delivery]) -> None:
        self._completing |= {(fragment, each.entry.sequence_number) for each in deliveries}

    def completed(self, fragment: FragmentId, number: int) -> None:
        self._completed.add((fragment, number))

    # When everything is over.

    def finish(self, now_ms: int, existing: set[int]) -> None:
        """`existing` are the subscriptions that there are still: they have been drained."""
        for place, copy in self.kept.items():
            if copy.fragment.entity_id in existing and place not in self._seen:
                raise Violation(f"{copy} was stored and never delivered")
        for publication in self.publications.values():
            self._check_end(publication, now_ms)
        self._check_duplicates()

    def _check_end(self, publication: Publication, now_ms: int) -> None:
        mark, found = publication.letter.mark, self._of(publication)
        if found is not None:
            if publication.outcome == "refused" or publication.is_dropped:
                raise Violation(f"message {mark} was refused or dropped, and published")
            if publication.is_cancelled:
                raise Violation(f"message {mark} was cancelled, and published")
            self._check_copies(publication, found.copies, found.at_ms)
        elif publication.outcome == "accepted" and self._must_be_there(publication):
            until_ms = now_ms if publication.is_scheduled else publication.told_at_ms
            self._check_copies(publication, {}, until_ms)
        elif self._is_half_done(publication):
            self._check_copies(publication, {}, now_ms)

    def _is_half_done(self, publication: Publication) -> bool:
        """Whether it is not there, and another of the same batch is (R49)."""
        is_simple = publication.message.message_id is None and not publication.is_scheduled
        others = [self._of(other) for other in publication.batch if not other.is_scheduled]
        return is_simple and publication.outcome == "unknown" and any(others)

    def _must_be_there(self, publication: Publication) -> bool:
        is_gone = publication.is_cancelled or publication.may_be_cancelled
        return not publication.is_dropped and not is_gone

    def _check_copies(
        self, publication: Publication, copies: dict[str, Counter[str]], until_ms: int
    ) -> None:
        for path, possible in self.possible.items():
            if not path.startswith(publication.topic + "/"):
                continue
            got = copies.get(path, Counter())
            allowed = [
                Counter() if rules is None else expected(publication.letter, rules)
                for rules in possible.between(publication.from_ms(), until_ms)
            ]
            if got not in allowed:
                raise Violation(
                    f"{publication.letter} at {path}: got {dict(got)}, expected one of "
                    f"{[dict(one) for one in allowed]}"
                )
            self.events["reached" if got else "passed over"] += 1

    def _check_duplicates(self) -> None:
        taken: dict[tuple[str, str | None, str | None], list[Publication]] = {}
        for publication in self.publications.values():
            is_taken = publication.number > 0
            if is_taken and publication.message.message_id is not None:
                taken.setdefault(publication.identity(), []).append(publication)
        for same in taken.values():
            for first, second in pairwise(same):
                accepted_at_ms = self._accepted_at_ms(second)
                if accepted_at_ms < first.asked_at_ms + self._window_ms:
                    raise Violation(
                        f"messages {first.letter.mark} and {second.letter.mark} are duplicates, "
                        "and both were accepted"
                    )
