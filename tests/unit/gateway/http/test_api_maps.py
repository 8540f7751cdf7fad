"""Maps over the JSON API: shown, planned, changed, refused (P6)."""

import json
from http import HTTPStatus

from shardbus.broker.namespace.map_change import STEPS
from shardbus.core.namespace.entity import EntitySpec
from tests.unit.gateway.http.web import Web

QUEUE = "/api/v1/entities/orders"
TOPIC = "/api/v1/entities/news"


def ask(web: Web, path: str, body: dict[str, object] | None = None, *, status: int = 200) -> object:
    method = "GET" if body is None else "POST"
    response = web.fetch(method, path, b"" if body is None else json.dumps(body).encode())
    assert response.status == status, response.body
    found: object = json.loads(response.body)
    return found


def make(web: Web, *, keys: int = 0) -> None:
    web.run(web.namespace.create_queue("orders", EntitySpec()))
    messages = [{"body": str(key), "partition_key": str(key)} for key in range(keys)]
    if keys:
        ask(web, f"{QUEUE}/messages", {"messages": messages})


def test_a_queue_is_repartitioned_and_shows_its_map(web: Web) -> None:
    """P6"""
    make(web, keys=10)

    plan = ask(web, f"{QUEUE}/repartition", {"fragments": 4, "is_dry_run": True})
    shown = ask(web, f"{QUEUE}/map")
    changed = ask(web, f"{QUEUE}/repartition", {"fragments": 4})

    assert isinstance(plan, dict) and isinstance(shown, dict) and isinstance(changed, dict)
    assert (plan["is_dry_run"], len(plan["ranges"]), plan["left_active"]) == (True, 4, 10)
    assert (shown["state"], len(shown["ranges"]), shown["map_number"]) == ("settled", 1, 0)
    assert (changed["state"], changed["former"], changed["left_active"]) == ("draining", [0], 10)
    assert [each["fragment"] for each in changed["ranges"]] == [1, 2, 3, 4]
    queue = ask(web, "/api/v1/queues/orders")
    assert isinstance(queue, dict)
    assert queue["fragment_count"] == 4
    assert web.namespace.queue("orders").spec.is_partitioned


def test_a_topic_shows_what_its_subscriptions_have_in_former_fragments(web: Web) -> None:
    """P6: and what was scheduled, which the topic itself has."""
    web.run(web.namespace.create_topic("news", EntitySpec()))
    for name in ("all", "other"):
        web.run(web.namespace.create_subscription("news", name, EntitySpec()))
    messages = [{"body": "x"}, {"body": "y", "scheduled_at": "2199-01-01T00:00:00Z"}]
    ask(web, f"{TOPIC}/messages", {"messages": messages})

    changed = ask(web, f"{TOPIC}/repartition", {"fragments": 2})

    assert isinstance(changed, dict)
    assert (changed["state"], changed["former"]) == ("draining", [0])
    assert (changed["left_active"], changed["left_scheduled"]) == (2, 1)


def test_a_skewed_queue_says_which_map_is_better(web: Web) -> None:
    """P6"""
    make(web)
    ask(web, f"{QUEUE}/repartition", {"fragments": 2})
    for _ in range(3):
        one_key = [{"body": "x", "partition_key": "a"}] * 20
        ask(web, f"{QUEUE}/messages", {"messages": one_key})

    shown = ask(web, f"{QUEUE}/map")
    balanced = ask(
        web, f"{QUEUE}/repartition", {"fragments": 2, "is_balanced": True, "is_dry_run": True}
    )

    assert isinstance(shown, dict) and isinstance(balanced, dict)
    assert shown["skew"] == 2 and "is_balanced" in shown["advice"]
    assert sorted(each["share"] > 0.6 for each in balanced["ranges"]) == [False, True]


def test_what_cannot_be_done_is_said_and_changes_nothing(web: Web) -> None:
    """P6, R28"""
    make(web)
    for body in ({"fragments": 0}, {"fragments": 65}, {}, {"fragments": "4"}):
        ask(web, f"{QUEUE}/repartition", dict(body), status=HTTPStatus.BAD_REQUEST)
    ask(web, f"{QUEUE}/repartition/cancel", {}, status=HTTPStatus.BAD_REQUEST)
    nowhere = "/api/v1/entities/nowhere"
    ask(web, f"{nowhere}/repartition", {"fragments": 4}, status=HTTPStatus.NOT_FOUND)
    web.run(web.namespace.create_topic("news", EntitySpec()))
    web.run(web.namespace.create_subscription("news", "all", EntitySpec()))
    refused = ask(
        web,
        f"{TOPIC}%2FSubscriptions%2Fall/repartition",
        {"fragments": 4},
        status=HTTPStatus.BAD_REQUEST,
    )
    assert "repartition 'news'" in str(refused)
    assert web.namespace.queue("orders").map_number == 0


def test_a_repartition_is_asked_for_and_watched(web: Web) -> None:
    """P6: the answer need not wait for its end, and the same request joins it."""
    make(web, keys=3)

    began = ask(web, f"{QUEUE}/repartition", {"fragments": 16, "wait_ms": 0})
    status = ask(web, f"{QUEUE}/repartition")
    ended = ask(web, f"{QUEUE}/repartition", {"fragments": 16})
    after = ask(web, f"{QUEUE}/repartition")

    assert isinstance(began, dict) and isinstance(status, dict)
    assert isinstance(ended, dict) and isinstance(after, dict)
    assert (began["state"], began["progress"]["fragments"]) == ("preparing", 16)
    assert status["progress"] is None or status["progress"]["step"] in STEPS
    assert (len(ended["ranges"]), ended["progress"], ended["map_number"]) == (16, None, 1)
    assert after == {
        "name": "orders",
        "fragments": 16,
        "former": 1,
        "is_prepared": False,
        "progress": None,
        "failure": "",
    }
    refused = ask(web, f"{QUEUE}/repartition", {"fragments": 2}, status=HTTPStatus.BAD_REQUEST)
    told = ask(web, f"{QUEUE}/repartition")
    assert isinstance(told, dict) and "3 messages still wait" in told["failure"]
    assert told["failure"] in str(refused)


def test_only_who_manages_a_queue_repartitions_it(web: Web) -> None:
    make(web)
    body = json.dumps({"fragments": 4}).encode()

    refused = web.fetch("POST", f"{QUEUE}/repartition", body, token="wrong")

    assert refused.status == HTTPStatus.UNAUTHORIZED
    assert web.namespace.queue("orders").map_number == 0


def test_a_session_is_held_between_requests_after_a_repartition(web: Web) -> None:
    """P6, R26: at both of its fragments, by one token."""
    spec = EntitySpec()
    spec.requires_session = True
    web.run(web.namespace.create_queue("orders", spec))
    for number in range(3):
        if number == 2:
            ask(web, f"{QUEUE}/sessions/state", {"session_id": "a", "state_text": "kept"})
            ask(web, f"{QUEUE}/repartition", {"fragments": 3})
        ask(web, f"{QUEUE}/messages", {"messages": [{"body": str(number), "session_id": "a"}]})

    wanted: dict[str, object] = {"session_id": "a", "count": 1}
    found: list[object] = []
    token = ""
    for _ in range(3):
        received = ask(web, f"{QUEUE}/messages/receive", wanted)
        assert isinstance(received, dict)
        found += [message["body"] for message in received["messages"]]
        token = received["session"]["lock_token"]
        wanted = {"session_lock_token": token, "count": 1}
    held = {"session_lock_token": token}
    ask(web, f"{QUEUE}/messages/receive", {"session_id": "A"}, status=HTTPStatus.GONE)
    ask(web, f"{QUEUE}/sessions/renew", dict(held))
    for wrong in (f"{token}.x", ".".join([token] * 500)):
        forged: dict[str, object] = {"session_lock_token": wrong}
        ask(web, f"{QUEUE}/sessions/renew", forged, status=HTTPStatus.BAD_REQUEST)
    ask(web, f"{QUEUE}/sessions/release", dict(held))
    shown = ask(web, f"{QUEUE}/sessions/show", {"session_id": "A"})

    assert found == ["0", "1", "2"]
    assert isinstance(shown, dict)
    assert (shown["messages"], shown["state_text"], shown["locked_until"]) == (3, "kept", None)
