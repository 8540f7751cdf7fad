"""What receivers are shown of a message beside what its sender wrote: numbers, states and times."""

import pytest

from shardbus.codec.types import Int, Symbol, Timestamp, Uint, Value, integer_of
from shardbus.codec.value import encode
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.rule_spec import TRUE_FILTER, FilterSpec, RuleSpec
from shardbus.message.sections import (
    BATCH_FORMAT,
    decode_message,
    encode_batch,
    encode_data_message,
    scan_message,
)
from shardbus.rules.document import typed_value
from shardbus.rules.values import TIMESTAMP, Property, moment_of_ms
from tests.support.messages import annotations_of
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk
from tests.unit.gateway.amqp.holders import accepted, link_of

DAY_MS = 24 * 3600 * 1000
UINT_MAX = 0xFFFFFFFF
SCHEDULED = "x-opt-scheduled-enqueue-time"


def annotated(bench: Bench, delay_s: int, session_id: str | None = None) -> bytes:
    moment = Timestamp(bench.clock.now_ms() + delay_s * 1000)
    annotations = b"\x00\x53\x72" + encode({Symbol(SCHEDULED): moment})
    return annotations + encode_data_message(b"x", session_id=session_id)


def annotations_in(payload: bytes) -> dict[str, Value]:
    return annotations_of(payload, scan_message(payload))


def received(bench: Bench, address: str) -> dict[str, Value]:
    """The annotations of the one message that is there."""
    [(payload, _)] = bench.raw(address)
    return annotations_in(payload)


def peeked(bench: Bench, address: str) -> dict[str, Value]:
    desk = Desk(bench, bench.client(), address)
    answer = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": 1})
    assert isinstance(answer.body, dict)
    [item] = answer.body["messages"]
    return annotations_in(item["message"])


def number_scheduled(bench: Bench, entity: str, payload: bytes) -> int:
    """Schedule a message; the number by which it could be cancelled."""
    answer = Desk(bench, bench.client(), entity).ask(
        "schedule-message", {"messages": [{"message": payload, "message-id": "1"}]}
    )
    assert isinstance(answer.body, dict)
    [number] = answer.body["sequence-numbers"].values
    assert isinstance(number, int)
    return number


def numbers_in(annotations: dict[str, Value]) -> tuple[int | None, int | None]:
    number = integer_of(annotations["x-opt-sequence-number"])
    return number, integer_of(annotations["x-opt-enqueue-sequence-number"])


@pytest.mark.parametrize("name", ["q", "many"])
def test_a_message_that_was_never_forwarded_has_no_earlier_number(bench: Bench, name: str) -> None:
    bench.fill(name, b"x")

    assert numbers_in(peeked(bench, name))[1] == 0
    assert numbers_in(received(bench, name))[1] == 0


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_copy_in_a_subscription_has_the_number_of_the_topic(
    bench: Bench, is_partitioned: bool
) -> None:
    bench.create_topic("t", is_partitioned=is_partitioned)
    address = bench.subscribe("t", "s")
    bench.publish("t", encode_data_message(b"x"))

    shown, got = numbers_in(peeked(bench, address)), numbers_in(received(bench, address))

    assert shown == got
    assert got[0] == got[1] != 0


def made(bench: Bench, kind: str, *, is_partitioned: bool, has_sessions: bool) -> tuple[str, str]:
    """A new entity: where one sends, and where one receives."""
    spec = EntitySpec()
    spec.requires_session = has_sessions
    if kind == "queue":
        bench.create("made", is_partitioned=is_partitioned, spec=spec)
        return "made", "made"
    bench.create_topic("made", is_partitioned=is_partitioned)
    return "made", bench.subscribe("made", "s", spec=spec)


def received_in_session(bench: Bench, address: str) -> dict[str, Value]:
    client = accepted(bench, address, "one", 1)
    [delivery] = client.received(link_of(client))
    bench.leave(client)
    return annotations_in(delivery.payload)


@pytest.mark.parametrize("has_sessions", [False, True])
@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_what_came_by_schedule_is_received_in_that_state(
    bench: Bench, kind: str, is_partitioned: bool, has_sessions: bool
) -> None:
    """Looked at, it is active: nobody can cancel it any more."""
    source, address = made(bench, kind, is_partitioned=is_partitioned, has_sessions=has_sessions)
    sent = annotated(bench, 60, session_id="one" if has_sessions else None)
    moment_ms = bench.clock.now_ms() + 60_000
    pending = number_scheduled(bench, source, sent)

    bench.pass_s(70)

    assert peeked(bench, address)["x-opt-message-state"] == Int(0)
    got = received_in_session(bench, address) if has_sessions else received(bench, address)
    assert got["x-opt-message-state"] == Int(2)
    scheduled_ms, enqueued_ms = integer_of(got[SCHEDULED]), integer_of(got["x-opt-enqueued-time"])
    assert scheduled_ms == moment_ms
    assert enqueued_ms is not None
    assert moment_ms <= enqueued_ms < moment_ms + 1_000
    number = integer_of(got["x-opt-sequence-number"])
    assert number is not None
    assert number > pending


@pytest.mark.parametrize("delay_s", [0, -60])
def test_a_moment_that_had_passed_schedules_nothing(bench: Bench, delay_s: int) -> None:
    bench.publish("q", annotated(bench, delay_s))

    got = received(bench, "q")

    assert got["x-opt-message-state"] == Int(0)
    assert SCHEDULED in got
    assert not any(name.startswith("x-shardbus") for name in got)


@pytest.mark.parametrize("delay_s", [-60, 60])
def test_a_moment_that_a_rule_writes_on_its_copy_schedules_nothing(
    bench: Bench, delay_s: int
) -> None:
    """Neither is a copy that has been there since it was published one that came by schedule."""
    moment = typed_value(
        Property("@p", TIMESTAMP, moment_of_ms(bench.clock.now_ms() + delay_s * 1000))
    )
    rule = RuleSpec("r", FilterSpec(TRUE_FILTER), 0)
    rule.action, rule.action_parameters = "SET sys.ScheduledEnqueueTimeUtc = @p", [moment]
    bench.create_topic("t")
    plain, by_schedule = bench.subscribe("t", "s", [rule]), bench.subscribe("t", "later", [rule])
    bench.publish("t", encode_data_message(b"x"))

    got = received(bench, plain)

    assert got["x-opt-message-state"] == Int(0)
    assert SCHEDULED in got
    assert not any(name.startswith("x-shardbus") for name in got)
    # One that did come by schedule still says so, whatever moment is written on it.
    received(bench, by_schedule)
    bench.publish("t", annotated(bench, 5))
    bench.pass_s(7)
    assert received(bench, by_schedule)["x-opt-message-state"] == Int(2)


def test_a_subscription_does_not_show_what_its_topic_has_scheduled(bench: Bench) -> None:
    bench.create_topic("t")
    address = bench.subscribe("t", "s")
    bench.publish("t", annotated(bench, 60))

    assert Desk(bench, bench.client(), address).peek(1, 10) == []
    bench.pass_s(70)
    assert len(Desk(bench, bench.client(), address).peek(1, 10)) == 1


@pytest.mark.parametrize("name", ["q", "many"])
def test_a_peek_shows_250_messages_at_most(bench: Bench, name: str) -> None:
    sent = encode_batch([encode_data_message(b"x")] * 13)
    client = bench.client()
    link = client.sender(name)
    bench.pass_s()
    for _ in range(20):
        client.send_raw(link, sent, message_format=BATCH_FORMAT)
    bench.pass_s()
    desk = Desk(bench, bench.client(), name)

    page = desk.peek(1, 1_000)
    rest = desk.peek(page[-1].sequence_number + 1, 1_000)

    assert (len(page), len(rest)) == (250, 10)
    assert len({each.sequence_number for each in page + rest}) == 260


def long_lived(bench: Bench, name: str, default_ttl_ms: int) -> None:
    spec = EntitySpec()
    spec.default_ttl_ms = default_ttl_ms
    bench.create(name, spec=spec)


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_the_time_to_live_of_an_entity_is_told_to_the_millisecond(
    bench: Bench, is_scheduled: bool
) -> None:
    """The header ends at 49.7 days: SDKs take the difference of the two times."""
    long_lived(bench, "long", 100 * DAY_MS)
    if is_scheduled:
        bench.publish("long", annotated(bench, 60))
        bench.pass_s(70)
    else:
        bench.fill("long", b"x")

    [(payload, head)] = bench.raw("long")

    assert head.ttl_ms == UINT_MAX
    assert head.absolute_expiry_ms - head.creation_time_ms == 100 * DAY_MS
    assert head.creation_time_ms == integer_of(annotations_in(payload)["x-opt-enqueued-time"])


def test_a_pending_message_tells_the_life_that_begins_at_its_moment(bench: Bench) -> None:
    long_lived(bench, "short", 30_000)
    bench.publish("short", annotated(bench, 60))
    desk = Desk(bench, bench.client(), "short")

    answer = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": 1})

    assert isinstance(answer.body, dict)
    assert decode_message(answer.body["messages"][0]["message"]).head.ttl_ms == 30_000


@pytest.mark.parametrize("days", [60, 200])
def test_the_shorter_of_two_long_lives_is_told(bench: Bench, days: int) -> None:
    long_lived(bench, "long", 100 * DAY_MS)
    now_ms = bench.clock.now_ms()
    times: list[Value] = [Timestamp(now_ms + days * DAY_MS), Timestamp(now_ms)]
    sent = b"\x00\x53\x70" + encode([None, None, Uint(UINT_MAX)])
    sent += b"\x00\x53\x73" + encode([*[None] * 8, *times])
    bench.publish("long", sent + encode_data_message(b"x"))

    [(_, head)] = bench.raw("long")

    assert head.absolute_expiry_ms - head.creation_time_ms == min(days, 100) * DAY_MS


def test_a_short_life_is_told_by_the_header_alone(bench: Bench) -> None:
    long_lived(bench, "short", 30_000)
    bench.fill("short", b"x")

    [(_, head)] = bench.raw("short")

    assert (head.ttl_ms, head.creation_time_ms) == (30_000, -1)
    assert head.absolute_expiry_ms > 0


@pytest.mark.parametrize("flag", [True, False, None])
@pytest.mark.parametrize("priority", [5, 0, None])
def test_the_header_comes_back_through_the_bus(
    bench: Bench, flag: bool | None, priority: int | None
) -> None:
    """As it was sent, but for the delivery count."""
    ubyte = b"\x40" if priority is None else bytes([0x50, priority])
    content = b"".join([encode(flag), ubyte, b"\x40", encode(flag), b"\x52\x09"])
    header = b"\x00\x53\x70\xc0" + bytes([len(content) + 1, 5]) + content
    bench.publish("q", header + encode_data_message(b"x"))

    [(_, head)] = bench.raw("q")

    wanted = {True: 1, False: 0, None: -1}[flag]
    assert (head.durable, head.first_acquirer) == (wanted, wanted)
    assert head.priority == (-1 if priority is None else priority)
    assert head.delivery_count == 0
