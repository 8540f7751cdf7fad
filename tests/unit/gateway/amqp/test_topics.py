"""Topics and subscriptions over AMQP: who may attach to what, and who gets which message."""

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Modified, Rejected
from shardbus.broker.access.sas import mint_token
from shardbus.codec.types import Array, Int, Timestamp, Value, integer_of
from shardbus.codec.value import encode
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import DISABLED_STATUS, EntitySpec
from shardbus.core.namespace.rule_spec import FilterSpec, RuleSpec, correlation_filter, sql_filter
from shardbus.message.sections import DecodedMessage
from tests.support.messages import annotations_of
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client, anonymous
from tests.unit.gateway.amqp.desk import Desk, condition_of, status_of

NOT_ALLOWED = "amqp:not-allowed"
DEAD = "$DeadLetterQueue"


def message(
    body: bytes,
    properties: dict[str, Value] | None = None,
    *,
    label: str | None = None,
    session_id: str | None = None,
    message_id: str | None = None,
    scheduled_ms: int | None = None,
) -> bytes:
    annotations = b""
    if scheduled_ms is not None:
        name = b"\xa3\x1cx-opt-scheduled-enqueue-time"
        moment = encode(Timestamp(scheduled_ms))
        content = b"\x02" + name + moment
        annotations = b"\x00\x53\x72\xc1" + bytes([len(content)]) + content
    fields = [message_id, None, None, label, *[None] * 6, session_id]
    return (
        annotations
        + b"\x00\x53\x73"
        + encode(fields)
        + b"\x00\x53\x74"
        + encode(properties or {})
        + b"\x00\x53\x75"
        + encode(body)
    )


def rule(name: str, filter: FilterSpec, action: str = "") -> RuleSpec:
    made = RuleSpec(name, filter, 0)
    made.action = action
    return made


def bodies(messages: list[DecodedMessage]) -> list[bytes]:
    return [each.body for each in messages if isinstance(each.body, bytes)]


def sessionful() -> EntitySpec:
    spec = EntitySpec()
    spec.requires_session = True
    return spec


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def topic(bench: Bench, request: pytest.FixtureRequest) -> str:
    bench.create_topic("News", is_partitioned=request.param)
    return "News"


@pytest.mark.parametrize(
    "address",
    [
        "News/Subscriptions/All",
        "news/subscriptions/all",
        "/NEWS/SUBSCRIPTIONS/ALL",
        "amqps://localhost:5672/News/Subscriptions/All",
        "News%2FSubscriptions%2FAll",
    ],
)
def test_a_subscription_is_found_however_its_address_is_written(
    bench: Bench, topic: str, address: str
) -> None:
    bench.subscribe(topic, "All")
    bench.publish("nEWs", message(b"a"))

    assert bodies(bench.messages_of(address)) == [b"a"]


def test_every_subscription_gets_its_own_copy(bench: Bench, topic: str) -> None:
    one, two = bench.subscribe(topic, "one"), bench.subscribe(topic, "two")
    bench.publish(topic, *(message(b"%d" % number) for number in range(20)))

    expected = [b"%d" % number for number in range(20)]
    assert sorted(bodies(bench.messages_of(one)), key=int) == expected
    assert sorted(bodies(bench.messages_of(two)), key=int) == expected
    assert bench.messages_of(one) == []


def test_a_message_that_nobody_wants_is_accepted_and_gone(bench: Bench, topic: str) -> None:
    no = bench.subscribe(topic, "no", [rule("no", FilterSpec("false"))])
    bench.publish(topic, message(b"a"))

    assert bench.messages_of(no) == []


def test_filters_of_each_kind_choose(bench: Bench, topic: str) -> None:
    sql = bench.subscribe(topic, "sql", [rule("r", sql_filter("size > 2 OR missing = 1"))])
    label = bench.subscribe(topic, "label", [rule("r", correlation_filter({"Label": "big"}))])
    everything = bench.subscribe(topic, "all", [rule("r", FilterSpec("true"))])
    bench.publish(
        topic,
        message(b"1", {"size": Int(1)}, label="big"),
        message(b"3", {"size": 3.0}, label="BIG"),
        message(b"none"),
    )

    assert bodies(bench.messages_of(sql)) == [b"3"]
    assert bodies(bench.messages_of(label)) == [b"1"]
    assert len(bench.messages_of(everything)) == 3


def test_actions_change_their_copies_only_and_each_gives_one(bench: Bench, topic: str) -> None:
    """RuleName says which rule made a copy."""
    rules = [
        rule("plain", FilterSpec("true")),
        rule("also", FilterSpec("true")),
        rule("first", FilterSpec("true"), "SET n = n + 1; REMOVE gone"),
        rule("second", FilterSpec("true"), "SET sys.Label = 'changed'"),
    ]
    busy, quiet = bench.subscribe(topic, "busy", rules), bench.subscribe(topic, "quiet")
    bench.publish(topic, message(b"a", {"n": Int(1), "gone": True}, label="as sent"))

    copies = {
        str(each.application_properties.get("RuleName")): (
            each.application_properties,
            each.head.subject,
        )
        for each in bench.messages_of(busy)
    }
    assert copies == {
        "None": ({"n": Int(1), "gone": True}, "as sent"),
        "first": ({"n": Int(2), "RuleName": "first"}, "as sent"),
        "second": ({"n": Int(1), "gone": True, "RuleName": "second"}, "changed"),
    }
    [untouched] = bench.messages_of(quiet)
    assert untouched.application_properties == {"n": Int(1), "gone": True}
    assert untouched.head.subject == "as sent"


def test_what_settling_changes_of_a_copy_comes_on_top_of_its_action(
    bench: Bench, topic: str
) -> None:
    rules = [rule("r", FilterSpec("true"), "REMOVE a; SET b = 2")]
    path = bench.subscribe(topic, "s", rules)
    bench.publish(topic, message(b"x", {"a": 1, "b": 1, "c": 1}))
    client = bench.client()
    link = client.receiver(path, 1)
    bench.pass_s(1)
    [delivery] = client.received(link)

    changes: dict[Value, Value] = {"a": "back", "c": 3}
    client.settle(link, [delivery.delivery_id], Modified(False, False, changes))
    bench.pass_s(1)

    [again] = bench.messages_of(path)
    assert again.application_properties == {"a": "back", "b": 2, "c": 3, "RuleName": "r"}


def test_an_error_in_a_filter_is_a_dead_letter_unless_the_subscription_says_no(
    bench: Bench, topic: str
) -> None:
    broken = rule("broken", sql_filter("1 / n = 1"))
    strict = bench.subscribe(topic, "strict", [broken])
    spec = EntitySpec()
    spec.dead_letters_on_filter_errors = False
    lax = bench.subscribe(topic, "lax", [broken], spec=spec)
    bench.publish(topic, message(b"a", {"n": 0}))

    [dead] = bench.messages_of(f"{strict}/{DEAD}")
    assert dead.application_properties["DeadLetterReason"] == "FilterException"
    assert "zero" in str(dead.application_properties["DeadLetterErrorDescription"])
    assert bench.messages_of(f"{lax}/{DEAD}") == []
    assert bench.messages_of(strict) == bench.messages_of(lax) == []


def test_an_action_whose_result_cannot_be_a_message_is_a_dead_letter(
    bench: Bench, topic: str
) -> None:
    long = "s" * 129
    path = bench.subscribe(
        topic, "s", [rule("r", FilterSpec("true"), f"SET sys.SessionId = '{long}'")]
    )
    bench.publish(topic, message(b"a"))

    [dead] = bench.messages_of(f"{path}/{DEAD}")
    assert dead.application_properties["DeadLetterReason"] == "RuleActionException"
    assert "129 characters" in str(dead.application_properties["DeadLetterErrorDescription"])
    assert dead.head.session_id is None


def test_a_message_whose_properties_rules_cannot_read_is_a_dead_letter(
    bench: Bench, topic: str
) -> None:
    """Bytes that nobody looked into when they were sent must not stop the topic."""
    path = bench.subscribe(topic, "s", [rule("r", sql_filter("a = 1"))])
    hidden = b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\xc0\x01\x05" + b"\x00\x53\x75\xa0\x01x"
    bench.publish(topic, hidden, message(b"next", {"a": 1}))

    assert bodies(bench.messages_of(path)) == [b"next"]
    assert len(bench.raw(f"{path}/{DEAD}")) == 1


def test_sessions_of_a_subscription(bench: Bench, topic: str) -> None:
    """R26; a message without a session goes to the dead letters of that subscription."""
    path = bench.subscribe(topic, "s", spec=sessionful())
    bench.publish(
        topic,
        *(message(b"%d" % number, session_id="red") for number in range(3)),
        message(b"none"),
        message(b"blue", session_id="blue"),
    )
    client = bench.client()
    link = client.session_receiver(path, "red", 10)
    bench.pass_s(1)

    assert client.bodies(link) == [b"0", b"1", b"2"]
    desk = Desk(bench, client, path)
    answer = desk.ask("set-session-state", {"session-id": "red", "session-state": b"s"}, link)
    assert status_of(answer) == Int(200)
    answer = desk.ask("get-session-state", {"session-id": "red"}, link)
    assert answer.body == {"session-state": b"s"}
    [dead] = bench.messages_of(f"{path}/{DEAD}")
    assert dead.application_properties["DeadLetterReason"] == "Session id is null."


@pytest.mark.parametrize(
    "address", ["News", "News/$DeadLetterQueue", "News/$Transfer/$DeadLetterQueue"]
)
def test_nothing_is_received_from_a_topic(bench: Bench, topic: str, address: str) -> None:
    client = bench.client()
    link = client.receiver(address, 1)
    bench.pass_s()

    assert client.detach_error(link).condition == NOT_ALLOWED


@pytest.mark.parametrize("suffix", ["", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue"])
def test_nothing_is_sent_to_a_subscription(bench: Bench, topic: str, suffix: str) -> None:
    client = bench.client()
    link = client.sender(bench.subscribe(topic, "s") + suffix)
    bench.pass_s()

    assert client.detach_error(link).condition == NOT_ALLOWED


@pytest.mark.parametrize("address", ["News/Subscriptions/missing", "none/Subscriptions/s"])
def test_what_does_not_exist_is_not_found(bench: Bench, topic: str, address: str) -> None:
    client = bench.client()
    link = client.receiver(address, 1)
    bench.pass_s()

    error = client.detach_error(link)
    assert error.condition == "amqp:not-found"
    assert "could not be found" in error.description


def test_dead_letters_of_a_subscription_are_its_own(bench: Bench, topic: str) -> None:
    one, two = bench.subscribe(topic, "one"), bench.subscribe(topic, "two")
    bench.publish(topic, message(b"a"))
    client = bench.client()
    link = client.receiver(one, 1)
    bench.pass_s(1)
    [delivery] = client.received(link)
    client.settle(link, [delivery.delivery_id], Rejected(None))
    bench.pass_s(1)

    assert bodies(bench.messages_of(f"{one}/{DEAD}")) == [b"a"]
    assert bodies(bench.messages_of(two)) == [b"a"]
    assert bench.messages_of(f"{two}/{DEAD}") == []


def test_numbers_are_those_of_the_topic(bench: Bench, topic: str) -> None:
    one, two = bench.subscribe(topic, "one"), bench.subscribe(topic, "two")
    bench.publish(topic, message(b"a", session_id="s"), message(b"b", session_id="s"))

    def numbers(path: str) -> list[int | None]:
        found = [annotations_of(raw, head) for raw, head in bench.raw(path)]
        for each in found:
            assert each["x-opt-sequence-number"] == each["x-opt-enqueue-sequence-number"]
        return [integer_of(each["x-opt-sequence-number"]) for each in found]

    assert numbers(one) == numbers(two)


def test_duplicates_are_dropped_for_all_subscriptions(bench: Bench) -> None:
    spec = EntitySpec()
    spec.requires_duplicate_detection = True
    bench.create_topic("dd", spec=spec)
    path = bench.subscribe("dd", "s")
    bench.publish("dd", message(b"a", message_id="1"), message(b"b", message_id="1"))

    assert bodies(bench.messages_of(path)) == [b"a"]


# Status, rights and the end of things.


def test_a_disabled_topic_takes_nothing_and_its_subscriptions_still_give(
    bench: Bench, topic: str
) -> None:
    path = bench.subscribe(topic, "s")
    bench.publish(topic, message(b"a"))
    client = bench.client()
    link = client.sender(topic)
    bench.pass_s()
    spec = bench.namespace.get(topic).spec.copy()
    spec.status = DISABLED_STATUS
    bench.run(bench.namespace.update_topic(topic, spec))
    bench.pass_s()

    assert client.detach_error(link).condition == "com.microsoft:entity-disabled"
    again = client.sender(topic, "again")
    bench.pass_s()
    assert client.detach_error(again).condition == "com.microsoft:entity-disabled"
    assert bodies(bench.messages_of(path)) == [b"a"]


def test_a_disabled_subscription_gives_nothing_and_goes_on_collecting(
    bench: Bench, topic: str
) -> None:
    path = bench.subscribe(topic, "s")
    client = bench.client()
    link = client.receiver(path, 5)
    bench.pass_s()
    spec = bench.namespace.get(path).spec.copy()
    spec.status = DISABLED_STATUS
    bench.run(bench.namespace.update_subscription(path, spec))
    bench.publish(topic, message(b"a"))

    assert client.detach_error(link).condition == "com.microsoft:entity-disabled"
    enabled = EntitySpec()
    enabled.is_partitioned = spec.is_partitioned
    bench.run(bench.namespace.update_subscription(path, enabled))
    assert bodies(bench.messages_of(path)) == [b"a"]


def test_deleting_a_topic_ends_the_links_to_it_and_to_its_subscriptions(
    bench: Bench, topic: str
) -> None:
    client = bench.client()
    receiver = client.receiver(bench.subscribe(topic, "s"), 1)
    sender = client.sender(topic)
    bench.pass_s()

    bench.run(bench.namespace.delete(topic))
    bench.pass_s()

    assert client.detach_error(receiver).condition == "amqp:not-found"
    assert client.detach_error(sender).condition == "amqp:not-found"


def test_the_rules_of_access_of_a_topic_reach_its_subscriptions(bench: Bench) -> None:
    """The addressed entity, then its parents."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("reader", LISTEN, "read"), AccessRule("writer", SEND, "write")]
    bench.create_topic("guarded", spec=spec)
    path = bench.subscribe("guarded", "s")
    bench.publish("guarded", message(b"a"))

    reader = with_token(bench, path, "reader", "read")
    writer = with_token(bench, path, "writer", "write")
    received, refused = reader.receiver(path, 1), writer.receiver(path, 1)
    bench.pass_s(1)

    assert reader.bodies(received) == [b"a"]
    assert writer.detach_error(refused).condition == "amqp:unauthorized-access"
    answer = Desk(bench, reader, path).ask("enumerate-rules", {"top": Int(1), "skip": Int(0)})
    assert status_of(answer) == Int(200), "Listen is enough for rules"
    answer = Desk(bench, writer, path).ask("remove-rule", {"rule-name": "$Default"})
    assert status_of(answer) == Int(401)


def with_token(bench: Bench, path: str, key_name: str, key: str) -> Client:
    """A client that showed a token for one path."""
    client = bench.client(anonymous())
    requests = client.sender("$cbs", "cbs")
    responses = client.receiver("$cbs", 10, name="cbs answers", target="$cbs")
    bench.pass_s()
    token = mint_token(f"sb://shardbus/{path}", key_name, key, bench.clock.now_ms() // 1000 + 60)
    properties: dict[str, Value] = {"operation": "put-token", "name": f"sb://shardbus/{path}"}
    client.ask(requests, token, properties, reply_to="$cbs")
    bench.pass_s()
    [answer] = client.answers(responses)
    assert answer.application_properties["status-code"] == Int(202)
    return client


# The management node of a topic, and what that of a subscription does not do.


def schedule(desk: Desk, *payloads: bytes) -> list[Value]:
    items = [{"message-id": "m", "message": payload} for payload in payloads]
    answer = desk.ask("schedule-message", {"messages": items})
    assert status_of(answer) == Int(200)
    assert isinstance(answer.body, dict)
    numbers = answer.body["sequence-numbers"]
    assert isinstance(numbers, Array)
    return numbers.values


def test_what_is_scheduled_at_a_topic_is_matched_when_it_is_due(bench: Bench, topic: str) -> None:
    """And can be cancelled until then."""
    early = bench.subscribe(topic, "early")
    desk = Desk(bench, bench.client(), topic)
    at_ms = bench.clock.now_ms() + 60_000
    numbers = schedule(
        desk,
        message(b"kept", session_id="k", scheduled_ms=at_ms),
        message(b"dropped", session_id="k", scheduled_ms=at_ms),
    )

    cancelled = desk.ask("cancel-scheduled-message", {"sequence-numbers": Array(0x81, numbers[1:])})
    late = bench.subscribe(topic, "late")
    assert bench.messages_of(early) == bench.messages_of(late) == []
    bench.pass_s(61)

    assert status_of(cancelled) == Int(200)
    assert bodies(bench.messages_of(early)) == bodies(bench.messages_of(late)) == [b"kept"]


def test_a_subscription_never_shows_what_is_scheduled_at_its_topic(
    bench: Bench, topic: str
) -> None:
    path = bench.subscribe(topic, "s")
    schedule(
        Desk(bench, bench.client(), topic),
        message(b"a", scheduled_ms=bench.clock.now_ms() + 60_000),
    )

    assert Desk(bench, bench.client(), path).peek(1, 10) == []


@pytest.mark.parametrize(
    "operation",
    ["peek-message", "renew-lock", "receive-by-sequence-number", "add-rule", "enumerate-rules"],
)
def test_a_topic_has_no_messages_to_ask_about(bench: Bench, topic: str, operation: str) -> None:
    answer = Desk(bench, bench.client(), topic).ask(operation, {})

    assert status_of(answer) == Int(501)
    assert condition_of(answer) is not None


def test_the_management_node_of_a_topics_dead_letters_does_not_exist(
    bench: Bench, topic: str
) -> None:
    client = bench.client()
    link = client.sender(f"{topic}/{DEAD}/$management")
    bench.pass_s()

    assert client.detach_error(link).condition == NOT_ALLOWED


@pytest.mark.parametrize("suffix", ["", "/$DeadLetterQueue"])
def test_nothing_is_scheduled_at_a_subscription(bench: Bench, topic: str, suffix: str) -> None:
    path = bench.subscribe(topic, "s")
    answer = Desk(bench, bench.client(), path + suffix).ask(
        "schedule-message", {"messages": [{"message": message(b"a")}]}
    )

    assert status_of(answer) == Int(400)


def test_deferral_peeking_and_deleting_work_on_a_subscription(bench: Bench) -> None:
    bench.create_topic("News")
    path = bench.subscribe("News", "s")
    bench.publish("News", message(b"a"), message(b"b"))
    client = bench.client()
    link = client.receiver(path, 1)
    bench.pass_s(1)
    [delivery] = client.received(link)
    client.settle(link, [delivery.delivery_id], Modified(False, True, None))
    bench.pass_s(1)
    desk = Desk(bench, client, path)

    assert [each.body for each in desk.peek(1, 10)] == [b"a", b"b"]
    answer = desk.ask(
        "receive-by-sequence-number",
        {"sequence-numbers": Array(0x81, [1]), "receiver-settle-mode": Int(0)},
    )
    assert status_of(answer) == Int(200)
    far_ms = bench.clock.now_ms() + 1_000
    answer = desk.ask(
        "batch-delete-messages",
        {"message-count": Int(10), "enqueued-time-utc": Timestamp(far_ms)},
    )
    assert answer.body == {"message-count": Int(1)}
    assert desk.peek(1, 10) == []


def test_a_subscription_made_while_messages_flow_misses_none_that_came_after(
    bench: Bench, topic: str
) -> None:
    """R28, R30: what is accepted after the create reaches it once, and nothing from before."""
    client = bench.client()
    link = client.sender(topic)
    bench.pass_s()
    ids = client.send_raw(link, *(message(b"%d" % number) for number in range(50)))
    path = bench.subscribe(topic, "s")
    accepted = [ident for ident in ids if client.outcomes(link).get(ident) == ACCEPTED]
    client.send_raw(link, *(message(b"%d" % number) for number in range(50, 100)))
    bench.pass_s(2)

    got = [int(body) for body in bodies(bench.messages_of(path))]
    assert set(range(50, 100)) <= set(got)
    assert len(got) == len(set(got))
    assert not {ids.index(ident) for ident in accepted} & set(got)
