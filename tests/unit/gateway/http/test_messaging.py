"""HTTP messaging: sending, receiving, settling, and who may (R33, R34)."""

import json

import pytest

from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import (
    DISABLED_STATUS,
    RECEIVE_DISABLED_STATUS,
    SEND_DISABLED_STATUS,
    EntitySpec,
)
from shardbus.gateway.http.moment import format_http_date
from tests.support.refusals import check_named
from tests.unit.gateway.http.web import Web, broker_properties, header, settle_path

BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


def detail(body: bytes) -> str:
    return body.decode().partition("<Detail>")[2]


@pytest.mark.parametrize("queue", ["q", "many"])
def test_what_is_sent_is_received_and_deleted(web: Web, queue: str) -> None:
    """R33."""
    headers = {
        "Content-Type": "application/json",
        "BrokerProperties": json.dumps({"Label": "greeting", "MessageId": "m-1"}),
        "Priority": '"High"',
        "Customer": "12345,ABC",
        "Weight": "1.5",
        "Fragile": "true",
        "Count": "7",
    }
    sent = web.fetch("POST", f"/{queue}/messages", b'{"a": 1}', headers)

    received = web.take(queue)

    assert (sent.status, sent.body) == (201, b"")
    assert (received.status, received.body) == (200, b'{"a": 1}')
    assert received.content_type == "application/json"
    found = broker_properties(received)
    assert (found["Label"], found["MessageId"], found["State"]) == ("greeting", "m-1", "Active")
    assert found["DeliveryCount"] == 1
    assert "LockToken" not in found
    assert header(received, "Priority") == '"High"'
    assert header(received, "Customer") == '"12345,ABC"'
    assert header(received, "Weight") == "1.5"
    assert header(received, "Fragile") == "true"
    assert header(received, "Count") == "7"
    assert web.take(queue).status == 204


def test_a_locked_message_says_where_it_is_settled(web: Web) -> None:
    """R33."""
    web.send("many", b"x", {"MessageId": "a/b c"})

    locked = web.lock("many")

    assert locked.status == 201
    found = broker_properties(locked)
    assert header(locked, "Location") == (
        f"http://bus:5300/many/messages/a%2Fb%20c/{found['LockToken']}"
    )
    assert str(found["LockedUntilUtc"]).endswith("GMT")
    assert found["EnqueuedSequenceNumber"] == 0 < int(str(found["SequenceNumber"]))
    # To the letter: one digit more than a float is usually written with.
    assert '"TimeToLive": 922337203685.47754' in header(locked, "BrokerProperties")


def test_a_completed_message_is_gone_for_good(web: Web) -> None:
    """R33."""
    web.send("q")
    path = settle_path(web.lock("q"))

    completed = web.fetch("DELETE", path)
    again = web.fetch("DELETE", path)

    assert (completed.status, completed.body) == (200, b"")
    assert again.status == 404
    web.pass_s(61)
    assert web.lock("q").status == 204


def test_an_unlocked_message_comes_back_and_its_delivery_has_counted(web: Web) -> None:
    """R33."""
    web.send("q")
    path = settle_path(web.lock("q"))

    unlocked = web.fetch("PUT", path)

    assert unlocked.status == 200
    assert broker_properties(web.lock("q"))["DeliveryCount"] == 2
    assert web.fetch("PUT", path).status == 404


def test_a_renewed_lock_holds_longer(web: Web) -> None:
    """R33."""
    web.send("q")
    path = settle_path(web.lock("q"))
    web.pass_s(50)

    renewed = web.fetch("POST", path)

    assert renewed.status == 200
    assert str(broker_properties(renewed)["LockedUntilUtc"]).endswith("GMT")
    web.pass_s(50)
    assert web.lock("q").status == 204
    assert web.fetch("DELETE", path).status == 200
    assert web.fetch("POST", path).status == 404


def test_a_sequence_number_may_stand_where_the_message_id_does(web: Web) -> None:
    web.send("q")
    found = broker_properties(web.lock("q"))

    path = f"/q/messages/{found['SequenceNumber']}/{found['LockToken']}"

    assert web.fetch("DELETE", path).status == 200


def test_dead_letters_are_received_from_their_own_path(web: Web) -> None:
    """With the reason as a property; nothing can be sent there."""
    spec = EntitySpec()
    spec.delivery_count_max = 1
    web.create("poor", spec=spec)
    web.send("poor", b"bad")
    web.fetch("PUT", settle_path(web.lock("poor")))

    locked = web.lock("poor/$DeadLetterQueue")

    assert locked.status == 201
    assert header(locked, "DeadLetterReason") == '"MaxDeliveryCountExceeded"'
    assert settle_path(locked).startswith("/poor/$DeadLetterQueue/messages/")
    assert web.fetch("DELETE", settle_path(locked)).status == 200
    assert web.fetch("POST", "/poor/$deadletterqueue/messages", b"x").status == 400


@pytest.mark.parametrize("queue", ["q", "many"])
def test_a_batch_is_stored_as_a_whole_and_in_order(web: Web, queue: str) -> None:
    """R33."""
    batch = [
        {"Body": "one", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
        {"Body": "two", "UserProperties": {"Priority": "Low", "n": 2, "ok": False, "x": None}},
        {"Body": "drei: ü"},
    ]

    sent = web.fetch("POST", f"/{queue}/messages", json.dumps(batch).encode(), BATCH)

    assert sent.status == 201
    received = [web.take(queue) for _ in batch]
    assert [response.body.decode() for response in received] == ["one", "two", "drei: ü"]
    assert broker_properties(received[0])["Label"] == "M1"
    assert broker_properties(received[0])["TimeToLive"] == 40
    assert header(received[1], "Priority") == '"Low"'
    assert header(received[1], "n") == "2"
    assert header(received[1], "ok") == "false"
    assert json.loads(header(received[1], "Shardbus-Properties")) == {"x": None}


def test_a_batch_with_one_bad_message_stores_nothing(web: Web) -> None:
    batch = [{"Body": "good"}, {"Body": 5}]

    refused = web.fetch("POST", "/q/messages", json.dumps(batch).encode(), BATCH)

    assert refused.status == 400
    check_named(detail(refused.body), "Message 1", "Body")
    assert web.take("q").status == 204


@pytest.mark.parametrize("queue", ["q", "many"])
def test_a_batch_may_have_two_keys(web: Web, queue: str) -> None:
    """R49."""
    batch = [
        {"Body": key, "BrokerProperties": {"PartitionKey": key}} for key in ("red", "blue", "red")
    ]

    sent = web.fetch("POST", f"/{queue}/messages", json.dumps(batch).encode(), BATCH)

    assert sent.status == 201
    assert sorted(web.take(queue).body for _ in batch) == [b"blue", b"red", b"red"]
    assert web.take(queue).status == 204


def test_a_partition_key_chooses_the_fragment(web: Web) -> None:
    """R10, R12."""
    for _ in range(5):
        web.send("many", b"x", {"PartitionKey": "red"})

    found = [broker_properties(web.take("many")) for _ in range(5)]

    assert len({int(str(one["SequenceNumber"])) >> 48 for one in found}) == 1
    assert {one["PartitionKey"] for one in found} == {"red"}


def test_a_session_id_that_is_not_the_partition_key_is_refused(web: Web) -> None:
    """R12."""
    headers = {"BrokerProperties": '{"SessionId": "a", "PartitionKey": "b"}'}

    assert web.fetch("POST", "/many/messages", b"x", headers).status == 400


@pytest.mark.parametrize(
    ("session_id", "key"), [("Order-7", "order-7"), ("ORDER-7", "Order-7"), ("", "any"), ("", None)]
)
def test_a_session_is_compared_without_case_and_may_be_empty(
    web: Web, session_id: str, key: str | None
) -> None:
    said: dict[str, object] = {"SessionId": session_id}
    if key is not None:
        said["PartitionKey"] = key
    web.send("many", b"x", said)

    found = broker_properties(web.take("many"))

    assert {name: found.get(name) for name in said} == said


def test_a_message_lives_as_long_as_it_says(web: Web) -> None:
    web.send("q", b"short", {"TimeToLive": 2.5})
    web.send("q", b"long", {"TimeToLive": 100 * 86_400})

    found = broker_properties(web.lock("q"))
    assert found["TimeToLive"] == 2.5
    web.pass_s(70)

    received = web.take("q")
    assert received.body == b"long"
    assert broker_properties(received)["TimeToLive"] == 100 * 86_400


@pytest.mark.parametrize("queue", ["q", "many"])
def test_a_scheduled_message_comes_when_it_is_due(web: Web, queue: str) -> None:
    """And says that it came by schedule, which one whose moment had passed did not."""
    moment = http_date(web, 30)
    web.send(queue, b"later", {"ScheduledEnqueueTimeUtc": moment})
    web.send(queue, b"past", {"ScheduledEnqueueTimeUtc": "Sun, 06 Nov 1994 08:49:37 GMT"})

    past = web.take(queue)
    assert (past.body, broker_properties(past)["State"]) == (b"past", "Active")
    assert web.take(queue).status == 204
    web.pass_s(31)
    locked = web.lock(queue)
    assert web.fetch("PUT", settle_path(locked)).status == 200
    received = web.take(queue)

    for response in (locked, received):
        found = broker_properties(response)
        assert (response.body, found["State"]) == (b"later", "Scheduled")
        assert found["ScheduledEnqueueTimeUtc"] == moment


def http_date(web: Web, seconds: int) -> str:
    date = format_http_date(web.clock.now_ms() + seconds * 1000)
    assert date is not None
    return date


def test_a_duplicate_is_accepted_and_dropped(web: Web) -> None:
    """R13; messages without an id are never duplicates."""
    spec = EntitySpec()
    spec.requires_duplicate_detection = True
    web.create("once", is_partitioned=True, spec=spec)
    for _ in range(2):
        web.send("once", b"same", {"MessageId": "m"})
        web.send("once", b"own")

    bodies = [web.take("once").body for _ in range(4)]

    assert sorted(bodies) == [b"", b"own", b"own", b"same"]


def test_a_queue_with_sessions_takes_messages_and_gives_none(web: Web) -> None:
    """Sessions are received over AMQP; their dead letters have no session."""
    web.create_sessions("calls")
    web.send("calls", b"x", {"SessionId": "s"})

    refused = web.lock("calls")

    assert refused.status == 400
    check_named(detail(refused.body), "calls")
    assert web.take("calls/$DeadLetterQueue").status == 204
    assert web.fetch("POST", "/calls/messages", b"x").status == 400


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (DISABLED_STATUS, 400, 400),
        (SEND_DISABLED_STATUS, 400, 201),
        (RECEIVE_DISABLED_STATUS, 201, 400),
    ],
)
def test_the_status_of_an_entity_is_kept(web: Web, status: str, sends: int, receives: int) -> None:
    """R35."""
    web.send("q")
    web.set_status("q", status)

    assert web.fetch("POST", "/q/messages", b"x").status == sends
    assert web.lock("q").status == receives


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/nowhere/messages"),
        ("DELETE", "/nowhere/messages/head"),
        ("PUT", "/nowhere/messages/1/7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"),
        ("POST", "/topic/subscriptions/s/messages/head"),
        ("POST", "/q/$management/messages"),
        ("POST", "/$cbs/messages"),
    ],
)
def test_an_entity_that_is_not_there_is_gone(web: Web, method: str, path: str) -> None:
    """410."""
    assert web.fetch(method, path, b"x").status == 410


@pytest.mark.parametrize(
    "token", ["7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547", "00000000-0000-0000-0000-000000000000"]
)
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_a_lock_that_nobody_holds_is_not_found(web: Web, method: str, token: str) -> None:
    assert web.fetch(method, f"/many/messages/m/{token}").status == 404


def test_sending_needs_one_right_and_receiving_another(web: Web) -> None:
    """R34."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("out", LISTEN, "l"), AccessRule("in", SEND, "s")]
    web.create("guarded", spec=spec)
    sender = web.token("http://bus/guarded", key_name="in", key="s")
    listener = web.token("http://bus/guarded", key_name="out", key="l")

    assert web.fetch("POST", "/guarded/messages", b"x", token=listener).status == 401
    assert web.fetch("POST", "/guarded/messages", b"x", token=sender).status == 201
    assert web.fetch("DELETE", "/guarded/messages/head", token=sender).status == 401
    locked = web.fetch("POST", "/guarded/messages/head", token=listener)
    assert locked.status == 201
    assert web.fetch("DELETE", settle_path(locked), token=sender).status == 401
    assert web.fetch("DELETE", settle_path(locked), token=listener).status == 200
    assert web.fetch("POST", "/q/messages", b"x", token=sender).status == 401


@pytest.mark.parametrize(
    "token", ["", "nonsense", "SharedAccessSignature sr=a&sig=b&se=1&skn=RootManageSharedAccessKey"]
)
def test_nobody_sends_or_receives_without_a_good_token(web: Web, token: str) -> None:
    """R34: also not to learn what exists."""
    for path in ("/q/messages", "/nowhere/messages", "/q/messages/head"):
        response = web.fetch("POST", path, b"x", token=token)
        assert response.status == 401
        assert ("WWW-Authenticate", "SharedAccessSignature") in response.headers


def test_a_message_that_is_too_large_is_refused_and_the_largest_is_not(web: Web) -> None:
    """403."""
    overhead = 64
    assert web.fetch("POST", "/q/messages", bytes(256 * 1024 - overhead)).status == 201

    refused = web.fetch("POST", "/q/messages", bytes(256 * 1024))

    assert refused.status == 403
    check_named(detail(refused.body), "262144")
    batch = json.dumps([{"Body": "x" * 150_000}] * 2).encode()
    assert web.fetch("POST", "/q/messages", batch, BATCH).status == 403


def test_a_full_queue_says_so_and_loses_nothing() -> None:
    """R9."""
    web = Web(fragment_bytes_max=5000)
    web.send("q", bytes(6000))

    refused = web.fetch("POST", "/q/messages", b"x")

    assert refused.status == 403
    assert len(web.take("q").body) == 6000
    web.send("q")
    web.close()


def test_a_throttled_client_is_told_to_wait() -> None:
    web = Web(credits_per_s=2)
    web.send("q")
    web.lock("q")

    refused = web.fetch("POST", "/q/messages", b"x")

    assert refused.status == 503
    assert "Error code: 50009" in detail(refused.body)
    assert web.counts.throttled == 1
    web.pass_s(1)
    web.send("q")
    web.close()


@pytest.mark.parametrize("failure", ["before", "after"])
def test_a_deletion_that_fails_is_said_and_loses_nothing_that_was_not_deleted(
    web: Web, failure: str
) -> None:
    """An unknown outcome is told as one; D1."""
    web.send("q", b"x")
    web.disk.commit_failures.append(failure)

    failed = web.take("q")

    assert failed.status == 504
    web.pass_s(61)
    assert web.take("q").status == (200 if failure == "before" else 204)


def test_a_send_whose_answer_was_lost_is_stored_once(web: Web) -> None:
    """What may be stored is asked for, and accepted when it is."""
    web.disk.commit_failures.append("after")

    assert web.fetch("POST", "/q/messages", b"x").status == 201
    assert [web.take("q").status for _ in range(2)] == [200, 204]


def test_a_send_of_which_nothing_can_be_learned_is_unknown(web: Web) -> None:
    web.disk.commit_failures.extend(["before"] * 400)

    told = web.fetch("POST", "/q/messages", b"x")

    assert told.status == 504


def test_a_send_that_was_not_stored_is_one_to_try_again(web: Web) -> None:
    web.disk.commit_failures.append("before")

    assert web.fetch("POST", "/q/messages", b"x").status == 503
    web.pass_s(1)
    web.send("q")


def test_an_entity_named_like_the_url_of_messages_can_still_be_managed(web: Web) -> None:
    web.create("a/messages/head")
    web.create("a")
    web.send("a", b"kept")

    assert web.fetch("DELETE", "/a/messages/head").body == b"kept"
    deleted = web.fetch("DELETE", "/a/messages/head?api-version=2021-05")

    assert deleted.status == 200
    assert web.namespace.find("a/messages/head") is None
    assert web.namespace.find("a") is not None


def test_entity_names_may_have_slashes_and_any_case(web: Web) -> None:
    web.create("shop/Orders")

    assert web.fetch("POST", "/Shop/orders/Messages", b"x").status == 201
    assert web.fetch("DELETE", "/SHOP/ORDERS/messages/HEAD").body == b"x"


BAD = [
    ("BrokerProperties", "{", "BrokerProperties"),
    ("BrokerProperties", "[]", "BrokerProperties"),
    ("BrokerProperties", '{"TimeToLive": NaN}', "NaN"),
    ("BrokerProperties", '{"TimeToLive": 0}', "TimeToLive"),
    ("BrokerProperties", '{"TimeToLive": -1}', "TimeToLive"),
    ("BrokerProperties", '{"TimeToLive": "5"}', "TimeToLive"),
    ("BrokerProperties", '{"TimeToLive": true}', "TimeToLive"),
    ("BrokerProperties", '{"TimeToLiveTimeSpan": "5 days"}', "TimeToLiveTimeSpan"),
    ("BrokerProperties", '{"TimeToLiveTimeSpan": "00:00:00"}', "TimeToLiveTimeSpan"),
    ("BrokerProperties", '{"ScheduledEnqueueTimeUtc": "soon"}', "ScheduledEnqueueTimeUtc"),
    ("BrokerProperties", '{"MessageId": 5}', "MessageId"),
    ("BrokerProperties", '{"MessageId": "%s"}' % ("m" * 129), "128"),
    ("BrokerProperties", '{"SessionId": "%s"}' % ("m" * 129), "128"),
    ("BrokerProperties", '{"Label": "\\ud800"}', "Label"),
    ("BrokerProperties", "[" * 20_000, "BrokerProperties"),
    ("BrokerProperties", '{"x": 1%s}' % ("0" * 5000), "BrokerProperties"),
    ("Priority", '"High', "priority"),
    ("Priority", '"', "priority"),
    ("Weight", "1e999", "weight"),
    ("Content-Type", "text/pläin", "Content-Type"),
]


@pytest.mark.parametrize(("name", "value", "named"), BAD)
def test_what_cannot_be_read_is_said(web: Web, name: str, value: str, named: str) -> None:
    response = web.fetch("POST", "/q/messages", b"x", {name: value})

    assert response.status == 400
    check_named(detail(response.body), named)
    assert web.take("q").status == 204


@pytest.mark.parametrize("timeout", ["-1", "x", "", "1e3", "1000000000000"])
def test_a_timeout_is_a_number_of_seconds(web: Web, timeout: str) -> None:
    response = web.fetch("POST", f"/q/messages/head?timeout={timeout}")

    assert response.status == 400
    check_named(detail(response.body), "timeout")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"[1]", b"\xff", b'[{"Body": "\\ud800"}]', b'[{"UserProperties": {}}]'],
)
def test_a_batch_that_is_none_is_refused(web: Web, body: bytes) -> None:
    assert web.fetch("POST", "/q/messages", body, BATCH).status == 400


@pytest.mark.parametrize("value", [[], {}, "\ud800"])
def test_user_properties_are_simple_values(web: Web, value: object) -> None:
    batch = json.dumps([{"Body": "x", "UserProperties": {"p": value}}]).encode()

    assert web.fetch("POST", "/q/messages", batch, BATCH).status == 400


def test_properties_have_their_limits(web: Web) -> None:
    """32 KB each, 64 KB together."""

    def status(properties: dict[str, str]) -> int:
        batch = json.dumps([{"Body": "x", "UserProperties": properties}]).encode()
        return web.fetch("POST", "/q/messages", batch, BATCH).status

    assert status({"a": "x" * 32_000}) == 201
    assert status({"a": "x" * 33_000}) == 400
    assert status({"a": "x" * 32_000, "b": "x" * 32_000, "c": "x" * 32_000}) == 400


@pytest.mark.parametrize("path", ["/q/messages", "/q/messages/head", "/q/messages/1/" + "0" * 8])
def test_the_methods_of_messages_are_named_with_post(web: Web, path: str) -> None:
    path = path + "-0000-0000-0000-000000000000" if path.endswith("0") else path

    refused = web.fetch("PATCH", path)
    entity = web.fetch("PATCH", "/q")

    assert refused.status == 405
    assert "POST" in header(refused, "Allow").split(", ")
    assert "POST" not in header(entity, "Allow").split(", ")
