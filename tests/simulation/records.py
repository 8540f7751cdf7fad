"""What stores keep of messages, and the only ways in which that may change."""

from typing import Final, NamedTuple

from shardbus.core.fragment.command import FragmentRules
from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    SET_ASIDE,
    Entry,
)
from shardbus.stores.base.store import FragmentId
from tests.simulation.sending import Sending, Violation, one_spelling

CLIENTS_REASON: Final = "the client's wish"
EXPIRED_REASON: Final = "TTLExpiredException"
EXHAUSTED_REASON: Final = "MaxDeliveryCountExceeded"

# From one state to another on the same line. An activated message is a new one.
STEPS: Final = {
    ACTIVE: {ACTIVE, DEFERRED, DELAYED, SET_ASIDE},
    DEFERRED: {DEFERRED, SET_ASIDE},
    DELAYED: {ACTIVE, SET_ASIDE},
    SCHEDULED: {SET_ASIDE},
    SET_ASIDE: {SET_ASIDE},
}


class Place(NamedTuple):
    """Where a message is kept; one that was scheduled gets another place when it is activated."""

    fragment: FragmentId
    sequence_number: int


class Record:
    """A message as its store keeps it, or kept it until it was removed."""

    def __init__(self, place: Place, mark: int, entry: Entry, now_ms: int) -> None:
        self.place = place
        self.mark = mark
        self.session_id = entry.session_id
        self.session = None if self.session_id is None else one_spelling(self.session_id)
        # The commits that removed it and, if it was scheduled, put it elsewhere; 0 is none yet.
        self.removed_by = 0
        self.removed_at_ms = NEVER_MS
        # When it came to be in its state, and on its line.
        self.since_ms = now_ms
        self.state = self.line = -1
        self.take(entry, now_ms)

    def take(self, entry: Entry, now_ms: int) -> None:
        """Be as the entry is now."""
        if (entry.state, entry.line) != (self.state, self.line):
            self.since_ms = now_ms
        if entry.state == SET_ASIDE:
            self.state = SET_ASIDE
            return
        self.line = entry.line
        self.state = entry.state
        self.delivery_count = entry.delivery_count
        self.enqueued_at_ms = entry.enqueued_at_ms
        self.expires_at_ms = entry.expires_at_ms
        self.delayed_until_ms = entry.delayed_until_ms
        self.modified = entry.modified
        self.reason = entry.reason

    @property
    def is_gone(self) -> bool:
        return self.removed_by > 0

    def has_expired(self, now_ms: int) -> bool:
        return self.line == MAIN_LINE and NEVER_MS < self.expires_at_ms <= now_ms

    def due_ms(self) -> int:
        """When time alone makes it active; NEVER_MS if it does not."""
        return self.delayed_until_ms if self.state in (SCHEDULED, DELAYED) else NEVER_MS


def check_appended(sending: Sending, record: Record, rules: FragmentRules) -> None:
    """It begins as it was sent: waiting for its moment if that was to come."""
    message, place = sending.message, record.place
    if record.line == DEAD_LETTER_LINE and record.reason == EXPIRED_REASON:
        # It expired before it was stored; that it might is told by the change that follows.
        return
    if record.state == SCHEDULED:
        moment_ms = record.delayed_until_ms
        is_sound = record.enqueued_at_ms < moment_ms == message.scheduled_at_ms
    else:
        is_sound = record.state == ACTIVE and message.scheduled_at_ms <= record.enqueued_at_ms
    if not is_sound:
        raise Violation(
            f"{place}, to be enqueued at {message.scheduled_at_ms}, began in state "
            f"{record.state} as enqueued at {record.enqueued_at_ms}"
        )
    if rules.requires_session and (record.session_id or "") != message.session_id:
        raise Violation(f"{place} was stored in session {record.session_id!r}")
    if (record.line, record.delivery_count) != (MAIN_LINE, 0):
        raise Violation(f"{place} began on line {record.line}, counted {record.delivery_count}")
    begins_at_ms = record.delayed_until_ms if record.state == SCHEDULED else record.enqueued_at_ms
    if record.expires_at_ms != sending.expires_at_ms(rules, begins_at_ms):
        raise Violation(f"{place} is to expire at {record.expires_at_ms}")


def check_activated(old: Record, new: Record, commit: int) -> None:
    """A scheduled message goes to its new place in one step, and not before its moment."""
    if old.state != SCHEDULED or old.removed_by != commit:
        raise Violation(f"message {old.mark} stored twice: at {old.place} and {new.place}")
    if new.state != ACTIVE or new.enqueued_at_ms < old.delayed_until_ms:
        raise Violation(
            f"{old.place}, due at {old.delayed_until_ms}, was activated at {new.enqueued_at_ms}"
        )


def check_updated(old: Record, entry: Entry, rules: FragmentRules, now_ms: int) -> None:
    """A stored message moves only as the rules say."""
    if entry.line != old.line:
        _check_moved(old, entry, rules, now_ms)
    elif entry.state not in STEPS[old.state]:
        raise Violation(f"{old.place} went from state {old.state} to {entry.state}")
    elif old.state == DELAYED and entry.state == ACTIVE and now_ms < old.delayed_until_ms:
        raise Violation(f"{old.place} was to wait until {old.delayed_until_ms}")
    if entry.state == SET_ASIDE:
        # Nothing else is known about a record that cannot be read.
        return
    most = old.delivery_count + (old.line == MAIN_LINE)
    if not old.delivery_count <= entry.delivery_count <= most:
        raise Violation(
            f"{old.place} was counted {old.delivery_count}, then {entry.delivery_count}"
        )
    if entry.state == DELAYED and NEVER_MS < entry.expires_at_ms < entry.delayed_until_ms:
        raise Violation(f"{old.place} is delayed beyond its life")
    if entry.session_id != old.session_id or entry.enqueued_at_ms != old.enqueued_at_ms:
        raise Violation(f"{old.place} changed its session or its age")


def _check_moved(old: Record, entry: Entry, rules: FragmentRules, now_ms: int) -> None:
    if old.line != MAIN_LINE or entry.line != DEAD_LETTER_LINE or entry.state != ACTIVE:
        raise Violation(f"{old.place} went from line {old.line} to {entry.line}")
    if old.state in (SCHEDULED, SET_ASIDE):
        raise Violation(f"{old.place} in state {old.state} became a dead letter")
    if entry.reason == EXPIRED_REASON:
        may_expire = rules.dead_letters_on_expiration and old.state != DEFERRED
        if not may_expire or not old.has_expired(now_ms):
            raise Violation(f"{old.place} in state {old.state} became a dead letter by expiry")
    elif old.state == DELAYED:
        raise Violation(f"{old.place} became a dead letter while its delay lasted")
