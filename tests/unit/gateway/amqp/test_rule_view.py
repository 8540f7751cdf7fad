"""What rules see of a message, and what becomes of a copy that an action changed."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.codec.types import (
    Array,
    Byte,
    Char,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    Uuid,
    Value,
)
from shardbus.codec.value import decode, encode
from shardbus.core import message_fields
from shardbus.core.properties import unpack
from shardbus.message.rule_values import property_from, value_from
from shardbus.message.rule_view import RuleView, pack_changes, rewrite
from shardbus.message.sections import Stamp, decode_message, encode_delivery, scan_message
from shardbus.rules import system, values
from shardbus.rules.action import Changes, SqlAction
from shardbus.rules.scope import NewIds, Scope
from shardbus.rules.values import Duration, Guid, Moment, Property

DATA = bytes.fromhex("005375a003616263")
EPOCH_TICKS = 621_355_968_000_000_000


def section(code: int, value: Value) -> bytes:
    return bytes([0, 0x53, code]) + encode(value)


def message(properties: dict[str, Value]) -> bytes:
    return section(0x74, properties) + DATA


WHOLE = (
    section(0x70, [True, None, Uint(5_000)])
    + section(
        0x72,
        {
            Symbol("x-opt-partition-key"): "key",
            Symbol("x-opt-via-partition-key"): "via",
            Symbol("x-opt-scheduled-enqueue-time"): Timestamp(7_000),
        },
    )
    + section(
        0x73,
        [
            *("id", None, "to", "label", "reply", "correlation", Symbol("text/plain")),
            *(None, Timestamp(90_000), Timestamp(1), "session", None, "answers"),
        ],
    )
    + message({"Color": "red"})
)

SYSTEM: list[tuple[int, values.Value]] = [
    (message_fields.MESSAGE_ID, "id"),
    (message_fields.CORRELATION_ID, "correlation"),
    (message_fields.TO, "to"),
    (message_fields.REPLY_TO, "reply"),
    (message_fields.LABEL, "label"),
    (message_fields.SESSION_ID, "session"),
    (message_fields.REPLY_TO_SESSION_ID, "answers"),
    (message_fields.CONTENT_TYPE, "text/plain"),
    (message_fields.PARTITION_KEY, "key"),
    (message_fields.VIA_PARTITION_KEY, "via"),
    (message_fields.TIME_TO_LIVE, Duration(5_000 * 10_000)),
    (message_fields.SCHEDULED_ENQUEUE_TIME, Moment(7_000 * 10_000)),
    (message_fields.FORCE_PERSISTENCE, True),
]


@pytest.mark.parametrize(("number", "expected"), SYSTEM)
def test_system_properties_are_read_from_their_sections(
    number: int, expected: values.Value
) -> None:
    """What is not set is null."""
    assert RuleView(WHOLE).system(number) == expected
    unset = False if number == message_fields.FORCE_PERSISTENCE else None
    assert RuleView(DATA).system(number) == unset


KINDS: list[tuple[Value, int, values.Value]] = [
    (None, values.NULL, None),
    (True, values.BOOLEAN, True),
    (Ubyte(1), values.UBYTE, 1),
    (Ushort(1), values.USHORT, 1),
    (Uint(1), values.UINT, 1),
    (Ulong(2**64 - 1), values.ULONG, 2**64 - 1),
    (Byte(-1), values.BYTE, -1),
    (Short(-1), values.SHORT, -1),
    (Int(-1), values.INT, -1),
    (-(2**63), values.LONG, -(2**63)),
    (Float(1.5), values.FLOAT, 1.5),
    (0.1, values.DOUBLE, 0.1),
    (Decimal128(bytes.fromhex("303e000000000000000000000000000f")), values.DECIMAL, Decimal("1.5")),
    (Char(0x1F600), values.CHAR, "\U0001f600"),
    ("text", values.TEXT, "text"),
    (Symbol("symbol"), values.SYMBOL, "symbol"),
    (Described(Symbol("com.microsoft:uri"), "urn:a"), values.URI, "urn:a"),
    (Timestamp(-1), values.TIMESTAMP, Moment(-10_000)),
    (
        Described(Symbol("com.microsoft:datetime-offset"), EPOCH_TICKS + 3),
        values.OFFSET_TIMESTAMP,
        Moment(3),
    ),
    (Described(Symbol("com.microsoft:timespan"), -5), values.DURATION, Duration(-5)),
    (Uuid(bytes(range(16))), values.UUID, Guid(bytes(range(16)))),
    (b"\x00\xff", values.BINARY, b"\x00\xff"),
]


@pytest.mark.parametrize(("value", "kind", "expected"), KINDS)
def test_application_properties_keep_their_types_there_and_back(
    value: Value, kind: int, expected: values.Value
) -> None:
    """Described types of the SDKs included."""
    found = RuleView(message({"Name": value})).properties()

    assert found == {"name": Property("Name", kind, expected)}
    assert value_from(found["name"]) == value


@pytest.mark.parametrize(
    "value",
    [
        [1],
        {"a": 1},
        Array(0x81, [1]),
        Described(Symbol("what:is-this"), 1),
        Described(Symbol("com.microsoft:timespan"), "a text"),
        Described(Symbol("com.microsoft:timespan"), True),
    ],
)
def test_what_rules_have_no_word_for_is_there_without_a_value(value: Value) -> None:
    assert property_from("a", value) is None
    assert RuleView(message({"a": value})).properties() == {"a": Property("a", values.NULL, None)}


def test_a_decimal_that_is_no_number_has_no_value() -> None:
    infinity = Decimal64(bytes.fromhex("7800000000000000"))

    assert property_from("a", infinity) == Property("a", values.DECIMAL, None)
    assert value_from(Property("a", values.DECIMAL, None)) is None


def test_a_long_time_to_live_is_told_by_two_moments() -> None:
    """The header's ends at 49.7 days."""
    payload = section(0x70, [None, None, Uint(0xFFFFFFFF)]) + section(
        0x73, [None] * 8 + [Timestamp(10_000_000_000), Timestamp(0)]
    )

    ttl = RuleView(payload + DATA).system(message_fields.TIME_TO_LIVE)

    assert ttl == Duration(10_000_000_000 * 10_000)


def changed(payload: bytes, action: str) -> Changes:
    return SqlAction(action).run(Scope(RuleView(payload), NewIds(bytes(16))))


def test_texts_that_an_action_sets_are_written_where_receivers_read_them() -> None:
    changes = changed(
        WHOLE,
        "SET sys.MessageId = 'm'; SET sys.CorrelationId = 'c'; SET sys.To = 't'; "
        "SET sys.ReplyTo = 'r'; SET sys.Label = 'l'; SET sys.SessionId = 's'; "
        "SET sys.ReplyToSessionId = 'a'; SET sys.ContentType = 'x/y'; "
        "SET sys.PartitionKey = 'p'; SET sys.ViaPartitionKey = 'v'",
    )

    payload = rewrite(WHOLE, changes)
    head = scan_message(payload)

    assert (head.message_id, head.correlation_id, head.to, head.reply_to) == ("m", "c", "t", "r")
    assert (head.subject, head.session_id, head.reply_to_session_id) == ("l", "s", "a")
    assert (head.content_type, head.partition_key, head.via_partition_key) == ("x/y", "p", "v")
    assert (head.ttl_ms, head.scheduled_enqueue_ms) == (5_000, 7_000)
    assert decode_message(payload).body == b"abc"


def test_times_that_an_action_sets_are_written_with_their_types() -> None:
    changes = Changes()
    changes.system = {
        message_fields.TIME_TO_LIVE: Duration(3 * 10_000),
        message_fields.SCHEDULED_ENQUEUE_TIME: Moment(9 * 10_000),
        message_fields.FORCE_PERSISTENCE: False,
    }

    head = scan_message(rewrite(WHOLE, changes))

    assert (head.ttl_ms, head.scheduled_enqueue_ms, head.durable) == (3, 9, False)
    assert head.absolute_expiry_ms == -1, "it belonged to the other time to live"


def test_what_an_action_sets_to_null_is_gone() -> None:
    changes = changed(WHOLE, "SET sys.Label = NULL; SET sys.TimeToLive = NULL")

    head = scan_message(rewrite(WHOLE, changes))

    assert (head.subject, head.ttl_ms) == (None, -1)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (f"SET sys.SessionId = '{'s' * 129}'", "SessionId has 129 characters"),
        (f"SET sys.MessageId = '{'m' * 129}'", "MessageId has 129 characters"),
        ("SET sys.ContentType = 'caf\u00e9'", "ASCII"),
        ("SET sys.Label = big + big", "have 66[0-9]+ bytes"),
    ],
)
def test_an_action_cannot_make_a_message_that_could_not_be_sent(action: str, reason: str) -> None:
    payload = message({"big": "x" * 22_000})

    with pytest.raises(ValueError, match=reason):
        rewrite(payload, changed(payload, action))


def test_a_time_beyond_what_amqp_has_is_no_time() -> None:
    changes = Changes()
    changes.system = {message_fields.SCHEDULED_ENQUEUE_TIME: Moment(2**80)}

    with pytest.raises(ValueError, match="range"):
        rewrite(DATA, changes)


def delivered(payload: bytes, modified: bytes) -> dict[str, Value]:
    """The application properties as a receiver gets them."""
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1)
    seen = encode_delivery(payload, scan_message(payload), stamp, unpack(modified))
    return decode_message(seen).application_properties


def test_application_properties_are_set_with_their_types_and_removed() -> None:
    payload = message({"keep": Int(1), "Number": Int(7), "Gone": "x", "GONE": "y"})

    modified = pack_changes(
        payload, changed(payload, "SET number = number + 1; REMOVE gone; SET added = 1.5")
    )

    assert delivered(payload, modified) == {"keep": Int(1), "Number": Int(8), "added": 1.5}


def test_a_property_that_is_set_and_removed_again_was_never_there() -> None:
    modified = pack_changes(DATA, changed(DATA, "SET a = 1; REMOVE a"))

    assert unpack(modified) == {}


def test_the_last_property_that_is_removed_leaves_a_message_without_any() -> None:
    payload = message({"only": 1})

    assert delivered(payload, pack_changes(payload, changed(payload, "REMOVE only"))) == {}


def test_values_are_packed_as_amqp_encodes_them() -> None:
    changes = Changes()
    changes.properties["id"] = Property("id", values.UUID, Guid(bytes(16)))

    packed = unpack(pack_changes(DATA, changes))

    assert decode(packed["id"])[0] == Uuid(bytes(16))


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("SET a = big + big", "The property 'a' has"),
        ("SET a = big; SET b = big; SET c = big; SET d = big", "the action sets have"),
    ],
)
def test_an_action_cannot_set_more_properties_than_a_message_may_have(
    action: str, reason: str
) -> None:
    """32 KB for one, 64 KB for all."""
    payload = message({"big": "x" * 17_000})

    with pytest.raises(ValueError, match=reason):
        pack_changes(payload, changed(payload, action))


def test_a_payload_that_cannot_be_read_is_a_value_error_everywhere() -> None:
    broken = b"\x00\x53\x74\xc1\x05\x02"
    listed = bytes([0, 0x53, 0x74]) + encode({"a": 1})[:-1] + b"\xc0\x00"

    for payload in (broken, b""):
        with pytest.raises(ValueError, match="cannot be read"):
            RuleView(payload)
        with pytest.raises(ValueError, match="cannot be read"):
            rewrite(payload, Changes())
        with pytest.raises(ValueError, match="cannot be read"):
            pack_changes(payload, Changes())
    with pytest.raises(ValueError, match="cannot be read"):
        RuleView(listed).properties()


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_payloads_are_read_or_are_value_errors(start: int, insert: bytes, cut: int) -> None:
    """What nobody looked into when it was sent must not surprise the broker that publishes."""
    damaged = WHOLE[:start] + insert + WHOLE[start + cut :]
    changes = changed(WHOLE, "SET sys.Label = 'new'; SET sys.PartitionKey = 'p'; SET color = 1")
    try:
        view = RuleView(damaged)
        for number in range(len(system.ALL)):
            view.system(number)
        view.properties()
        rewritten = rewrite(damaged, changes)
        pack_changes(damaged, changes)
    except ValueError:
        return
    head = scan_message(rewritten)
    assert (head.subject, head.partition_key) == ("new", "p")
