"""The properties that the bus gives every message: `sys.` names, their kinds, and which can be set.

The numbers are for fast lookups; stored rules have the names.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.rules.values import BOOLEAN, DURATION, LONG, TEXT, TIMESTAMP

MESSAGE_ID: Final = 0
CORRELATION_ID: Final = 1
TO: Final = 2
REPLY_TO: Final = 3
LABEL: Final = 4
SESSION_ID: Final = 5
REPLY_TO_SESSION_ID: Final = 6
CONTENT_TYPE: Final = 7
PARTITION_KEY: Final = 8
VIA_PARTITION_KEY: Final = 9
TIME_TO_LIVE: Final = 10
SCHEDULED_ENQUEUE_TIME: Final = 11
FORCE_PERSISTENCE: Final = 12
DELIVERY_COUNT: Final = 13
ENQUEUED_TIME: Final = 14
ENQUEUED_SEQUENCE_NUMBER: Final = 15
SEQUENCE_NUMBER: Final = 16
EXPIRES_AT: Final = 17
LOCKED_UNTIL: Final = 18
SIZE: Final = 19
STATE: Final = 20
DEAD_LETTER_SOURCE: Final = 21


@final
class SystemProperty:
    """A name after `sys.`; `kind` says what it holds when it is set."""

    def __init__(self, number: int, name: str, kind: int, is_settable: bool) -> None:
        self.number = number
        self.name = name
        self.kind = kind
        self.is_settable = is_settable


ALL: Final = (
    SystemProperty(MESSAGE_ID, "MessageId", TEXT, True),
    SystemProperty(CORRELATION_ID, "CorrelationId", TEXT, True),
    SystemProperty(TO, "To", TEXT, True),
    SystemProperty(REPLY_TO, "ReplyTo", TEXT, True),
    SystemProperty(LABEL, "Label", TEXT, True),
    SystemProperty(SESSION_ID, "SessionId", TEXT, True),
    SystemProperty(REPLY_TO_SESSION_ID, "ReplyToSessionId", TEXT, True),
    SystemProperty(CONTENT_TYPE, "ContentType", TEXT, True),
    SystemProperty(PARTITION_KEY, "PartitionKey", TEXT, True),
    SystemProperty(VIA_PARTITION_KEY, "ViaPartitionKey", TEXT, True),
    SystemProperty(TIME_TO_LIVE, "TimeToLive", DURATION, True),
    SystemProperty(SCHEDULED_ENQUEUE_TIME, "ScheduledEnqueueTimeUtc", TIMESTAMP, True),
    SystemProperty(FORCE_PERSISTENCE, "ForcePersistence", BOOLEAN, True),
    SystemProperty(DELIVERY_COUNT, "DeliveryCount", LONG, False),
    SystemProperty(ENQUEUED_TIME, "EnqueuedTimeUtc", TIMESTAMP, False),
    SystemProperty(ENQUEUED_SEQUENCE_NUMBER, "EnqueuedSequenceNumber", LONG, False),
    SystemProperty(SEQUENCE_NUMBER, "SequenceNumber", LONG, False),
    SystemProperty(EXPIRES_AT, "ExpiresAtUtc", TIMESTAMP, False),
    SystemProperty(LOCKED_UNTIL, "LockedUntilUtc", TIMESTAMP, False),
    SystemProperty(SIZE, "Size", LONG, False),
    SystemProperty(STATE, "State", LONG, False),
    SystemProperty(DEAD_LETTER_SOURCE, "DeadLetterSource", TEXT, False),
)
_BY_NAME: Final[dict[str, SystemProperty]] = {each.name.lower(): each for each in ALL}

assert [each.number for each in ALL] == list(range(len(ALL)))


def find(name: str) -> SystemProperty | None:
    """The system property of this name, in any case."""
    return _BY_NAME.get(name.lower())
