"""Every field of a message, in one table: where AMQP has it, and what each protocol calls it.

The `sys.` names of rules, correlation filters, BrokerProperties, JSON documents, the columns of the
bulk lane and of replays, and the options of `shardbus send` are derived from it. Readers of the
hot path (`message.scan`, `message.delivery`) are written by hand, and a test holds them to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

HEADER: Final = "header"
DELIVERY_ANNOTATIONS: Final = "delivery-annotations"
ANNOTATIONS: Final = "message-annotations"
PROPERTIES: Final = "properties"
APPLICATION_PROPERTIES: Final = "application-properties"
"""Sections; a field of none of them is known to the bus alone."""

# What a field holds. An identifier is a string, uuid, ulong or binary, and shown as text.
IDENTIFIER: Final = "identifier"
TEXT: Final = "text"
SYMBOL: Final = "symbol"
BYTES: Final = "bytes"
FLAG: Final = "flag"
SMALL_NUMBER: Final = "small number"
NUMBER: Final = "number"
DURATION: Final = "duration"
MOMENT: Final = "moment"
WORD: Final = "word"

# What rules know fields by (`MessageField.number`); the names are what is written down.
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
@dataclass(frozen=True)
class MessageField:
    """A field: `name` is what the code calls it, for a text also its attribute of `MessageHead`.

    `place` is its position in a section that is a list, `key` its name in one that is a map.
    `dialect` is its name in rules, correlation filters and BrokerProperties, `member` that in JSON
    documents, `column` that in rows, `option` that of `shardbus send`; without one it is not there.
    `number` is what rules know it by, and `compared` its place in the list of a correlation filter,
    if they do. What `is_sent` is for senders to say; a key is a text of at most 128 characters.
    """

    name: str
    form: str
    section: str = ""
    place: int = -1
    key: str = ""
    dialect: str = ""
    member: str = ""
    column: str = ""
    number: int = -1
    compared: int = -1
    is_sent: bool = False
    is_key: bool = False
    option: str = ""
    metavar: str = ""
    help: str = ""
    note: str = ""
    example: str = ""

    def hyphenated(self) -> str:
        """Its name in the dialect as `reply-to-session-id`."""
        return "".join(
            f"-{letter.lower()}" if letter.isupper() else letter for letter in self.dialect
        )[1:]

    def is_text(self) -> bool:
        return self.form in (IDENTIFIER, TEXT, SYMBOL)


# In the order of the columns.
FIELDS: Final = (
    MessageField(
        "sequence_number",
        NUMBER,
        ANNOTATIONS,
        key="x-opt-sequence-number",
        dialect="SequenceNumber",
        member="sequence_number",
        column="sequence_number",
        number=SEQUENCE_NUMBER,
    ),
    MessageField(
        "enqueued_sequence_number",
        NUMBER,
        ANNOTATIONS,
        key="x-opt-enqueue-sequence-number",
        dialect="EnqueuedSequenceNumber",
        number=ENQUEUED_SEQUENCE_NUMBER,
    ),
    MessageField(
        "partition_id", SMALL_NUMBER, ANNOTATIONS, key="x-opt-partition-id", column="fragment"
    ),
    MessageField(
        "enqueued_at",
        MOMENT,
        ANNOTATIONS,
        key="x-opt-enqueued-time",
        dialect="EnqueuedTimeUtc",
        member="enqueued_at",
        column="enqueued_time",
        number=ENQUEUED_TIME,
    ),
    MessageField(
        "expires_at",
        MOMENT,
        PROPERTIES,
        8,
        dialect="ExpiresAtUtc",
        member="expires_at",
        column="expires_time",
        number=EXPIRES_AT,
    ),
    MessageField(
        "scheduled_at",
        MOMENT,
        ANNOTATIONS,
        key="x-opt-scheduled-enqueue-time",
        dialect="ScheduledEnqueueTimeUtc",
        member="scheduled_at",
        column="scheduled_time",
        number=SCHEDULED_ENQUEUE_TIME,
        is_sent=True,
        note="When it is to be enqueued; what has passed means now.",
    ),
    MessageField(
        "state",
        WORD,
        ANNOTATIONS,
        key="x-opt-message-state",
        dialect="State",
        member="state",
        column="state",
        number=STATE,
    ),
    MessageField(
        "delivery_count",
        SMALL_NUMBER,
        HEADER,
        4,
        dialect="DeliveryCount",
        member="delivery_count",
        column="delivery_count",
        number=DELIVERY_COUNT,
    ),
    MessageField(
        "message_id",
        IDENTIFIER,
        PROPERTIES,
        0,
        dialect="MessageId",
        member="message_id",
        column="message_id",
        number=MESSAGE_ID,
        compared=1,
        is_sent=True,
        is_key=True,
        option="message-id",
        metavar="ID",
        help="Id of the message.  [default: a new one]",
        example="1",
    ),
    MessageField(
        "session_id",
        TEXT,
        PROPERTIES,
        10,
        dialect="SessionId",
        member="session_id",
        column="session_id",
        number=SESSION_ID,
        compared=5,
        is_sent=True,
        is_key=True,
        option="session",
        metavar="ID",
        help="Session of the message.",
        example="customer-7",
    ),
    MessageField(
        "partition_key",
        TEXT,
        ANNOTATIONS,
        key="x-opt-partition-key",
        dialect="PartitionKey",
        member="partition_key",
        column="partition_key",
        number=PARTITION_KEY,
        is_sent=True,
        is_key=True,
        option="partition-key",
        metavar="KEY",
        help="Messages with one key are in one fragment.",
    ),
    MessageField(
        "via_partition_key",
        TEXT,
        ANNOTATIONS,
        key="x-opt-via-partition-key",
        dialect="ViaPartitionKey",
        member="via_partition_key",
        number=VIA_PARTITION_KEY,
        is_sent=True,
        is_key=True,
    ),
    MessageField(
        "correlation_id",
        IDENTIFIER,
        PROPERTIES,
        5,
        dialect="CorrelationId",
        member="correlation_id",
        column="correlation_id",
        number=CORRELATION_ID,
        compared=0,
        is_sent=True,
        option="correlation-id",
        metavar="ID",
        help="Id of what the message answers.",
    ),
    MessageField(
        "subject",
        TEXT,
        PROPERTIES,
        3,
        dialect="Label",
        member="subject",
        column="subject",
        number=LABEL,
        compared=4,
        is_sent=True,
        option="subject",
        metavar="TEXT",
        help="What the message is about; also called its label.",
    ),
    MessageField(
        "content_type",
        SYMBOL,
        PROPERTIES,
        6,
        dialect="ContentType",
        member="content_type",
        column="content_type",
        number=CONTENT_TYPE,
        compared=7,
        is_sent=True,
        option="content-type",
        metavar="TYPE",
        help="What the body is, as in text/plain.",
        note="Plain ASCII.",
    ),
    MessageField(
        "content_encoding",
        SYMBOL,
        PROPERTIES,
        7,
        member="content_encoding",
        is_sent=True,
        note="Plain ASCII.",
    ),
    MessageField(
        "to",
        TEXT,
        PROPERTIES,
        2,
        dialect="To",
        member="to",
        column="to",
        number=TO,
        compared=2,
        is_sent=True,
        option="to",
        metavar="TEXT",
        help="Whom the message is for; the bus does not look at it.",
    ),
    MessageField(
        "reply_to",
        TEXT,
        PROPERTIES,
        4,
        dialect="ReplyTo",
        member="reply_to",
        column="reply_to",
        number=REPLY_TO,
        compared=3,
        is_sent=True,
        option="reply-to",
        metavar="ENTITY",
        help="Where answers go.",
    ),
    MessageField(
        "reply_to_session_id",
        TEXT,
        PROPERTIES,
        12,
        dialect="ReplyToSessionId",
        member="reply_to_session_id",
        column="reply_to_session_id",
        number=REPLY_TO_SESSION_ID,
        compared=6,
        is_sent=True,
        is_key=True,
    ),
    MessageField(
        "time_to_live",
        DURATION,
        HEADER,
        2,
        dialect="TimeToLive",
        member="time_to_live_ms",
        column="time_to_live_ms",
        number=TIME_TO_LIVE,
        is_sent=True,
    ),
    MessageField(
        "dead_letter_reason",
        TEXT,
        APPLICATION_PROPERTIES,
        key="DeadLetterReason",
        member="dead_letter_reason",
        column="dead_letter_reason",
    ),
    MessageField(
        "dead_letter_description",
        TEXT,
        APPLICATION_PROPERTIES,
        key="DeadLetterErrorDescription",
        member="dead_letter_description",
        column="dead_letter_description",
    ),
    MessageField(
        "dead_letter_source",
        TEXT,
        ANNOTATIONS,
        key="x-opt-deadletter-source",
        dialect="DeadLetterSource",
        member="dead_letter_source",
        column="dead_letter_source",
        number=DEAD_LETTER_SOURCE,
    ),
    MessageField("size", NUMBER, dialect="Size", member="size_bytes", number=SIZE),
    MessageField(
        "lock_token",
        BYTES,
        DELIVERY_ANNOTATIONS,
        key="x-opt-lock-token",
        member="lock_token",
    ),
    MessageField(
        "locked_until",
        MOMENT,
        ANNOTATIONS,
        key="x-opt-locked-until",
        dialect="LockedUntilUtc",
        member="locked_until",
        number=LOCKED_UNTIL,
    ),
    MessageField(
        "durable",
        FLAG,
        HEADER,
        0,
        dialect="ForcePersistence",
        number=FORCE_PERSISTENCE,
        is_sent=True,
    ),
    MessageField("priority", SMALL_NUMBER, HEADER, 1, is_sent=True),
    MessageField("first_acquirer", FLAG, HEADER, 3, is_sent=True),
    MessageField("user_id", BYTES, PROPERTIES, 1, is_sent=True),
    MessageField("creation_time", MOMENT, PROPERTIES, 9, is_sent=True),
    MessageField("group_sequence", NUMBER, PROPERTIES, 11, is_sent=True),
)
_BY_NAME: Final = {each.name: each for each in FIELDS}


def field_named(name: str) -> MessageField:
    return _BY_NAME[name]


def _listed(section: str) -> tuple[MessageField, ...]:
    found = sorted((each for each in FIELDS if each.section == section), key=_place)
    assert [each.place for each in found] == list(range(len(found)))
    return tuple(found)


def _place(field: MessageField) -> int:
    return field.place


def _compared(field: MessageField) -> int:
    return field.compared


PROPERTY_FIELDS: Final = _listed(PROPERTIES)
"""By their places."""

SENT_TEXTS: Final = tuple(each for each in FIELDS if each.is_sent and each.is_text())
"""Texts that senders say: whatever is made of one of them is made of all."""

SENT_COLUMNS: Final = tuple(
    each.column
    for each in (*SENT_TEXTS, *(each for each in FIELDS if each.is_sent and not each.is_text()))
    if each.column
)
"""The columns of what senders say, the texts first."""

COMPARED: Final = tuple(sorted((each for each in FIELDS if each.compared >= 0), key=_compared))
"""What correlation filters compare, in the order of the wire's list."""

OWNED_ANNOTATIONS: Final = tuple(
    each.key
    for each in FIELDS
    if each.section in (ANNOTATIONS, DELIVERY_ANNOTATIONS) and not each.is_sent
)
"""What only the bus says of a message: senders may write it, and nobody believes them."""
