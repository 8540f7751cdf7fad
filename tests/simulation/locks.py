"""Locks as fragments gave them out, and what became of the messages under them."""

from collections import Counter
from collections.abc import Sequence

from shardbus.broker.fragment.answers import Answer
from shardbus.core.errors import MESSAGE_NOT_FOUND, Refused, Unavailable
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.message import ACTIVE, DEAD_LETTER_LINE, DEFERRED, DELAYED, MAIN_LINE, NEVER_MS
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Delivery,
    Receive,
    ReceiveDeferred,
    Renew,
    Renewed,
    Settle,
    Settled,
)
from shardbus.core.properties import unpack
from shardbus.core.sequence import TOKEN_SEED_BYTES, is_of_seed
from shardbus.stores.base.store import FragmentId
from tests.simulation.journal import Journal
from tests.simulation.records import (
    CLIENTS_REASON,
    EXHAUSTED_REASON,
    EXPIRED_REASON,
    Place,
    Record,
)
from tests.simulation.sending import Violation, mark_of

WAYS = {
    COMPLETE: "completed",
    ABANDON: "abandoned",
    DEAD_LETTER: "dead-lettered",
    RELEASE: "released",
    DEFER: "deferred",
}


class Heard:
    """One answer of a fragment: who gave it, and between which moments it was decided."""

    def __init__(
        self, fragment: FragmentId, rules: FragmentRules, life: int, asked_at_ms: int
    ) -> None:
        self.fragment = fragment
        self.rules = rules
        self.life = life
        self.asked_at_ms = asked_at_ms
        # The newest message that had been handed out when the fragment was asked.
        self.newest = 0
        self.now_ms = asked_at_ms


class Term:
    """Until when something is held; the locks of a session's messages share the session's."""

    def __init__(self, until_ms: int) -> None:
        self.until_ms = until_ms
        self.locks: list[Held] = []


class Held:
    """A lock as a fragment gave it out."""

    def __init__(self, track: "Track", term: Term, life: int, told_at_ms: int) -> None:
        self.track = track
        self.term = term
        self.life = life
        self.told_at_ms = told_at_ms
        # Deliveries of dead letters are not counted.
        self.is_counted = True
        self.was_deferred = False
        self.is_delivered = False
        self.is_settling = False
        self.seed = b""
        # Settlements that were asked for and are not answered yet.
        self.open = 0
        term.locks.append(self)


class Track:
    """What is known for certain about a stored message."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.held: Held | None = None
        # When its last lock was let go, if somebody did.
        self.free_since_ms = NEVER_MS
        self.count_min = 0
        self.count_max = 0
        self.was_handed = False
        self.was_handed_again = False
        self.is_gone = False
        self.dead_letter_asked = False
        self.modified: dict[str, bytes] = {}
        # What settlements of unknown outcome may have modified.
        self.maybe_modified: list[dict[str, bytes]] = []

    def check_modified(self, actual: dict[str, bytes]) -> None:
        """What settlements modified is there, the last of each name; nothing else is."""
        for name in {
            *actual,
            *self.modified,
            *(name for one in self.maybe_modified for name in one),
        }:
            known = [one.get(name) for one in (self.modified, *self.maybe_modified)]
            if actual.get(name) not in known:
                raise Violation(f"{self.place}: property {name!r} is {actual.get(name)!r}")
        self.modified, self.maybe_modified = actual, []


class LockBook:
    def __init__(self, journal: Journal, events: Counter[str]) -> None:
        self.held: dict[bytes, Held] = {}
        # Releases of what nobody heard of that are not answered yet, by the seed of the tokens.
        self._open_seeds: Counter[bytes] = Counter()
        self._journal = journal
        self._events = events
        self._tracks: dict[Place, Track] = {}
        self._first_handed: dict[FragmentId, int] = {}
        self._returning: dict[FragmentId, int] = {}
        self._fragment_of_key: dict[tuple[int, str], FragmentId] = {}

    def newest(self, fragment: FragmentId) -> int:
        """The newest message that a fragment handed out."""
        return self._first_handed.get(fragment, 0)

    def may_be_held(self, record: Record, life: int, from_ms: int) -> bool:
        """Whether a message can have been locked at or after a moment."""
        track = self._tracks.get(record.place)
        was_held = track is not None and track.free_since_ms > from_ms
        return was_held or self._open(record) > 0 or self.has_term(record, life, from_ms)

    def must_be_held(self, record: Record, life: int, to_ms: int) -> bool:
        """Whether a message was locked without a doubt until a moment."""
        return self._open(record) == 0 and self.has_term(record, life, to_ms)

    def has_term(self, record: Record, life: int, now_ms: int) -> bool:
        """Whether the lock of a message lasts, unless it is settled."""
        track = self._tracks.get(record.place)
        held = None if track is None else track.held
        return held is not None and held.life == life and held.term.until_ms > now_ms

    def _open(self, record: Record) -> int:
        track = self._tracks.get(record.place)
        if track is None or track.held is None:
            return 0
        return track.held.open + self._open_seeds[track.held.seed]

    # Receiving.

    def received(
        self,
        heard: Heard,
        command: Receive | ReceiveDeferred,
        deliveries: Sequence[Delivery],
        term: Term | None,
    ) -> None:
        """Messages were handed out; those of a session share its term."""
        for delivery in deliveries:
            # When it was taken: known exactly from a lock, otherwise between question and answer.
            earliest_ms, latest_ms = heard.asked_at_ms, heard.now_ms
            if command.is_locking and term is None:
                earliest_ms = latest_ms = delivery.locked_until_ms - heard.rules.lock_ms
            track = self._known(heard.fragment, delivery)
            self._check_state(track, command)
            self._check_handing(track, heard, command.line, earliest_ms, latest_ms)
            if command.line == MAIN_LINE and isinstance(command, Receive):
                # Of those that are asked for side by side the later may be answered first.
                self._check_first(track, -1 if term is not None else heard.newest)
            self._check_count(track, delivery, heard, command)
            if command.is_locking:
                until = term or Term(delivery.locked_until_ms)
                held = Held(track, until, heard.life, heard.now_ms)
                held.is_counted = command.line == MAIN_LINE
                held.was_deferred = isinstance(command, ReceiveDeferred)
                self._lock(track, delivery.token, held)
            else:
                self.gone(track.place)
            self._note(command)

    def perhaps_removed(self, fragment: FragmentId, *, is_certain: bool) -> None:
        """A receive without locks, or a purge, ended unknown, or certainly did nothing."""
        if not is_certain:
            self._journal.explain_all(fragment)
        # They may have been taken, and come back after what was locked meanwhile.
        self._returning[fragment] = self.newest(fragment)

    def check_not_found(self, heard: Heard, command: ReceiveDeferred, session: str | None) -> None:
        """Deferred messages were refused: one of them is not there, not deferred or locked."""
        for number in command.sequence_numbers:
            record = self._journal.records.get(Place(heard.fragment, number))
            if record is None or record.is_gone or self._journal.is_damaged(record):
                return
            is_there = record.state == DEFERRED and record.line == command.line
            is_ours = session is None or record.session == session
            if not is_there or not is_ours or record.has_expired(heard.now_ms):
                return
            if self.may_be_held(record, heard.life, heard.asked_at_ms):
                return
        raise Violation(f"{command.sequence_numbers} are deferred and free, but were not found")

    def _note(self, command: Receive | ReceiveDeferred) -> None:
        self._events["locked" if command.is_locking else "deleted"] += 1
        if isinstance(command, ReceiveDeferred):
            self._events["deferred received"] += 1
        if command.line == DEAD_LETTER_LINE:
            self._events["dead letter delivered"] += 1

    def _known(self, fragment: FragmentId, delivery: Delivery) -> Track:
        """The message by its payload: attempted, not refused, and at its one place."""
        assert delivery.payload is not None
        mark = mark_of(delivery.payload)
        sending = self._journal.sendings.get(mark)
        if sending is None or sending.outcome == "refused":
            raise Violation(f"phantom: message {mark} was never sent or was refused")
        place = Place(fragment, delivery.entry.sequence_number)
        kept = self._journal.places.get(mark)
        if kept != place:
            raise Violation(f"message {mark} came from {place}, but is stored at {kept}")
        if sending.key is not None:
            home = self._fragment_of_key.setdefault((sending.entity_id, sending.key), fragment)
            if home != fragment:
                raise Violation(f"key {sending.key!r} is in {home} and in {fragment} (R10)")
        track = self._tracks.setdefault(place, Track(place))
        track.check_modified(unpack(delivery.entry.modified))
        return track

    def _check_state(self, track: Track, command: Receive | ReceiveDeferred) -> None:
        record = self._journal.records[track.place]
        wanted = DEFERRED if isinstance(command, ReceiveDeferred) else ACTIVE
        if (record.state, record.line) != (wanted, command.line):
            raise Violation(
                f"{track.place} in state {record.state} of line {record.line} was delivered by "
                f"{type(command).__name__} of line {command.line}"
            )

    def _check_handing(
        self, track: Track, heard: Heard, line: int, earliest_ms: int, latest_ms: int
    ) -> None:
        record, place = self._journal.records[track.place], track.place
        if track.is_gone:
            raise Violation(f"{place} was completed or deleted, and came back")
        if line == MAIN_LINE and NEVER_MS < record.expires_at_ms <= earliest_ms:
            raise Violation(f"{place} was delivered after it expired")
        moment_ms = self._journal.sendings[record.mark].message.scheduled_at_ms
        if latest_ms < moment_ms:
            raise Violation(f"{place} was delivered before its moment, {moment_ms}")
        held = track.held
        is_held = held is not None and held.life == heard.life and not self._is_let_go(held)
        if held is not None and is_held and held.term.until_ms > latest_ms:
            raise Violation(f"{place} is held by two: until {held.term.until_ms} and again")

    def _check_first(self, track: Track, newest: int) -> None:
        place = track.place
        if not track.was_handed:
            if self._returning.get(place.fragment, 0) < place.sequence_number <= newest:
                raise Violation(f"{place} was delivered for the first time out of order")
            known = self.newest(place.fragment)
            self._first_handed[place.fragment] = max(known, place.sequence_number)
        track.was_handed_again = track.was_handed
        track.was_handed = True

    def _check_count(
        self, track: Track, delivery: Delivery, heard: Heard, command: Receive | ReceiveDeferred
    ) -> None:
        self._lapse(track, heard.life)
        count, place = delivery.delivery_count, track.place
        if not track.count_min <= count <= track.count_max:
            raise Violation(
                f"{place} has delivery count {count}, not {track.count_min}..{track.count_max}"
            )
        track.count_min = track.count_max = count
        # Deferring counts, too, and does not kill what is deferred for the first time.
        most = heard.rules.delivery_count_max - (not isinstance(command, ReceiveDeferred))
        if command.line == MAIN_LINE and count > most:
            raise Violation(f"{place} should be a dead letter after {count} deliveries")
        if command.line == DEAD_LETTER_LINE:
            self._check_reason(track, delivery, heard.rules)

    def _check_reason(self, track: Track, delivery: Delivery, rules: FragmentRules) -> None:
        reason = delivery.entry.reason
        is_exhausted = delivery.delivery_count >= rules.delivery_count_max
        is_sound = (
            (reason == CLIENTS_REASON and track.dead_letter_asked)
            or (reason == EXHAUSTED_REASON and is_exhausted)
            # The journal has seen whether its time had come.
            or reason == EXPIRED_REASON
        )
        if not is_sound:
            raise Violation(f"{track.place} is a dead letter without cause: {reason!r}")

    def _lapse(self, track: Track, life: int) -> None:
        """The last lock is over: by expiry it counts; if its fragment was reloaded, perhaps."""
        held = track.held
        if held is not None and held.is_counted:
            track.count_max += 1
            if held.life == life and not self._is_let_go(held):
                track.count_min += 1
        track.held = None

    def _is_let_go(self, held: Held) -> bool:
        """Perhaps: who has lost an answer lets go, which is told after what only locks."""
        return self._open_seeds[held.seed] > 0

    def _lock(self, track: Track, token: bytes, held: Held) -> None:
        if token in self.held:
            raise Violation(f"lock token {token.hex()} was given out twice")
        self.held[token] = held
        held.seed = token[-TOKEN_SEED_BYTES:]
        track.held = held

    # Settling.

    def settling(self, tokens: Sequence[bytes], change: int) -> None:
        """Settlements are asked for (1) or answered (-1)."""
        for token in tokens:
            if token in self.held:
                self.held[token].open += change
            elif is_of_seed(token):
                self._open_seeds[token[-TOKEN_SEED_BYTES:]] += change

    def settled(self, heard: Heard, command: Settle, answer: Answer) -> None:
        for position, token in enumerate(command.tokens):
            if is_of_seed(token):
                self._let_go_unheard(heard, token, command, answer)
            held = self.held.get(token)
            if held is None:
                continue
            held.is_settling = True
            if command.how == DEAD_LETTER:
                held.track.dead_letter_asked = True
            if isinstance(answer, Settled):
                self._settled_one(heard, held, command, answer.lost[position])
            elif isinstance(answer, Unavailable) and answer.is_unknown:
                held.track.maybe_modified.append(unpack(command.modified))
                if command.how == COMPLETE:
                    self._journal.explain(held.track.place)

    def _let_go_unheard(self, heard: Heard, token: bytes, command: Settle, answer: Answer) -> None:
        """Whatever was locked for an answer that was lost is locked no more."""
        for held in self.held.values():
            if held.seed != token[-TOKEN_SEED_BYTES:] or held.is_settling:
                continue
            held.is_settling = True
            is_current = held.track.held is held and held.life == heard.life
            if not isinstance(answer, Settled) or not is_current:
                continue
            if held.term.until_ms > heard.now_ms:
                self._settled_one(heard, held, command, False)
                self._events["unheard of, released"] += 1
            elif held.term.until_ms > heard.asked_at_ms:
                # Let go in time, perhaps, and told after its end.
                held.track.held = None
                held.track.free_since_ms = heard.now_ms
                held.track.count_max += 1

    def _settled_one(self, heard: Heard, held: Held, command: Settle, is_lost: bool) -> None:
        track = held.track
        is_current = track.held is held and held.life == heard.life
        if is_lost:
            if is_current and held.term.until_ms > heard.now_ms:
                raise Violation(f"{track.place}: the lock was lost before its time")
            self._events["lock lost"] += 1
            return
        if not is_current:
            raise Violation(f"{track.place}: settled by a lock that was over")
        if held.term.until_ms <= heard.asked_at_ms:
            raise Violation(f"{track.place}: settled after its deadline")
        track.held = None
        track.free_since_ms = heard.now_ms
        self._events[WAYS[command.how]] += 1
        if command.how == COMPLETE:
            self.gone(track.place)
            return
        if command.how in (ABANDON, DEFER) and held.is_counted:
            track.count_min += 1
            track.count_max += 1
        self._modify(track, command, heard.now_ms)
        self._check_stored(heard, held, command)

    def _modify(self, track: Track, command: Settle, now_ms: int) -> None:
        record = self._journal.records[track.place]
        if record.has_expired(now_ms) or record.reason == EXPIRED_REASON:
            track.maybe_modified.append(unpack(command.modified))
        else:
            track.modified = {**track.modified, **unpack(command.modified)}

    def _check_stored(self, heard: Heard, held: Held, command: Settle) -> None:
        """What a client is told to have done is what the store holds."""
        record = self._journal.records[held.track.place]
        if record.is_gone or record.has_expired(heard.now_ms) or record.reason == EXPIRED_REASON:
            return
        place = record.place
        if command.how == DEAD_LETTER and record.line != DEAD_LETTER_LINE:
            raise Violation(f"{place} was dead-lettered, but is on line {record.line}")
        is_killed = held.was_deferred and record.reason == EXHAUSTED_REASON
        if command.how == DEFER and record.state != DEFERRED and not is_killed:
            raise Violation(f"{place} was deferred, but is in state {record.state}")
        if command.how == ABANDON and record.state == DELAYED:
            self._check_delay(heard, record, command.delay_ms)
        elif command.how == ABANDON and command.delay_ms and record.state == ACTIVE:
            if record.line == DEAD_LETTER_LINE and record.reason == EXHAUSTED_REASON:
                return
            raise Violation(f"{place} was to wait for {command.delay_ms} ms, and does not")
        if command.how == RELEASE and record.state == DELAYED:
            raise Violation(f"{place} was released, and is delayed")

    def _check_delay(self, heard: Heard, record: Record, delay_ms: int) -> None:
        until_ms = record.delayed_until_ms
        is_cut = until_ms == record.expires_at_ms
        is_meant = heard.asked_at_ms + delay_ms <= until_ms <= heard.now_ms + delay_ms
        if delay_ms == 0 or not (is_cut or is_meant):
            raise Violation(f"{record.place} is delayed until {until_ms}, not for {delay_ms} ms")
        self._events["delayed"] += 1

    def renewed(self, heard: Heard, command: Renew, answer: Answer) -> None:
        if not isinstance(answer, Renewed):
            return
        for token in command.tokens:
            held = self.held[token]
            if held.term.until_ms <= heard.asked_at_ms:
                raise Violation(f"{held.track.place}: renewed after its deadline")
            # Those of a session keep the session's, which is longer than is told.
            held.term.until_ms = max(held.term.until_ms, answer.locked_until_ms)
            self._events["renewed"] += 1

    def let_go(self, heard: Heard, term: Term) -> None:
        """A session was released: its messages return, uncounted unless its time was up."""
        if term.until_ms <= heard.asked_at_ms:
            return
        for held in term.locks:
            if held.track.held is held:
                held.track.held = None
                held.track.free_since_ms = heard.now_ms
                if term.until_ms <= heard.now_ms and held.is_counted:
                    held.track.count_max += 1

    def gone(self, place: Place) -> None:
        """Somebody was told that a message is completed, deleted, cancelled or purged."""
        if not self._journal.is_removed(place):
            raise Violation(f"{place} was answered as gone but is still stored")
        track = self._tracks.setdefault(place, Track(place))
        track.is_gone = True
        track.held = None
        self._journal.explain(place)


def is_not_found(answer: Answer) -> bool:
    return isinstance(answer, Refused) and answer.kind is MESSAGE_NOT_FOUND
