"""Access rules over the JSON API: who sees and changes them, and what they never show (R34)."""

import json

import pytest

from shardbus.broker.access.auth import DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME
from shardbus.core.namespace.access import LISTEN, MANAGE, RULES_MAX, AccessRule
from shardbus.gateway.http.api.operations.access import AccessPages
from tests.unit.gateway.http.web import Web

Json = dict[str, object]
NAMESPACE = "/api/v1/access-rules"
QUEUE = "/api/v1/entities/q/access-rules"


@pytest.fixture
def web(web: Web) -> Web:
    web.with_groups([AccessPages(web.namespace, web.clock)])
    return web


def ask(
    web: Web, method: str, path: str, body: Json | None = None, *, token: str | None = None
) -> tuple[int, Json]:
    sent = b"" if body is None else json.dumps(body).encode()
    response = web.fetch(method, path, sent, token=token)
    document: Json = json.loads(response.body)
    return response.status, document


def names(document: Json) -> list[object]:
    rules = document["access_rules"]
    assert isinstance(rules, list)
    return [rule["name"] for rule in rules]


@pytest.mark.parametrize("where", [NAMESPACE, QUEUE])
def test_a_rule_is_made_with_keys_shown_changed_and_deleted(web: Web, where: str) -> None:
    """R34."""
    status, made = ask(web, "PUT", f"{where}/reader", {"rights": ["Listen"]})
    _, shown = ask(web, "GET", f"{where}/reader")
    _, changed = ask(web, "PUT", f"{where}/reader", {"rights": ["Send"], "secondary_key": "own"})
    _, before = ask(web, "GET", where)
    gone, _ = ask(web, "DELETE", f"{where}/reader")
    missing, _ = ask(web, "GET", f"{where}/reader")
    _, after = ask(web, "GET", where)

    assert status == 200
    assert shown == made
    assert len(str(made["primary_key"])) == len(str(made["secondary_key"])) == 44
    assert made["primary_key"] != made["secondary_key"]
    assert changed["rights"] == ["Send"]
    assert (changed["primary_key"], changed["secondary_key"]) == (made["primary_key"], "own")
    assert "reader" in names(before)
    assert "reader" not in names(after)
    assert (gone, missing) == (200, 404)


@pytest.mark.parametrize("key", ["primary", "secondary"])
def test_rotating_changes_one_key_and_leaves_the_other(web: Web, key: str) -> None:
    _, made = ask(web, "PUT", f"{QUEUE}/reader", {"rights": ["Listen"]})
    status, rotated = ask(web, "POST", f"{QUEUE}/reader/rotate", {"key": key})

    other = "secondary" if key == "primary" else "primary"
    assert status == 200
    assert rotated[f"{key}_key"] != made[f"{key}_key"]
    assert rotated[f"{other}_key"] == made[f"{other}_key"]
    assert rotated["rights"] == ["Listen"]


def test_the_rule_of_the_settings_is_shown_without_its_key_and_never_changed(web: Web) -> None:
    root = f"{NAMESPACE}/{DEVELOPMENT_KEY_NAME}"
    _, shown = ask(web, "GET", root)
    refusals = [
        ask(web, "PUT", root, {"rights": ["Listen"]}),
        ask(web, "DELETE", root),
        ask(web, "POST", f"{root}/rotate", {"key": "primary"}),
    ]

    assert shown["is_of_settings"] is True
    assert (shown["primary_key"], shown["secondary_key"]) == (None, None)
    for status, document in refusals:
        assert status == 400
        assert "sas-key" in str(document)
    assert DEVELOPMENT_KEY not in str([shown, refusals])


def test_a_list_tells_no_keys(web: Web) -> None:
    _, made = ask(web, "PUT", f"{NAMESPACE}/reader", {"rights": ["Listen"]})
    response = web.fetch("GET", NAMESPACE)

    for key in (made["primary_key"], made["secondary_key"], DEVELOPMENT_KEY):
        assert str(key) not in response.body.decode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "rights"),
        ({"rights": []}, "no right"),
        ({"rights": ["Own"]}, "Own"),
        ({"rights": "Listen"}, "rights"),
        ({"rights": ["Listen"], "primary_key": ""}, "primary_key"),
        ({"rights": ["Listen"], "primary_key": "a;b"}, "semicolons"),
        ({"rights": ["Listen"], "secondary_key": "k" * 257}, "secondary_key"),
        ({"rights": ["Listen"], "colour": "red"}, "colour"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_name(web: Web, body: Json, reason: str) -> None:
    status, document = ask(web, "PUT", f"{QUEUE}/reader", body)

    assert status == 400
    assert reason in str(document)
    assert names(ask(web, "GET", QUEUE)[1]) == []


def test_there_are_at_most_twelve_rules(web: Web) -> None:
    statuses = [
        ask(web, "PUT", f"{NAMESPACE}/rule-{number}", {"rights": ["Listen"]})[0]
        for number in range(RULES_MAX + 1)
    ]

    assert statuses == [200] * RULES_MAX + [400]


def test_subscriptions_have_no_rules_and_unknown_things_are_not_found(web: Web) -> None:
    web.create_topic("t")
    web.subscribe("t", "s")
    put: Json = {"rights": ["Send"]}

    assert ask(web, "PUT", "/api/v1/entities/t/access-rules/pub", put)[0] == 200
    for method in ("GET", "PUT"):
        path = "/api/v1/entities/t/Subscriptions/s/access-rules"
        at = path if method == "GET" else f"{path}/pub"
        status, document = ask(web, method, at, put if method == "PUT" else None)
        assert status == 400
        assert "topic" in str(document)
    assert ask(web, "GET", "/api/v1/entities/none/access-rules")[0] == 404
    assert ask(web, "POST", f"{QUEUE}/none/rotate", {"key": "primary"})[0] == 404
    assert ask(web, "DELETE", f"{QUEUE}/none")[0] == 404


def test_only_who_may_manage_sees_and_changes_rules(web: Web) -> None:
    """R34: Manage on the entity is enough for its own rules, and opens no others."""
    web.run(
        web.namespace.change_access(
            "q", lambda _: [AccessRule("boss", MANAGE, "bk"), AccessRule("ear", LISTEN, "ek")]
        )
    )
    boss = web.token("http://bus:5300/q", key_name="boss", key="bk")
    ear = web.token("http://bus:5300/q", key_name="ear", key="ek")
    wide = web.token("http://bus:5300/", key_name="boss", key="bk")

    assert ask(web, "GET", QUEUE, token=boss)[0] == 200
    assert ask(web, "PUT", f"{QUEUE}/new", {"rights": ["Send"]}, token=boss)[0] == 200
    assert ask(web, "GET", QUEUE, token=ear)[0] == 401
    for path in (NAMESPACE, "/api/v1/entities/many/access-rules"):
        for token in (boss, wide, ear):
            assert ask(web, "GET", path, token=token)[0] == 401
    assert "bk" not in str(ask(web, "GET", f"{QUEUE}/boss", token=ear))
