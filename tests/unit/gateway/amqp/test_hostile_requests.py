"""Wrong types, huge counts and odd envelopes in every field of every management request."""

import pytest

from shardbus.codec.codes import TIMESTAMP, UUID
from shardbus.codec.types import (
    Array,
    Described,
    Int,
    Map,
    Symbol,
    Timestamp,
    Uint,
    Ulong,
    Uuid,
    Value,
)
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.message.sections import encode_data_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import plain
from tests.unit.gateway.amqp.desk import Desk, condition_of, locked, status_of, tokens_of

NOW = Timestamp(1_800_000_000_000)
TOKEN = Uuid(bytes(16))
MESSAGE = encode_data_message(b"x", session_id="one")

# A request of each operation that could be served.
WHOLE: dict[str, dict[str, Value]] = {
    "renew-lock": {"lock-tokens": Array(UUID, [TOKEN])},
    "update-disposition": {
        "disposition-status": "suspended",
        "lock-tokens": Array(UUID, [TOKEN]),
        "properties-to-modify": {"a": 1},
        "deadletter-reason": "r",
        "deadletter-description": "d",
        "session-id": "one",
    },
    "peek-message": {
        "from-sequence-number": 1,
        "message-count": Int(1),
        "session-id": "one",
        "omit-message-body": False,
    },
    "receive-by-sequence-number": {
        "sequence-numbers": Array(0x81, [1]),
        "receiver-settle-mode": Uint(1),
        "session-id": "one",
    },
    "schedule-message": {"messages": [{"message-id": "1", "message": MESSAGE}]},
    "cancel-scheduled-message": {"sequence-numbers": Array(0x81, [1])},
    "batch-delete-messages": {
        "message-count": Int(1),
        "enqueued-time-utc": NOW,
        "session-id": "one",
    },
    "renew-session-lock": {"session-id": "one"},
    "get-session-state": {"session-id": "one"},
    "set-session-state": {"session-id": "one", "session-state": b"x"},
    "get-message-sessions": {"last-updated-time": NOW, "skip": Int(0), "top": Int(10)},
}

# What a field must not be; what it may be is left out of its row.
JUNK: list[Value] = ["text", b"bytes", 1.5, True, [["nested"]], {"a": "map"}, Array(0x81, [1, 2])]
NUMBERS = {"from-sequence-number", "message-count", "receiver-settle-mode", "skip", "top"}
MOMENTS = {"enqueued-time-utc", "last-updated-time"}
TEXTS = {"session-id", "disposition-status"}
SIMPLE = {"deadletter-reason", "deadletter-description"}


def junk_for(field: str) -> list[Value]:
    if field in NUMBERS:
        return [*JUNK, NOW, Int(-(2**31))] if field != "from-sequence-number" else [*JUNK, NOW]
    if field in MOMENTS:
        return JUNK
    if field in TEXTS:
        return [value for value in JUNK if not isinstance(value, str)] + [Int(1)]
    if field in SIMPLE:
        return [value for value in JUNK if isinstance(value, list | dict | Array)]
    if field == "omit-message-body":
        return [value for value in JUNK if value is not True] + [Int(1)]
    if field == "properties-to-modify":
        return [value for value in JUNK if not isinstance(value, dict)] + [Int(1)]
    if field == "session-state":
        return [value for value in JUNK if not isinstance(value, bytes)] + [Int(1)]
    if field == "sequence-numbers":
        return [*JUNK[:-1], [], [Int(1), "two"], [None], Array(TIMESTAMP, []), [Int(1)] * 5001]
    if field == "lock-tokens":
        return [*JUNK, [], [b"short"], [None], [TOKEN] * 5001, TOKEN]
    assert field == "messages"
    return [
        *JUNK,
        [],
        [None],
        [{}],
        [{"message": "text"}],
        [{"message": b""}],
        [{"message": b"junk"}],
        [{"message": MESSAGE}] * 4501,
    ]


HOSTILE = [
    (operation, field, value)
    for operation, body in WHOLE.items()
    for field in body
    for value in junk_for(field)
]


def stranger(value: Value) -> str:
    return f"{value!r:.40}"


@pytest.mark.parametrize(("operation", "field", "value"), HOSTILE, ids=stranger)
def test_a_field_that_makes_no_sense_is_a_bad_request_and_nothing_more(
    bench: Bench, operation: str, field: str, value: Value
) -> None:
    bench.create_sessions("sq")
    client = bench.client()
    link = client.session_receiver("sq", "one", name="mine")
    bench.pass_s()
    desk = Desk(bench, client, "sq")

    answer = desk.ask(operation, {**WHOLE[operation], field: value}, link)

    assert status_of(answer) == Int(400)
    assert condition_of(answer) == Symbol("com.microsoft:argument-error")
    assert link.is_attached
    assert desk.peek(1, 10) == []


NEEDED = [
    ("renew-lock", "lock-tokens"),
    ("update-disposition", "lock-tokens"),
    ("update-disposition", "disposition-status"),
    ("peek-message", "from-sequence-number"),
    ("peek-message", "message-count"),
    ("receive-by-sequence-number", "sequence-numbers"),
    ("schedule-message", "messages"),
    ("cancel-scheduled-message", "sequence-numbers"),
    ("batch-delete-messages", "message-count"),
    ("batch-delete-messages", "enqueued-time-utc"),
    ("get-message-sessions", "last-updated-time"),
    ("get-message-sessions", "top"),
]


@pytest.mark.parametrize(("operation", "field"), NEEDED)
@pytest.mark.parametrize("is_null", [True, False])
def test_a_field_that_is_needed_must_be_there(
    bench: Bench, operation: str, field: str, is_null: bool
) -> None:
    bench.create_sessions("sq")
    client = bench.client()
    link = client.session_receiver("sq", "one", name="mine")
    bench.pass_s()
    desk = Desk(bench, client, "sq")
    body = dict(WHOLE[operation])
    if is_null:
        body[field] = None
    else:
        del body[field]

    answer = desk.ask(operation, body, link)

    assert status_of(answer) == Int(400)
    assert condition_of(answer) == Symbol("com.microsoft:argument-error")


@pytest.mark.parametrize(
    ("operation", "field", "value"),
    [
        ("batch-delete-messages", "message-count", Int(4001)),
        ("batch-delete-messages", "message-count", Ulong(2**64 - 1)),
        ("batch-delete-messages", "message-count", Int(0)),
        ("get-message-sessions", "top", Int(1001)),
        ("get-message-sessions", "top", Int(0)),
        ("get-message-sessions", "skip", Int(-1)),
        ("get-message-sessions", "skip", Ulong(2**64 - 1)),
        ("receive-by-sequence-number", "receiver-settle-mode", Uint(2)),
        ("receive-by-sequence-number", "sequence-numbers", Array(0x81, list(range(1, 252)))),
        ("receive-by-sequence-number", "sequence-numbers", Array(0x81, [1, 1])),
    ],
)
def test_counts_beyond_all_measure_are_refused(
    bench: Bench, operation: str, field: str, value: Value
) -> None:
    bench.create_sessions("sq")
    client = bench.client()
    link = client.session_receiver("sq", "one", name="mine")
    bench.pass_s()
    desk = Desk(bench, client, "sq")

    answer = desk.ask(operation, {**WHOLE[operation], field: value}, link)

    assert status_of(answer) == Int(400)
    assert condition_of(answer) == Symbol("com.microsoft:argument-error")


def test_keys_may_be_symbols_and_numbers_of_any_width(bench: Bench) -> None:
    bench.fill("q", b"x")
    desk = Desk(bench, bench.client(), "q")

    answer = desk.ask_raw(
        {Symbol("from-sequence-number"): Uint(1), Symbol("message-count"): Ulong(1)},
        {"operation": "com.microsoft:peek-message"},
    )

    assert status_of(answer) == Int(200)


@pytest.mark.parametrize("operation", [None, Int(1), b"peek", ["x"]])
def test_a_request_without_an_operation_is_a_bad_request(bench: Bench, operation: Value) -> None:
    desk = Desk(bench, bench.client(), "q")

    answer = desk.ask_raw({}, {"operation": operation})

    assert status_of(answer) == Int(400)


def test_a_map_with_keys_that_are_no_texts_is_a_bad_request(bench: Bench) -> None:
    desk = Desk(bench, bench.client(), "q")
    properties = {"operation": "com.microsoft:peek-message"}

    answers = [desk.ask_raw(body, properties) for body in ({1: 2}, Map([(True, 1), (1, 2)]))]

    assert [status_of(answer) for answer in answers] == [Int(400)] * 2


@pytest.mark.parametrize(
    ("timeout", "status"),
    [
        (Uint(1), 408),
        (1, 408),
        (Uint(0), 408),
        (Int(-5), 408),
        (Uint(5_000), 200),
        (Ulong(2**64 - 1), 200),
        ("1", 200),
        (None, 200),
    ],
)
def test_a_request_ends_when_its_client_gives_up(bench: Bench, timeout: Value, status: int) -> None:
    bench.fill("q", b"x")
    client = bench.client()
    desk = Desk(bench, client, "q")
    bench.latency_s = 0.02

    answer = desk.ask_raw(
        {"from-sequence-number": 1, "message-count": 1},
        {"operation": "com.microsoft:peek-message", "com.microsoft:server-timeout": timeout},
    )

    assert status_of(answer) == Int(status)
    if status == 408:
        assert condition_of(answer) == Symbol("com.microsoft:timeout")


def test_without_a_timeout_a_request_waits_a_minute(bench: Bench) -> None:
    desk = Desk(bench, bench.client(), "q")
    bench.latency_s = 1000
    desk.client.ask(
        desk.requests,
        {"from-sequence-number": 1, "message-count": 1},
        {"operation": "com.microsoft:peek-message"},
        reply_to=desk.node,
    )
    bench.pass_s(59)
    before = desk.client.answers(desk.responses)
    bench.pass_s(2)

    assert before == []
    [answer] = desk.client.answers(desk.responses)
    assert status_of(answer) == Int(408)


SENDING = {"schedule-message", "cancel-scheduled-message"}


@pytest.mark.parametrize("operation", sorted(WHOLE))
@pytest.mark.parametrize("right", [LISTEN, SEND])
def test_every_operation_needs_its_own_right(bench: Bench, operation: str, right: int) -> None:
    """R34."""
    bench.create_sessions("sq")
    bench.run(bench.namespace.set_rules([AccessRule("some", right, "some-key")]))
    desk = Desk(bench, bench.client(plain(b"\0some\0some-key")), "sq")

    answer = desk.ask(operation, WHOLE[operation])

    is_refused = condition_of(answer) == Symbol("amqp:unauthorized-access")
    assert is_refused == ((operation in SENDING) != (right == SEND))
    assert (status_of(answer) == Int(401)) == is_refused


# What ends something that was begun is possible whatever the status.
ENDING = {"renew-lock", "update-disposition", "renew-session-lock"}


@pytest.mark.parametrize("operation", sorted(WHOLE))
@pytest.mark.parametrize("status", ["Disabled", "SendDisabled", "ReceiveDisabled", "Active"])
def test_an_entitys_status_decides_what_can_be_asked(
    bench: Bench, operation: str, status: str
) -> None:
    """R35."""
    bench.create_sessions("sq")
    desk = Desk(bench, bench.client(), "sq")
    bench.set_status("sq", status)
    bench.pass_s()

    answer = desk.ask(operation, WHOLE[operation])

    enabled = ("Active", "ReceiveDisabled") if operation in SENDING else ("Active", "SendDisabled")
    is_refused = condition_of(answer) == Symbol("com.microsoft:entity-disabled")
    assert is_refused == (status not in enabled and operation not in ENDING)


def test_what_was_received_before_receiving_was_disabled_can_be_completed(bench: Bench) -> None:
    desk = Desk(bench, bench.client(), "q")
    deliveries = locked(bench, desk.client, "q", 1)
    bench.set_status("q", "ReceiveDisabled")

    answer = desk.ask(
        "update-disposition",
        {"disposition-status": "completed", "lock-tokens": tokens_of(deliveries)},
    )

    assert status_of(answer) == Int(200)
    bench.set_status("q", "Active")
    assert bench.left("q") == []


@pytest.mark.parametrize("name", ["q", "many"])
def test_deleting_takes_the_oldest_that_are_old_enough(bench: Bench, name: str) -> None:
    """R32."""
    bench.fill(name, *(b"%d" % number for number in range(6)))
    bench.pass_s(10)
    until = Timestamp(bench.clock.now_ms())
    bench.pass_s(10)
    bench.fill(name, b"young")
    desk = Desk(bench, bench.client(), name)

    answers = [
        desk.ask("batch-delete-messages", {"message-count": Int(count), "enqueued-time-utc": until})
        for count in (4, 500, 500)
    ]

    assert [status_of(answer) for answer in answers] == [Int(200), Int(200), Int(204)]
    counts = [answer.body for answer in answers]
    assert counts == [{"message-count": Int(count)} for count in (4, 2, 0)]
    assert bench.left(name) == [b"young"]


@pytest.mark.parametrize("moment", [Timestamp(0), Timestamp(-1), Timestamp(-(2**63))])
def test_deleting_what_is_older_than_the_epoch_deletes_nothing(
    bench: Bench, moment: Timestamp
) -> None:
    bench.fill("q", b"kept")
    desk = Desk(bench, bench.client(), "q")

    answer = desk.ask(
        "batch-delete-messages", {"message-count": Int(1), "enqueued-time-utc": moment}
    )

    assert status_of(answer) == Int(204)
    assert bench.left("q") == [b"kept"]


def test_a_described_payload_is_still_a_message(bench: Bench) -> None:
    desk = Desk(bench, bench.client(), "q")

    answer = desk.ask(
        "schedule-message",
        {"messages": [{"message": Described(Ulong(0x75), encode_data_message(b"x"))}]},
    )

    assert status_of(answer) == Int(200)
    assert bench.left("q") == [b"x"]
