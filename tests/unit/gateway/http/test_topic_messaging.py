"""HTTP messaging below topics: published to the topic, received from subscriptions (R33)."""

import json

import pytest

from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.rule_spec import RuleSpec, sql_filter
from shardbus.gateway.http.moment import format_http_date
from tests.unit.gateway.http.web import Web, broker_properties, header, settle_path

SUBSCRIPTION = "news/subscriptions/eu"
DEAD_LETTERS = f"{SUBSCRIPTION}/$deadletterqueue"


def make_topic(web: Web, *, is_partitioned: bool = False, delivery_count_max: int = 10) -> None:
    spec = EntitySpec()
    spec.access_rules = [AccessRule("out", LISTEN, "l"), AccessRule("in", SEND, "s")]
    web.create_topic("news", is_partitioned=is_partitioned, spec=spec)
    below = EntitySpec()
    below.delivery_count_max = delivery_count_max
    web.subscribe("news", "eu", spec=below)


def kill(web: Web) -> None:
    """Send a message that is a dead letter of the subscription afterwards."""
    web.send("news", b"poison")
    assert web.fetch("PUT", settle_path(web.lock(SUBSCRIPTION))).status == 200


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_every_subscription_gives_its_copy(web: Web, is_partitioned: bool) -> None:
    """R33."""
    make_topic(web, is_partitioned=is_partitioned)
    web.subscribe("news", "large", [RuleSpec("big", sql_filter("size > 5", []), 0)])
    batch = [
        {"Body": "small", "UserProperties": {"size": 1}},
        {"Body": "big", "UserProperties": {"size": 9}},
    ]
    headers = {"Content-Type": "application/vnd.microsoft.servicebus.json"}

    sent = web.fetch("POST", "/news/messages", json.dumps(batch).encode(), headers)

    assert sent.status == 201
    assert {web.take(SUBSCRIPTION).body for _ in range(2)} == {b"small", b"big"}
    assert web.take("News/Subscriptions/LARGE").body == b"big"
    assert web.take("news/subscriptions/large").status == 204


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_what_a_topic_had_scheduled_says_so_in_the_subscription(
    web: Web, is_partitioned: bool
) -> None:
    make_topic(web, is_partitioned=is_partitioned)
    moment = format_http_date(web.clock.now_ms() + 30_000)
    web.send("news", b"later", {"ScheduledEnqueueTimeUtc": moment})
    web.send("news", b"now")

    now = web.take(SUBSCRIPTION)
    assert (now.body, broker_properties(now)["State"]) == (b"now", "Active")
    web.pass_s(31)
    later = web.take(SUBSCRIPTION)

    found = broker_properties(later)
    assert (later.body, found["State"]) == (b"later", "Scheduled")
    assert found["ScheduledEnqueueTimeUtc"] == moment


@pytest.mark.parametrize("line", ["", "/$DeadLetterQueue", "/$deadletterqueue"])
def test_a_message_of_a_subscription_is_locked_renewed_unlocked_and_completed(
    web: Web, line: str
) -> None:
    """R33: in the subscription and in its dead letters alike."""
    make_topic(web, delivery_count_max=1 if line else 10)
    if line:
        kill(web)
    else:
        web.send("news", b"poison")
    path = f"news/Subscriptions/eu{line}"

    locked = web.lock(path)
    where = settle_path(locked)
    renewed = web.fetch("POST", where)
    unlocked = web.fetch("PUT", where)
    again = web.lock(path)
    completed = web.fetch("DELETE", settle_path(again))

    assert (locked.status, locked.body) == (201, b"poison")
    assert where.startswith(f"/{path}/messages/")
    assert "LockedUntilUtc" in broker_properties(renewed)
    assert [renewed.status, unlocked.status, completed.status] == [200, 200, 200]
    counts = [broker_properties(response)["DeliveryCount"] for response in (locked, again)]
    assert counts == ([2, 2] if line else [1, 2])
    numbers = broker_properties(locked)
    assert numbers["EnqueuedSequenceNumber"] == numbers["SequenceNumber"]
    assert web.lock(path).status == 204
    assert web.fetch("DELETE", settle_path(again)).status == 404


def test_a_dead_letter_of_a_subscription_says_why_it_is_one(web: Web) -> None:
    make_topic(web, delivery_count_max=1)
    kill(web)

    response = web.take(DEAD_LETTERS)

    assert (response.status, response.body) == (200, b"poison")
    assert header(response, "DeadLetterReason") == '"MaxDeliveryCountExceeded"'


def test_a_waiting_receive_at_a_subscription_is_woken(web: Web) -> None:
    make_topic(web)
    waiting = web.start(web.request("DELETE", f"/{SUBSCRIPTION}/messages/head?timeout=30"))
    web.pass_s(1)

    web.send("news", b"now")
    web.pass_s(1)

    assert waiting.done()
    assert waiting.result().body == b"now"


def test_the_rights_of_a_topic_reach_its_subscriptions(web: Web) -> None:
    """R34: and a token for one subscription opens neither the topic nor another one."""
    make_topic(web, delivery_count_max=1)
    web.subscribe("news", "us")
    sender = web.token("http://bus/news", key_name="in", key="s")
    listener = web.token("http://bus/news", key_name="out", key="l")
    narrow = web.token(f"http://bus/{SUBSCRIPTION}", key_name="out", key="l")

    assert web.fetch("POST", "/news/messages", b"x", token=sender).status == 201
    assert web.fetch("POST", "/news/messages", b"x", token=listener).status == 401
    path = f"/{SUBSCRIPTION}/messages/head?timeout=0"
    assert web.fetch("POST", path, token=sender).status == 401
    locked = web.fetch("POST", path, token=listener)
    assert locked.status == 201
    assert web.fetch("PUT", settle_path(locked), token=sender).status == 401
    assert web.fetch("PUT", settle_path(locked), token=narrow).status == 200
    dead = web.fetch("DELETE", f"/{DEAD_LETTERS}/messages/head?timeout=0", token=narrow)
    assert dead.status == 200
    other = "/news/subscriptions/us/messages/head?timeout=0"
    assert web.fetch("POST", other, token=narrow).status == 401
    assert web.fetch("POST", other, token=listener).status == 201


@pytest.mark.parametrize("path", ["news", "News", "news/$DeadLetterQueue"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_nothing_is_received_from_a_topic(web: Web, method: str, path: str) -> None:
    """It keeps nothing: an empty answer would have clients wait for ever."""
    make_topic(web)

    response = web.fetch(method, f"/{path}/messages/head?timeout=0")

    assert response.status == 400
    assert path.partition("/")[0].lower().encode() in response.body.lower()


def test_a_lock_of_a_subscription_is_not_settled_at_another(web: Web) -> None:
    make_topic(web)
    web.subscribe("news", "us")
    web.send("news", b"x")
    where = settle_path(web.lock(SUBSCRIPTION))

    assert web.fetch("DELETE", where.replace("/eu/", "/us/")).status == 404
    assert web.fetch("DELETE", where.replace(SUBSCRIPTION, "news")).status == 400
    assert web.fetch("DELETE", where).status == 200
    assert web.take("news/subscriptions/us").body == b"x"


@pytest.mark.parametrize("path", [SUBSCRIPTION, DEAD_LETTERS, "news/$deadletterqueue"])
def test_nothing_is_sent_below_a_topic(web: Web, path: str) -> None:
    make_topic(web)

    response = web.fetch("POST", f"/{path}/messages", b"x")

    assert response.status == 400
    # What is refused is named as a whole: to its entity somebody may well send.
    assert f"'{path}'".lower().encode() in response.body.lower()


@pytest.mark.parametrize("path", ["news/subscriptions/none", "none/subscriptions/eu"])
def test_a_subscription_that_is_not_there_is_gone(web: Web, path: str) -> None:
    """410."""
    make_topic(web)

    assert web.lock(path).status == 410
    assert web.lock(f"{path}/$DeadLetterQueue").status == 410
