"""Messages in the JSON API: peek, send, receive, settle, sessions (R20, R26, R33)."""

import json
from base64 import b64decode

import pytest

from shardbus.codec.types import Array, Char, Symbol, Timestamp, Uuid
from shardbus.core.message import Entry
from shardbus.core.messages.command import COMPLETE, Settle
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import RECEIVE_DISABLED_STATUS, SEND_DISABLED_STATUS, EntitySpec
from shardbus.gateway.http.api.messages.message import message_document
from shardbus.gateway.http.api.messages.routes import MessagesApi
from shardbus.gateway.http.api.messages.values import property_document, read_properties
from tests.unit.gateway.http.messages_web import (
    Document,
    MessagesWeb,
    bodies,
    messages_of,
)
from tests.unit.gateway.http.web import Web

FULL: Document = {
    "message_id": "m-1",
    "partition_key": "k",
    "subject": "greeting",
    "correlation_id": "c-1",
    "content_type": "text/plain",
    "content_encoding": "identity",
    "to": "somebody",
    "reply_to": "me",
    "reply_to_session_id": "s-1",
    "time_to_live_ms": 60_000,
    "properties": {
        "text": "häuse",
        "number": 7,
        "large": 1 << 40,
        "half": 0.5,
        "yes": True,
        "nothing": None,
        "moment": {"type": "timestamp", "value": "2026-01-02T03:04:05.006Z"},
        "bytes": {"type": "binary", "value": "AAH/"},
        "id": {"type": "uuid", "value": "00112233-4455-6677-8899-aabbccddeeff"},
        "name": {"type": "symbol", "value": "x-opt"},
        "letter": {"type": "char", "value": "ä"},
        "endless": {"type": "double", "value": "inf"},
    },
    "body": "hello",
}


@pytest.mark.parametrize("entity", ["q", "many"])
def test_a_message_is_shown_as_it_was_sent_and_can_be_sent_as_it_was_shown(
    api: MessagesWeb, entity: str
) -> None:
    """R20."""
    sent = api.put(entity, FULL)
    [shown] = api.peek(entity)
    [received] = api.get(entity)
    again = api.put(entity, received)
    [shown_again] = api.get(entity, mode="receive_and_delete")

    assert (sent["sent"], sent["duplicates"], sent["failures"]) == (1, 0, [])
    assert sent["sequence_numbers"] == [shown["sequence_number"]]
    assert {name: shown[name] for name in FULL} == FULL
    assert (shown["state"], shown["delivery_count"]) == ("active", 0)
    assert "lock_token" not in shown
    assert {name: received[name] for name in FULL} == FULL
    assert received["lock_token"]
    assert again["sent"] == 1
    assert {name: shown_again[name] for name in FULL} == FULL


@pytest.mark.parametrize(
    "body",
    [
        {"body": ""},
        {"body_base64": "AP8="},
        {"body_type": "value", "body": "a text"},
        {"body_type": "value", "body": {"a": [1, 2.5, None, True]}},
        {"body_type": "value"},
        {"body_type": "value", "body_base64": "AP8="},
        {"body_type": "sequence", "body": [1, "two"]},
    ],
)
def test_every_kind_of_body_comes_back(api: MessagesWeb, body: Document) -> None:
    api.put("q", body)

    [shown] = api.peek("q")

    assert {name: shown[name] for name in body} == body


def test_values_that_cannot_be_sent_are_shown_nevertheless() -> None:
    assert property_document(Array(0x71, [1])) == {"type": "other", "value": [1]}
    far = property_document(Timestamp(-5))
    assert far == {"type": "timestamp", "value": -5}
    assert read_properties({"x": far}) == {"x": Timestamp(-5)}
    assert [property_document(value) for value in (Symbol("s"), Char(65), Uuid(b"\0" * 16))] == [
        {"type": "symbol", "value": "s"},
        {"type": "char", "value": "A"},
        {"type": "uuid", "value": "00000000-0000-0000-0000-000000000000"},
    ]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"colour": 1}, "colour"),
        ({"body": 1}, "body"),
        ({"body": "a", "body_base64": "YQ=="}, "not both"),
        ({"body_base64": "?"}, "Base64"),
        ({"message_id": "x" * 129}, "message_id"),
        ({"time_to_live_ms": 0}, "time_to_live_ms"),
        ({"scheduled_at": "soon"}, "scheduled_at"),
        ({"content_type": "ä"}, "ASCII"),
        ({"body_type": "sequence", "body": 1}, "list"),
        ({"body_type": "picture"}, "body_type"),
        ({"properties": []}, "properties"),
        ({"properties": {"a": []}}, "list"),
        ({"properties": {"a": {"type": "other", "value": 1}}}, "type"),
        ({"properties": {"a": {"type": "uuid", "value": "x"}}}, "uuid"),
        ({"properties": {"a": {"type": "char", "value": "xy"}}}, "char"),
        ({"properties": {"a": "x" * 40_000}}, "bytes"),
        ({"properties": {"\ud800": 1}}, "surrogate"),
        ({"body": "\ud800"}, "surrogate"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_with_what_is_wrong(
    api: MessagesWeb, message: Document, words: str
) -> None:
    status, text = api.refusal("q/messages", messages=[{"body": "good"}, message])

    assert status == 400
    assert words in text
    assert api.peek("q") == []


def test_nothing_and_too_much_cannot_be_sent(api: MessagesWeb) -> None:
    assert api.refusal("q/messages", messages=[])[0] == 400
    assert api.refusal("q/messages", messages=[{}] * 1001)[0] == 400
    status, text = api.refusal("q/messages", messages=[{"body": "x" * 300_000}])
    assert (status, "messages[0]" in text) == (413, True)


def test_a_full_fragment_does_not_hide_what_the_others_stored() -> None:
    web = Web(fragment_bytes_max=600)
    web.with_groups([MessagesApi(web.bus, web.counts)])
    messages = [{"partition_key": f"k{number}", "body": "x" * 500} for number in range(40)]
    body = json.dumps({"messages": messages}).encode()

    first = json.loads(web.fetch("POST", "/api/v1/entities/many/messages", body).body)
    one = json.dumps({"messages": messages[:1]}).encode()
    second = json.loads(web.fetch("POST", "/api/v1/entities/many/messages", body).body)
    third = web.fetch("POST", "/api/v1/entities/many/messages", one)
    web.close()

    assert first["sent"] + len(first["failures"]) == 40
    stored = [number is not None for number in first["sequence_numbers"]]
    failed = {failure["position"] for failure in first["failures"]}
    assert failed == {position for position, is_stored in enumerate(stored) if not is_stored}
    if "error" not in second:
        assert second["failures"][0]["code"] == "quota-exceeded"
    assert third.status == 403


def test_pages_of_a_partitioned_queue_show_every_message_once(api: MessagesWeb) -> None:
    """R20, R21."""
    for start in range(0, 60, 20):
        api.put("many", *({"body": str(number)} for number in range(start, start + 20)))

    seen: list[object] = []
    query = "?top=7"
    while True:
        page = json.loads(api.call("GET", f"many/messages{query}").body)
        seen += bodies(page["messages"])
        if page["next"] is None:
            break
        query = f"?top=7&cursor={page['next']}"

    assert sorted(map(str, seen)) == sorted(map(str, range(60)))


def test_a_page_may_begin_at_a_number(api: MessagesWeb) -> None:
    numbers = api.put("q", *({"body": str(number)} for number in range(5)))["sequence_numbers"]
    assert isinstance(numbers, list)

    page = json.loads(api.call("GET", f"q/messages?from={numbers[3]}&top=1").body)
    rest = api.peek("q", f"?cursor={page['next']}")

    assert (bodies(page["messages"]), bodies(rest)) == (["3"], ["4"])


@pytest.mark.parametrize(
    "query",
    ["?cursor=x", "?cursor=m1-2", "?cursor=w", "?cursor=w1-2", "?cursor=w1&from=1", "?top=0",
     "?top=251", "?from=-1", "?colour=1", "?cursor=wffffffffffffffff", "?session=s"],
)  # fmt: skip
def test_a_page_that_cannot_be_is_refused(api: MessagesWeb, query: str) -> None:
    assert api.call("GET", f"q/messages{query}").status == 400


def test_locked_messages_are_settled_in_every_way(api: MessagesWeb) -> None:
    """R33."""
    api.put("q", *({"body": str(number)} for number in range(5)))
    tokens = [message["lock_token"] for message in api.get("q", count=10)]
    complete, abandon, release, defer, dead = tokens

    for action, token, more in (
        ("complete", complete, {}),
        ("abandon", abandon, {"properties": {"tried": 1}}),
        ("release", release, {}),
        ("defer", defer, {}),
        ("dead_letter", dead, {"reason": "bad", "description": "very bad"}),
    ):
        answer = api.post("q/messages/settle", action=action, lock_tokens=[token], **more)
        assert answer == {"settled": 1, "lost": []}

    left = {message["body"]: message for message in api.peek("q")}
    [dead_letter] = api.peek("q/$DeadLetterQueue")
    assert set(left) == {"1", "2", "3"}
    assert (left["1"]["delivery_count"], left["1"]["properties"]) == (1, {"tried": 1})
    assert (left["2"]["delivery_count"], left["3"]["state"]) == (0, "deferred")
    assert dead_letter["dead_letter_reason"] == "bad"
    assert dead_letter["dead_letter_description"] == "very bad"
    assert "properties" not in dead_letter


def test_locks_that_are_lost_are_told(api: MessagesWeb) -> None:
    api.put("q", {}, {})
    first, second = (message["lock_token"] for message in api.get("q", count=2))
    api.post("q/messages/settle", action="complete", lock_tokens=[first])

    both = api.post("q/messages/settle", action="complete", lock_tokens=[first, second])
    status, _ = api.refusal("q/messages/settle", action="complete", lock_tokens=[first, second])

    assert both == {"settled": 1, "lost": [first]}
    assert status == 410


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"action": "complete", "lock_tokens": []}, "lock_tokens"),
        ({"action": "complete", "lock_tokens": ["x"]}, "not a lock token"),
        ({"action": "burn", "lock_tokens": []}, "action"),
        ({"lock_tokens": ["00112233-4455-6677-8899-aabbccddeeff"]}, "action"),
    ],
)
def test_a_settlement_that_cannot_be_read_is_refused(
    api: MessagesWeb, body: Document, words: str
) -> None:
    status, text = api.refusal("q/messages/settle", **body)

    assert (status, words in text) == (400, True)


def test_only_a_fitting_action_takes_a_reason_a_delay_or_properties(api: MessagesWeb) -> None:
    token = "00112233-4455-6677-8899-aabbccddeeff"
    for more in ({"reason": "x"}, {"delay_ms": 1}, {"properties": {"a": 1}}):
        status, _ = api.refusal("q/messages/settle", action="complete", lock_tokens=[token], **more)
        assert status == 400


def test_a_renewed_lock_lasts_longer(api: MessagesWeb) -> None:
    api.put("q", {})
    [message] = api.get("q")
    api.pass_s(10)

    renewed = api.post("q/messages/renew", lock_tokens=[message["lock_token"]])

    assert str(renewed["locked_until"]) > str(message["locked_until"])


def test_a_receive_waits_for_the_first_message(api: MessagesWeb) -> None:
    """R17."""
    body = json.dumps({"count": 10, "wait_ms": 20_000}).encode()
    waiting = api.start(api.request("POST", "/api/v1/entities/many/messages/receive", body))
    api.pass_s(5)
    assert not waiting.done()

    api.put("many", {"body": "late"})
    api.pass_s(0.5)

    assert waiting.done()
    assert bodies(json.loads(waiting.result().body)["messages"]) == ["late"]


def test_a_receive_takes_what_all_fragments_have(api: MessagesWeb) -> None:
    """R17."""
    api.put("many", *({"body": str(number)} for number in range(100)))

    messages = api.get("many", count=250, wait_ms=20_000)

    assert sorted(bodies(messages), key=str) == sorted(map(str, range(100)))


def test_large_messages_make_a_receive_end_early_and_locks_no_more_than_it_gives(
    api: MessagesWeb,
) -> None:
    for _ in range(15):
        api.put("q", *({"body": "x" * 200_000} for _ in range(4)))

    counts: list[int] = []
    while sum(counts) < 60 and len(counts) < 20:
        counts.append(len(api.get("q", count=250)))

    assert sum(counts) == 60
    assert max(counts) <= 32


def test_a_client_that_leaves_gets_nothing_and_locks_nothing(api: MessagesWeb) -> None:
    body = json.dumps({"count": 10, "wait_ms": 20_000}).encode()
    request = api.request("POST", "/api/v1/entities/q/messages/receive", body)
    waiting = api.start(request)
    api.pass_s(1)
    request.departure.happen()
    api.pass_s(1)
    assert waiting.done()

    api.put("q", {"body": "still there"})

    assert bodies(api.get("q")) == ["still there"]


def test_a_deleted_queue_ends_who_waits_there(api: MessagesWeb) -> None:
    body = json.dumps({"wait_ms": 60_000}).encode()
    waiting = api.start(api.request("POST", "/api/v1/entities/q/messages/receive", body))
    api.pass_s(1)

    api.run(api.namespace.delete("q"))
    api.pass_s(1)

    assert waiting.done()
    assert json.loads(waiting.result().body)["messages"] == []


def test_what_is_deleted_on_receive_is_gone(api: MessagesWeb) -> None:
    api.put("q", {"body": "a"}, {"body": "b"})

    assert bodies(api.get("q", count=9, mode="receive_and_delete")) == ["a", "b"]
    assert api.peek("q") == []


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_session_is_held_between_requests(api: MessagesWeb, is_partitioned: bool) -> None:
    """R26."""
    api.create_sessions("s", is_partitioned=is_partitioned)
    api.put("s", *({"session_id": "a", "body": str(number)} for number in range(3)))
    api.put("s", {"session_id": "b", "body": "other"})

    first = api.post("s/messages/receive", session_id="a", count=2)
    status, _ = api.refusal("s/messages/receive", session_id="a")
    session = first["session"]
    assert isinstance(session, dict)
    token = session["lock_token"]
    second = api.post("s/messages/receive", session_lock_token=token, count=5)
    messages = [*messages_of(first), *messages_of(second)]
    tokens = [message["lock_token"] for message in messages]
    settled = api.post("s/messages/settle", action="complete", lock_tokens=tokens)
    renewed = api.post("s/sessions/renew", session_lock_token=token)
    released = api.post("s/sessions/release", session_lock_token=token)
    after = api.post("s/messages/receive", session_id="a")

    assert (session["session_id"], status) == ("a", 410)
    assert bodies(messages) == ["0", "1", "2"]
    assert settled["settled"] == 3
    assert str(renewed["locked_until"]) >= str(session["locked_until"])
    assert released == {"released": True}
    assert after == {"messages": [], "session": None}


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_session_is_one_in_all_its_spellings(api: MessagesWeb, is_partitioned: bool) -> None:
    """R26; messages keep theirs, and the session that of who asked."""
    api.create_sessions("s", is_partitioned=is_partitioned)
    names = ["Order-7", "order-7", "ORDER-7"]
    api.put("s", *({"session_id": name, "body": name} for name in names))

    peeked = api.peek("s", "?session=oRDER-7")
    listed = json.loads(api.call("GET", "s/sessions").body)["sessions"]
    first = api.post("s/messages/receive", session_id="orDer-7", count=9)
    status, _ = api.refusal("s/messages/receive", session_id="ORDER-7")

    assert bodies(peeked) == names
    assert listed == [{"session_id": "Order-7"}]
    assert [message["session_id"] for message in messages_of(first)] == names
    assert isinstance(first["session"], dict)
    assert (first["session"]["session_id"], status) == ("orDer-7", 410)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_of_a_session_that_is_held_it_is_told_until_when_and_how_many_messages(
    api: MessagesWeb, is_partitioned: bool
) -> None:
    """R26."""
    api.create_sessions("s", is_partitioned=is_partitioned)
    api.put("s", *({"session_id": name, "body": name} for name in ("a", "A", "b", "c")))
    held = api.post("s/messages/receive", session_id="A", count=2)["session"]
    assert isinstance(held, dict)

    during = json.loads(api.call("GET", "s/sessions").body)["sessions"]
    api.post("s/sessions/release", session_lock_token=held["lock_token"])
    after = json.loads(api.call("GET", "s/sessions").body)["sessions"]

    told = {
        "session_id": "a",
        "locked_until": held["locked_until"],
        "locked_messages": 2,
        # It was not received over AMQP.
        "holder": "",
    }
    assert sorted(during, key=lambda one: str(one["session_id"])) == [
        told,
        {"session_id": "b"},
        {"session_id": "c"},
    ]
    assert sorted(one["session_id"] for one in after) == ["a", "b", "c"]
    assert not any("locked_until" in one for one in after)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_an_empty_string_is_a_session(api: MessagesWeb, is_partitioned: bool) -> None:
    api.create_sessions("s", is_partitioned=is_partitioned)
    api.put("s", {"session_id": "", "body": "one", "partition_key": "any"})
    api.put("s", {"session_id": "", "body": "two"}, {"session_id": "other", "body": "x"})

    peeked = api.peek("s", "?session=")
    listed = json.loads(api.call("GET", "s/sessions").body)["sessions"]
    found = api.post("s/messages/receive", session_id="", count=9)
    session = found["session"]
    assert isinstance(session, dict)
    more = api.post("s/messages/receive", session_lock_token=session["lock_token"])
    api.post("s/sessions/release", session_lock_token=session["lock_token"])
    purged = api.post("s/messages/purge", session_id="")

    assert bodies(peeked) == bodies(messages_of(found)) == ["one", "two"]
    assert {message["session_id"] for message in messages_of(found)} == {""}
    assert session["session_id"] == ""
    assert more == {"messages": [], "session": None}
    assert sorted(each["session_id"] for each in listed) == ["", "other"]
    assert purged["purged"] == 2


def test_without_a_name_the_next_free_session_comes(api: MessagesWeb) -> None:
    """R26."""
    api.create_sessions("s", is_partitioned=True)
    api.put("s", *({"session_id": name, "body": name} for name in "abc"))

    found = [api.get("s", mode="receive_and_delete") for _ in range(4)]

    assert sorted(str(bodies(messages)) for messages in found) == ["['a']", "['b']", "['c']", "[]"]


def test_sessions_are_listed(api: MessagesWeb) -> None:
    """R26."""
    api.create_sessions("s", is_partitioned=True)
    api.put("s", *({"session_id": f"s{number}"} for number in range(5)))

    first = json.loads(api.call("GET", "s/sessions?top=3").body)["sessions"]
    rest = json.loads(api.call("GET", "s/sessions?skip=3&top=3").body)["sessions"]
    none = json.loads(api.call("GET", "q/sessions").body)["sessions"]

    ids = sorted(session["session_id"] for session in first + rest)
    assert (ids, len(first), none) == ([f"s{number}" for number in range(5)], 3, [])


def test_sessions_are_asked_for_only_where_there_are_some(api: MessagesWeb) -> None:
    assert api.refusal("q/messages/receive", session_id="a")[0] == 400
    assert api.refusal("q/messages/purge", session_id="a")[0] == 400


def test_a_topic_takes_messages_and_its_subscriptions_give_them(api: MessagesWeb) -> None:
    api.create_topic("news")
    api.subscribe("news", "europe")

    sent = api.put("news", {"body": "x"})
    status, text = api.refusal("news/messages/receive")
    refused, _ = api.refusal("news/Subscriptions/europe/messages", messages=[{}])

    assert sent["sent"] == 1
    assert (status, "Subscriptions" in text, refused) == (400, True, 400)
    assert bodies(api.peek("news/Subscriptions/europe")) == ["x"]
    assert bodies(api.get("news/Subscriptions/europe")) == ["x"]


def test_a_scheduled_message_says_when(api: MessagesWeb) -> None:
    api.put("q", {"scheduled_at": "2999-01-01T00:00:00Z"})

    [message] = api.peek("q")

    assert message["state"] == "scheduled"
    assert message["scheduled_at"] == "2999-01-01T00:00:00.000Z"
    assert api.get("q") == []


def test_each_right_opens_its_own_part(api: MessagesWeb) -> None:
    """R34."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("in", SEND, "k1"), AccessRule("out", LISTEN, "k2")]
    api.create("guarded", spec=spec)

    def statuses(token: str) -> list[int]:
        return [
            api.call("POST", "guarded/messages", {"messages": [{}]}, token).status,
            api.call("GET", "guarded/messages", token=token).status,
            api.call("POST", "guarded/messages/receive", {}, token).status,
            api.call("POST", "guarded/messages/purge", {}, token).status,
            api.call("POST", "guarded/dead-letters/resubmit", {}, token).status,
            api.call("GET", "guarded/sessions", token=token).status,
        ]

    assert statuses(api.token(key_name="in", key="k1")) == [200, 401, 401, 401, 401, 401]
    assert statuses(api.token(key_name="out", key="k2")) == [401, 200, 200, 200, 401, 200]
    assert statuses(api.token()) == [200] * 6


def test_a_disabled_queue_refuses_and_a_missing_one_is_missing(api: MessagesWeb) -> None:
    for status, name in ((SEND_DISABLED_STATUS, "in"), (RECEIVE_DISABLED_STATUS, "out")):
        spec = EntitySpec()
        spec.status = status
        api.create(name, spec=spec)

    assert api.refusal("in/messages", messages=[{}])[0] == 400
    assert api.refusal("out/messages/receive")[0] == 400
    assert api.refusal("none/messages", messages=[{}])[0] == 404
    assert api.call("GET", "none/messages").status == 404


def test_a_message_that_nobody_can_read_is_shown_as_it_is(api: MessagesWeb) -> None:
    """Sections are kept as they were sent, and the bus looks into few of them."""
    unreadable = b"\x00\x53\x75\xa0\x01x\x00\x53\x77\xc0\x02\x05\x40"
    value_too_long = b"\x00\x53\x77\xc0\x03\x05\x40\x40"
    entry = Entry(7, unreadable, len(unreadable), enqueued_at_ms=1_000)

    shown = message_document(entry, unreadable, delivery_count=2)
    other = message_document(entry, value_too_long, delivery_count=2)

    assert b64decode(str(shown.body_base64)) == unreadable
    assert b64decode(str(other.body_base64)) == value_too_long
    assert (shown.sequence_number, shown.delivery_count) == (7, 2)


def test_what_one_fragment_deleted_is_handed_out_whatever_the_others_do(api: MessagesWeb) -> None:
    """R20: a message is shown or stays, in as far as the bus knows."""
    texts = [f"{number}" for number in range(32)]
    api.put("many", *({"body": text} for text in texts))
    api.break_fragment("many", 5, Settle)

    taken = bodies(api.get("many", count=32, mode="receive_and_delete"))
    kept = bodies(api.peek("many", "?top=250"))

    assert taken
    assert kept
    assert sorted(map(str, [*taken, *kept])) == sorted(texts)


def test_what_could_not_be_deleted_is_locked_for_nobody(api: MessagesWeb) -> None:
    """R18: it comes to the next one, and the delivery that nobody got has not counted."""
    texts = [f"{number}" for number in range(32)]
    api.put("many", *({"body": text} for text in texts))
    for index in range(2, 16):
        api.break_fragment("many", index, Settle, COMPLETE)

    taken = bodies(api.get("many", count=32, mode="receive_and_delete"))
    left = api.get("many", count=32)

    assert sorted(map(str, [*taken, *bodies(left)])) == sorted(texts)
    assert {message["delivery_count"] for message in left} == {0}


def test_where_nothing_could_be_deleted_nothing_is_locked(api: MessagesWeb) -> None:
    api.put("q", {"body": "x"})
    api.break_fragment("q", 0, Settle, COMPLETE)

    api.refusal("q/messages/receive", mode="receive_and_delete")
    over_http = api.take("q").status

    assert over_http == 503
    [left] = api.get("q")
    assert (left["body"], left["delivery_count"]) == ("x", 0)
