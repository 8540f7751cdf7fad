"""The simplest possible fragment: a list of messages, each with what is true of it."""

from shardbus.core.limits import PRODUCER_ONCE_KEPT_MS, SESSION_GRACE_MS
from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    Message,
)


def is_same(one: str | None, other: str | None) -> bool:
    """Whether two spellings are one session; the names here are plain letters."""
    return (None if one is None else one.lower()) == (None if other is None else other.lower())


class Hold:
    """A session in somebody's hands; `shared` takes it over, if anything does."""

    def __init__(
        self, session_id: str, token: bytes, told_ms: int, shared: bytes | None = None
    ) -> None:
        self.session_id = session_id
        self.shared = shared
        self.token = token
        self.told_ms = told_ms

    def until_ms(self) -> int:
        return self.told_ms + SESSION_GRACE_MS


class ReaderModel:
    """A reader of a line, and which of its claims are open, completed or lost."""

    def __init__(self, line: int, name: str) -> None:
        self.line = line
        self.name = name
        self.reader_id = b""
        self.owner = b""
        self.lease_ms = 0
        self.heard_ms = 0
        self.completed = 0
        self.last = 0
        self.open: list[int] = []
        self.lost: list[int] = []


class StageModel:
    """A stage, the messages of its pieces, and which transaction it is promised to."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.pieces: dict[int, list[Message]] = {}
        self.lifetime_ms = 0
        self.expires_at_ms = 0
        self.promised_to = b""
        # Pieces that were found to be whole since the fragment was loaded.
        self.checked: set[int] = set()

    def __deepcopy__(self, memo: dict[int, object]) -> "StageModel":
        # Nobody changes a message, and compiled ones cannot be copied.
        copied = StageModel(self.name)
        copied.pieces = {piece: list(messages) for piece, messages in self.pieces.items()}
        copied.lifetime_ms = self.lifetime_ms
        copied.expires_at_ms = self.expires_at_ms
        copied.promised_to = self.promised_to
        copied.checked = set(self.checked)
        return copied

    def messages(self) -> list[Message]:
        return [each for piece in sorted(self.pieces) for each in self.pieces[piece]]


class Modelled:
    """One message that is not gone."""

    def __init__(
        self, number: int, payload: bytes, session_id: str | None, enqueued_at_ms: int
    ) -> None:
        self.number = number
        self.payload = payload
        self.session_id = session_id
        self.enqueued_at_ms = enqueued_at_ms
        self.expires_at_ms = NEVER_MS
        self.delayed_until_ms = NEVER_MS
        self.state = ACTIVE
        self.line = MAIN_LINE
        self.count = 0
        self.reason: str | None = None
        self.modified: dict[str, bytes] = {}
        self.token = b""
        self.locked_until_ms = 0
        self.hold: Hold | None = None
        self.reader: ReaderModel | None = None
        self.ordinal = 0

    def is_locked(self) -> bool:
        return self.token != b""

    def is_taken(self) -> bool:
        """Whether somebody has it locked or claimed."""
        return self.is_locked() or self.reader is not None

    def deadline_ms(self) -> int:
        return self.locked_until_ms if self.hold is None else self.hold.until_ms()

    def told_ms(self) -> int:
        return self.locked_until_ms if self.hold is None else self.hold.told_ms

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms != NEVER_MS and self.expires_at_ms <= now_ms

    def lock(self, token: bytes, until_ms: int, hold: Hold | None) -> None:
        self.token = token
        self.locked_until_ms = until_ms
        self.hold = hold

    def unlock(self) -> None:
        self.token = b""
        self.hold = None

    def die(self, reason: str | None) -> None:
        self.unlock()
        self.line = DEAD_LETTER_LINE
        self.state = ACTIVE
        self.expires_at_ms = NEVER_MS
        self.delayed_until_ms = NEVER_MS
        self.reason = reason


class Model:
    """All messages in the order of their numbers, who holds which session, and what was sent."""

    def __init__(self, limit: int, dead_letters_on_expiration: bool) -> None:
        self.messages: list[Modelled] = []
        self.holds: list[Hold] = []
        self.readers: list[ReaderModel] = []
        self.stages: dict[bytes, StageModel] = {}
        self.promised: dict[bytes, list[bytes]] = {}
        # The stages that are left of what is decided and not wholly sent.
        self.publishing: list[list[bytes]] = []
        # And those that were a part of it when its first bite was stored, in the same order.
        self.taken: list[list[bytes]] = []
        self.batches: dict[bytes, int] = {}
        # Of these the ones that publish once, and when they were last heard of.
        self.once: dict[bytes, int] = {}
        # What each batch was published with, by its producer and number.
        self.fingerprints: dict[tuple[bytes, int], bytes] = {}
        self.states: dict[str, bytes] = {}
        self.accepted: dict[str, int] = {}
        self.duplicates = 0
        self.last_number = 0
        self._limit = limit
        self._dead_letters_on_expiration = dead_letters_on_expiration

    # Looking.

    def available(self, line: int, session_id: str | None, now_ms: int) -> list[Modelled]:
        return [
            each
            for each in self.messages
            if each.line == line
            and each.state == ACTIVE
            and not each.is_taken()
            and not each.is_expired(now_ms)
            and (line != MAIN_LINE or is_same(each.session_id, session_id))
        ]

    def has_expired(self, now_ms: int) -> bool:
        """Whether something waits that nobody may have any more."""
        return any(e.is_expired(now_ms) and not e.is_taken() for e in self.messages)

    def numbered(self, number: int) -> Modelled | None:
        return next((each for each in self.messages if each.number == number), None)

    def held(self, token: bytes, now_ms: int) -> Modelled | None:
        for each in self.messages:
            if each.token == token and each.deadline_ms() > now_ms:
                return each
        return None

    def locked(self) -> list[Modelled]:
        return [each for each in self.messages if each.is_locked()]

    def hold_of(self, token: bytes, now_ms: int) -> Hold | None:
        for hold in self.holds:
            if hold.token == token and hold.until_ms() > now_ms:
                return hold
        return None

    def holder(self, session_id: str) -> Hold | None:
        return next((hold for hold in self.holds if is_same(hold.session_id, session_id)), None)

    def claimer(self, session_id: str) -> ReaderModel | None:
        """Who has claimed messages of a session, and so holds it."""
        for each in self.messages:
            is_of_it = each.line == MAIN_LINE and is_same(each.session_id, session_id)
            if each.reader is not None and is_of_it:
                return each.reader
        return None

    def claimable(self, line: int, reader: ReaderModel | None, now_ms: int) -> list[Modelled]:
        """What a reader may claim: nothing of sessions that somebody else holds."""
        if line != MAIN_LINE or all(each.session_id is None for each in self.messages):
            return self.available(line, None, now_ms)
        names = {e.session_id for e in self.messages if e.session_id is not None}
        open_to = [
            each
            for name in names
            if self.holder(name) is None and self.claimer(name) in (None, reader)
            for each in self.available(line, name, now_ms)
        ]
        return sorted(dict.fromkeys(open_to), key=lambda each: each.number)

    def free_sessions(self, now_ms: int) -> set[str]:
        """Sessions that nobody holds, with something to hand out, as the first of it is spelled."""
        found: dict[str, str] = {}
        for each in self.messages:
            name = each.session_id
            if (
                name is not None
                and self.holder(name) is None
                and self.claimer(name) is None
                and each in self.available(MAIN_LINE, name, now_ms)
            ):
                found.setdefault(name.lower(), name)
        return set(found.values())

    # Moving.

    def forget(self, message: Modelled) -> None:
        self.messages.remove(message)

    def give_back(self, message: Modelled, now_ms: int) -> None:
        """Unlocked: it waits again, or expires on the spot."""
        message.unlock()
        if message.is_expired(now_ms):
            self.expire(message)

    def fail(self, message: Modelled, now_ms: int, delay_ms: int = 0) -> None:
        """A delivery failed: it counts, and the last one kills; but not among dead letters."""
        if message.line == MAIN_LINE:
            message.count += 1
            if message.count >= self._limit:
                message.die("MaxDeliveryCountExceeded")
                return
        if delay_ms > 0 and message.state == ACTIVE and not message.is_expired(now_ms):
            message.state = DELAYED
            until_ms = [now_ms + delay_ms, message.expires_at_ms]
            message.delayed_until_ms = min(each for each in until_ms if each != NEVER_MS)
        self.give_back(message, now_ms)

    def defer(self, message: Modelled, now_ms: int) -> None:
        """It counts like a failure, but only what was deferred before is killed by it."""
        if message.line == MAIN_LINE:
            message.count += 1
            if message.state == DEFERRED and message.count >= self._limit:
                message.die("MaxDeliveryCountExceeded")
                return
        message.state = DEFERRED
        self.give_back(message, now_ms)

    def expire(self, message: Modelled) -> None:
        if self._dead_letters_on_expiration and message.state != DEFERRED:
            message.die("TTLExpiredException")
        else:
            self.forget(message)

    # Time.

    def tick(self, now_ms: int) -> None:
        for message in self.locked():
            if message.hold is None and message.locked_until_ms <= now_ms:
                self.fail(message, now_ms)
        self.end_overdue(now_ms)
        for reader in self.readers:
            if reader.heard_ms + reader.lease_ms <= now_ms:
                self.lose_claims(reader)
        for stage in list(self.stages.values()):
            if not stage.promised_to and stage.expires_at_ms <= now_ms:
                del self.stages[stage.name]
        for name, heard_ms in list(self.once.items()):
            if heard_ms + PRODUCER_ONCE_KEPT_MS <= now_ms:
                self.forget_producer(name)

    def forget_producer(self, name: bytes) -> None:
        if self.once.pop(name, None) is not None:
            del self.batches[name]
            for told in [told for told in self.fingerprints if told[0] == name]:
                del self.fingerprints[told]

    def end_overdue(self, now_ms: int) -> None:
        for hold in [hold for hold in self.holds if hold.until_ms() <= now_ms]:
            for message in [each for each in self.messages if each.hold is hold]:
                self.fail(message, now_ms)
            self.holds.remove(hold)

    def release(self, hold: Hold, now_ms: int) -> None:
        for message in [each for each in self.messages if each.hold is hold]:
            self.give_back(message, now_ms)
        self.holds.remove(hold)

    def settle_due(self, now_ms: int) -> None:
        """What time changes without anyone asking: expiry, the end of delays, schedules."""
        for message in list(self.messages):
            if message.is_taken() or message.state == SCHEDULED:
                continue
            if message.line == MAIN_LINE and message.is_expired(now_ms):
                self.expire(message)
            elif message.state == DELAYED and message.delayed_until_ms <= now_ms:
                message.state = ACTIVE
                message.delayed_until_ms = NEVER_MS
        self._enqueue_due(now_ms)

    def _enqueue_due(self, now_ms: int) -> None:
        due = [e for e in self.messages if e.state == SCHEDULED and e.delayed_until_ms <= now_ms]
        for message in sorted(due, key=lambda each: (each.delayed_until_ms, each.number)):
            self.messages.remove(message)
            self.last_number += 1
            message.number = self.last_number
            message.state = ACTIVE
            if message.expires_at_ms != NEVER_MS:
                message.expires_at_ms += now_ms - message.delayed_until_ms
            message.enqueued_at_ms = now_ms
            message.delayed_until_ms = NEVER_MS
            self.messages.append(message)
            if message.is_expired(now_ms):
                self.expire(message)

    # Readers.

    def reader(self, line: int, name: str) -> ReaderModel | None:
        return next((r for r in self.readers if (r.line, r.name) == (line, name)), None)

    def claimed(self, reader: ReaderModel | None, ordinal: int) -> list[Modelled]:
        return [e for e in self.messages if e.reader is reader and e.ordinal == ordinal]

    def lose_claims(self, reader: ReaderModel) -> None:
        for message in self.messages:
            if message.reader is reader:
                message.reader = None
        reader.lost += reader.open
        reader.open = []

    def complete(self, reader: ReaderModel) -> None:
        """End the oldest open claim."""
        ordinal = reader.open.pop(0)
        for message in self.claimed(reader, ordinal):
            self.forget(message)
        reader.completed = ordinal

    def crash(self, now_ms: int) -> None:
        """What lives in memory alone is gone."""
        self.holds = []
        for message in self.messages:
            message.unlock()
        self.load(now_ms)

    def load(self, now_ms: int) -> None:
        """Whoever reads counts as heard of now, and what is staged has its whole time again."""
        for stage in self.stages.values():
            stage.expires_at_ms = now_ms + stage.lifetime_ms
            stage.checked = set()
        self.once = dict.fromkeys(self.once, now_ms)
        for reader in self.readers:
            reader.heard_ms = now_ms
