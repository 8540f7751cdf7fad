"""The promises of the bus, checked against everything that anyone was told.

A fragment's answers are heard where they leave the fragment, so that every lock and every outcome
is known exactly, whoever asked; what senders and receivers were told is heard at the client.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from shardbus.broker.runner import Answer
from shardbus.core.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    RELEASE,
    Command,
    Delivery,
    FragmentRules,
    Receive,
    Received,
    Renew,
    Renewed,
    Send,
    Sent,
    Settle,
    Settled,
)
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS
from shardbus.stores.base import FragmentId
from tests.simulation.journal import Journal, Place, Violation, mark_of, marks_of

CLIENTS_REASON = "the client's wish"
WAYS = {
    COMPLETE: "completed",
    ABANDON: "abandoned",
    DEAD_LETTER: "dead-lettered",
    RELEASE: "released",
}


class Sending:
    """One message as its sender knows it; it ends accepted, refused or unknown."""

    def __init__(
        self, mark: int, entity_id: int, key: str | None, ttl_ms: int, batch: int | None
    ) -> None:
        self.mark = mark
        self.entity_id = entity_id
        self.key = key
        self.ttl_ms = ttl_ms
        self.batch = batch
        self.outcome = "pending"


class Asked:
    """When a fragment was asked, and the newest message it had handed out by then."""

    def __init__(self, at_ms: int, newest: int) -> None:
        self.at_ms = at_ms
        self.newest = newest


class Held:
    """A lock as a fragment gave it out."""

    def __init__(
        self, track: "Track", token: bytes, until_ms: int, life: int, told_at_ms: int
    ) -> None:
        self.track = track
        self.told_at_ms = told_at_ms
        self.token = token
        self.until_ms = until_ms
        self.life = life
        self.is_delivered = False
        self.is_settling = False


class Track:
    """What is known for certain about a stored message."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.held: Held | None = None
        self.count_min = 0
        self.count_max = 0
        self.was_handed = False
        self.was_handed_again = False
        self.is_gone = False
        self.dead_letter_asked = False


class Checker:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.sendings: dict[int, Sending] = {}
        self.deliveries = 0
        self.events: Counter[str] = Counter()
        self._tracks: dict[Place, Track] = {}
        self._held: dict[bytes, Held] = {}
        self._lives: dict[FragmentId, int] = {}
        self._first_handed: dict[FragmentId, int] = {}
        self._returning: dict[FragmentId, int] = {}
        self._fragment_of_key: dict[tuple[int, str], FragmentId] = {}
        self._last_of_key: dict[tuple[int, str], int] = {}
        self._seen: set[int] = set()
        # Whether an answer of a fragment may have been lost on its way between two moments.
        self.may_lose: Callable[[FragmentId, int, int], bool] = lambda fragment, from_ms, to_ms: (
            False
        )

    # What senders are told.

    def attempted(self, sending: Sending) -> None:
        self.sendings[sending.mark] = sending

    def told(self, mark: int, answer: Answer) -> None:
        sending = self.sendings[mark]
        if sending.outcome != "pending":
            raise Violation(f"message {mark} was answered twice")
        if isinstance(answer, Sent):
            sending.outcome = "accepted"
            if not self.journal.is_stored(mark):
                raise Violation(f"message {mark} was accepted but never stored")
        elif isinstance(answer, Unavailable) and answer.is_unknown:
            sending.outcome = "unknown"
        else:
            assert isinstance(answer, Refused | Unavailable)
            sending.outcome = "refused"

    # What fragments say.

    def loaded(self, fragment: FragmentId) -> None:
        self._lives[fragment] = self._life(fragment) + 1
        self.events["reloaded"] += 1

    def asked(self, fragment: FragmentId, now_ms: int) -> Asked:
        return Asked(now_ms, self._first_handed.get(fragment, 0))

    def answered(
        self,
        fragment: FragmentId,
        rules: FragmentRules,
        command: Command,
        answer: Answer,
        *,
        asked: Asked,
        now_ms: int,
    ) -> None:
        if isinstance(command, Send):
            if isinstance(answer, Sent):
                self._sent(fragment, command, answer)
        elif isinstance(command, Receive):
            if isinstance(answer, Received):
                self._received(
                    fragment,
                    rules,
                    command,
                    answer.deliveries,
                    asked=asked,
                    now_ms=now_ms,
                )
            elif not command.is_locking and isinstance(answer, Unavailable) and answer.is_unknown:
                self.journal.explain_all(fragment)
                # They may have been taken, and come back after what was locked meanwhile.
                self._returning[fragment] = self._first_handed.get(fragment, 0)
        elif isinstance(command, Settle):
            self._settled(command, answer, asked.at_ms, now_ms)
        elif isinstance(command, Renew):
            self._renewed(command, answer, asked.at_ms)

    def _sent(self, fragment: FragmentId, command: Send, answer: Sent) -> None:
        for offset, mark in enumerate(marks_of(command.messages)):
            place = Place(fragment, answer.first + offset)
            if self.journal.places.get(mark) != place:
                raise Violation(f"message {mark} was answered as {place} but is not stored there")

    def _received(
        self,
        fragment: FragmentId,
        rules: FragmentRules,
        command: Receive,
        deliveries: Sequence[Delivery],
        *,
        asked: Asked,
        now_ms: int,
    ) -> None:
        numbers = [delivery.entry.sequence_number for delivery in deliveries]
        if numbers != sorted(set(numbers)):
            raise Violation(f"{fragment} line {command.line} out of order: {numbers}")
        if len(numbers) > command.count_max:
            raise Violation(f"{fragment} gave {len(numbers)} of {command.count_max} asked for")
        for delivery in deliveries:
            # When it was taken: known exactly from a lock, otherwise between question and answer.
            earliest_ms, latest_ms = asked.at_ms, now_ms
            if command.is_locking:
                earliest_ms = latest_ms = delivery.locked_until_ms - rules.lock_ms
            track = self._known(fragment, delivery)
            self._check_handing(track, delivery, command.line, earliest_ms, latest_ms)
            if command.line == MAIN_LINE:
                # What was removed is answered after what was locked in the meantime.
                newest = self._first_handed.get(fragment, 0) if command.is_locking else asked.newest
                self._check_first(track, newest)
            self._check_count(track, delivery, rules, command.line)
            if command.line == DEAD_LETTER_LINE:
                self.events["dead letter delivered"] += 1
            if command.is_locking:
                self._lock(track, delivery, now_ms)
            else:
                self._gone(track)
            self.events["locked" if command.is_locking else "deleted"] += 1

    def _known(self, fragment: FragmentId, delivery: Delivery) -> Track:
        """The message by its payload: attempted, not refused, and at its one place."""
        assert delivery.payload is not None
        mark = mark_of(delivery.payload)
        sending = self.sendings.get(mark)
        if sending is None or sending.outcome == "refused":
            raise Violation(f"phantom: message {mark} was never sent or was refused")
        place = Place(fragment, delivery.entry.sequence_number)
        if self.journal.places.get(mark) != place:
            kept = self.journal.places.get(mark)
            raise Violation(f"message {mark} came from {place}, but is stored at {kept}")
        if sending.key is not None:
            home = self._fragment_of_key.setdefault((sending.entity_id, sending.key), fragment)
            if home != fragment:
                raise Violation(f"key {sending.key!r} is in {home} and in {fragment} (R10)")
        return self._tracks.setdefault(place, Track(place))

    def _check_handing(
        self, track: Track, delivery: Delivery, line: int, earliest_ms: int, latest_ms: int
    ) -> None:
        entry, place = delivery.entry, track.place
        if track.is_gone:
            raise Violation(f"{place} was completed or deleted, and came back")
        if line == MAIN_LINE and NEVER_MS < entry.expires_at_ms <= earliest_ms:
            raise Violation(f"{place} was delivered after it expired")
        held = track.held
        is_held = held is not None and held.life == self._life(place.fragment)
        if held is not None and is_held and held.until_ms > latest_ms:
            raise Violation(f"{place} is held by two: until {held.until_ms} and again")

    def _check_first(self, track: Track, newest: int) -> None:
        place = track.place
        if not track.was_handed:
            if self._returning.get(place.fragment, 0) < place.sequence_number <= newest:
                raise Violation(f"{place} was delivered for the first time out of order")
            known = self._first_handed.get(place.fragment, 0)
            self._first_handed[place.fragment] = max(known, place.sequence_number)
        track.was_handed_again = track.was_handed
        track.was_handed = True

    def _check_count(
        self, track: Track, delivery: Delivery, rules: FragmentRules, line: int
    ) -> None:
        self._lapse(track)
        count, place = delivery.delivery_count, track.place
        if not track.count_min <= count <= track.count_max:
            raise Violation(
                f"{place} has delivery count {count}, not {track.count_min}..{track.count_max}"
            )
        track.count_min = track.count_max = count
        if line == MAIN_LINE and count >= rules.max_delivery_count:
            raise Violation(f"{place} should be a dead letter after {count} deliveries")
        if line == DEAD_LETTER_LINE:
            self._check_reason(track, delivery, rules)

    def _check_reason(self, track: Track, delivery: Delivery, rules: FragmentRules) -> None:
        reason = delivery.entry.reason
        mark = mark_of(delivery.payload or b"")
        is_sound = (
            (reason == CLIENTS_REASON and track.dead_letter_asked)
            or (
                reason == "MaxDeliveryCountExceeded"
                and delivery.delivery_count >= rules.max_delivery_count
            )
            or (
                reason == "TTLExpiredException"
                and rules.dead_letters_on_expiry
                and (self.sendings[mark].ttl_ms >= 0 or rules.default_ttl_ms >= 0)
            )
        )
        if not is_sound:
            raise Violation(f"{track.place} is a dead letter without cause: {reason!r}")

    def _lapse(self, track: Track) -> None:
        """The last lock is over: by expiry it counts; if its fragment was reloaded, perhaps."""
        held = track.held
        if held is not None:
            track.count_max += 1
            if held.life == self._life(track.place.fragment):
                track.count_min += 1
            track.held = None

    def _lock(self, track: Track, delivery: Delivery, now_ms: int) -> None:
        life = self._life(track.place.fragment)
        held = Held(track, delivery.token, delivery.locked_until_ms, life, now_ms)
        if delivery.token in self._held:
            raise Violation(f"lock token {delivery.token.hex()} was given out twice")
        self._held[delivery.token] = held
        track.held = held

    # Settling.

    def _settled(self, command: Settle, answer: Answer, asked_at_ms: int, now_ms: int) -> None:
        for position, token in enumerate(command.tokens):
            held = self._held.get(token)
            if held is None:
                continue
            held.is_settling = True
            if command.how == DEAD_LETTER:
                held.track.dead_letter_asked = True
            if isinstance(answer, Settled):
                self._settled_one(held, command.how, answer.lost[position], asked_at_ms, now_ms)
            elif isinstance(answer, Unavailable) and command.how == COMPLETE and answer.is_unknown:
                self.journal.explain(held.track.place)

    def _settled_one(
        self, held: Held, how: int, is_lost: bool, asked_at_ms: int, now_ms: int
    ) -> None:
        track = held.track
        is_current = track.held is held and held.life == self._life(track.place.fragment)
        if is_lost:
            if is_current and held.until_ms > now_ms:
                raise Violation(f"{track.place}: the lock was lost before its time")
            self.events["lock lost"] += 1
            return
        if not is_current:
            raise Violation(f"{track.place}: settled by a lock that was over")
        if held.until_ms <= asked_at_ms:
            raise Violation(f"{track.place}: settled after its deadline")
        track.held = None
        self.events[WAYS[how]] += 1
        if how == COMPLETE:
            self._gone(track)
        elif how == ABANDON:
            track.count_min += 1
            track.count_max += 1

    def _renewed(self, command: Renew, answer: Answer, asked_at_ms: int) -> None:
        if not isinstance(answer, Renewed):
            return
        for token in command.tokens:
            held = self._held[token]
            if held.until_ms <= asked_at_ms:
                raise Violation(f"{held.track.place}: renewed after its deadline")
            held.until_ms = answer.locked_until_ms
            self.events["renewed"] += 1

    def _gone(self, track: Track) -> None:
        if track.place not in self.journal.removed:
            raise Violation(f"{track.place} was answered as gone but is still stored")
        track.is_gone = True
        track.held = None
        self.journal.explain(track.place)

    def told_completed(self, tokens: Sequence[bytes], lost: Sequence[bool]) -> None:
        """A client heard that its messages are completed, or that its locks were lost."""
        for token, is_lost in zip(tokens, lost, strict=True):
            place = self._held[token].track.place
            if not is_lost and place not in self.journal.removed:
                raise Violation(f"{place} was told to be completed, but is still stored")

    # What receivers get.

    def delivered(self, deliveries: Sequence[Delivery], *, is_ordered_by: str | None) -> None:
        for delivery in deliveries:
            assert delivery.payload is not None
            self.deliveries += 1
            mark = mark_of(delivery.payload)
            held = self._held.get(delivery.token)
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
        batches: dict[int, set[int | None]] = {}
        for mark, sending in self.sendings.items():
            rules = rules_of[sending.entity_id]
            self._check_end(sending, rules)
            if sending.batch is not None:
                batches.setdefault(sending.batch, set()).add(self.journal.commit_of.get(mark))
        for batch, commits in batches.items():
            if len(commits) != 1:
                raise Violation(f"batch {batch} is spread over commits {commits}")
        for held in self._held.values():
            is_current = held.life == self._life(held.track.place.fragment)
            if not is_current or held.is_delivered or held.is_settling:
                continue
            fragment = held.track.place.fragment
            if not self.may_lose(fragment, held.told_at_ms, held.until_ms):
                raise Violation(f"{held.track.place} was locked for nobody (R18)")

    def _check_end(self, sending: Sending, rules: FragmentRules) -> None:
        mark = sending.mark
        if sending.outcome == "pending":
            raise Violation(f"message {mark} was never answered")
        place = self.journal.places.get(mark)
        if place is None:
            return
        if sending.outcome == "refused":
            raise Violation(f"message {mark} was refused, but stored at {place}")
        if place in self.journal.damaged:
            return
        if place not in self.journal.removed:
            raise Violation(f"message {mark} at {place} does not come out")
        has_expiry = sending.ttl_ms >= 0 or rules.default_ttl_ms >= 0
        may_expire = has_expiry and not rules.dead_letters_on_expiry
        unexplained = self.journal.unexplained.get(place.fragment, set())
        if place.sequence_number in unexplained and not may_expire:
            raise Violation(f"lost: message {mark} at {place} was removed, and nobody had it")

    def _life(self, fragment: FragmentId) -> int:
        return self._lives.get(fragment, 0)
