"""Entities and rules that are created, changed and deleted in JSON (R5, R6, R9, R30, R31)."""

import json

import pytest

from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.description import STATUSES_OF
from shardbus.core.namespace.entity import new_queue_spec
from shardbus.core.namespace.property import PROPERTIES, QUEUE, SUBSCRIPTION, TOPIC, options_of
from shardbus.core.namespace.tier import NEWER, OLDER, tier_named
from shardbus.gateway.http.api.entities.forms import EntityForms, forms_document, settable_of
from tests.unit.gateway.http.web import Web

Json = dict[str, object]
EU = "entities/news%2FSubscriptions%2Feu"


def ask(
    web: Web, method: str, path: str, body: object = None, *, status: int = 200, token: str = ""
) -> Json:
    content = b"" if body is None else json.dumps(body).encode()
    response = web.fetch(method, f"/api/v1/{path}", content, token=token or None)
    assert response.status == status, response.body
    document: Json = json.loads(response.body)
    return document


def refusal(web: Web, method: str, path: str, body: object = None, *, status: int = 400) -> str:
    error = ask(web, method, path, body, status=status)["error"]
    assert isinstance(error, dict)
    return str(error["message"])


def described(document: Json) -> Json:
    found = document["description"]
    assert isinstance(found, dict)
    return found


def test_a_queue_is_partitioned_unless_the_creator_says_otherwise(web: Web) -> None:
    """R5, R9, R31."""
    by_default = ask(web, "PUT", "queues/a", {"size_mb": 5120}, status=201)
    without = ask(web, "PUT", "queues/b", {"is_partitioned": False}, status=201)

    assert (by_default["fragment_count"], described(by_default)["size_mb_max"]) == (16, 80 * 1024)
    assert (without["fragment_count"], described(without)["size_mb_max"]) == (1, 1024)
    assert web.namespace.queue("a").spec.is_partitioned


def test_what_exists_is_not_created_again(web: Web) -> None:
    assert "taken" in refusal(web, "PUT", "queues/q", {}, status=409)
    assert "taken" in refusal(web, "PUT", "topics/q", {}, status=409)


def test_a_change_leaves_what_it_does_not_name(web: Web) -> None:
    ask(web, "PUT", "queues/a", {"lock_ms": 30_000, "user_metadata": "mine"}, status=201)

    changed = ask(web, "PATCH", "queues/a", {"default_ttl_ms": 60_000, "status": "Disabled"})
    cleared = ask(web, "PATCH", "queues/a", {"default_ttl_ms": None, "user_metadata": None})

    assert (changed["status"], described(changed)["default_ttl_ms"]) == ("Disabled", 60_000)
    assert (described(changed)["lock_ms"], described(changed)["user_metadata"]) == (30_000, "mine")
    assert described(cleared)["default_ttl_ms"] is None
    assert described(cleared)["user_metadata"] == ""


def test_a_change_keeps_the_keys(web: Web) -> None:
    spec = new_queue_spec(tier_named("standard"), is_partitioned=False)
    spec.access_rules = [AccessRule("reader", LISTEN, "a-key")]
    web.create("guarded", spec=spec)

    ask(web, "PATCH", "queues/guarded", {"lock_ms": 5_000})

    assert web.namespace.queue("guarded").spec.access_rules[0].primary_key == "a-key"


@pytest.mark.parametrize("member", ["is_partitioned", "requires_session"])
def test_what_is_fixed_at_creation_cannot_be_changed(web: Web, member: str) -> None:
    """R6."""
    ask(web, "PUT", "queues/a", {}, status=201)
    now = described(ask(web, "GET", "queues/a"))[member]

    assert "cannot be changed" in refusal(web, "PATCH", "queues/a", {member: not now})
    ask(web, "PATCH", "queues/a", {member: now})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"lok_ms": 1}, "'lok_ms'"),
        ({"lock_ms": 1}, "lock_ms"),
        ({"lock_ms": None}, "lock_ms"),
        ({"size_mb": 7}, "MaxSizeInMegabytes"),
        ({"status": "disabled"}, "status"),
        ({"user_metadata": "x" * 1025}, "user_metadata"),
        ({"is_partitioned": "yes"}, "is_partitioned"),
        ({"is_anonymous_accessible": True}, "is_anonymous_accessible"),
    ],
)
def test_a_wrong_description_is_refused_by_name(web: Web, body: Json, words: str) -> None:
    assert words in refusal(web, "PUT", "queues/a", body)
    assert web.namespace.find("a") is None


def test_a_queue_is_deleted_only_as_a_queue(web: Web) -> None:
    web.create_topic("t")
    web.subscribe("t", "s")

    for path in ("queues/t", "topics/q", "topics/q/subscriptions/s", "topics/t/subscriptions/z"):
        ask(web, "DELETE", path, status=404)
    deleted = [
        ask(web, "DELETE", path)["deleted"]
        for path in ("topics/t/subscriptions/S", "topics/T", "queues/q")
    ]

    assert deleted == ["t/Subscriptions/s", "t", "q"]


def test_a_subscription_has_its_first_rule_from_its_creator(web: Web) -> None:
    """R30."""
    ask(web, "PUT", "topics/news", {}, status=201)
    rule = {"name": "red", "filter": {"kind": "sql", "expression": "color = 'red'"}}

    made = ask(
        web,
        "PUT",
        "topics/news/subscriptions/eu",
        {"lock_ms": 7_000, "default_rule": rule},
        status=201,
    )

    assert (made["name"], described(made)["lock_ms"]) == ("news/Subscriptions/eu", 7_000)
    assert described(made)["is_partitioned"] is True
    assert '"red"' in json.dumps(ask(web, "GET", f"{EU}/rules"))
    assert ask(web, "GET", "topics/news/subscriptions/eu") == made
    changed = ask(web, "PATCH", "topics/news/subscriptions/eu", {"lock_ms": 9_000})
    assert described(changed)["lock_ms"] == 9_000


def test_a_rule_is_sent_as_it_is_shown(web: Web) -> None:
    """R30."""
    web.create_topic("news")
    web.subscribe("news", "eu")
    rules: list[Json] = [
        {
            "filter": {
                "kind": "sql",
                "expression": "size > @least",
                "parameters": [{"name": "@least", "type": "long", "value": "9007199254740993"}],
                "fields": {},
                "properties": [],
            },
            "action": "SET seen = TRUE",
            "action_parameters": [],
        },
        {
            "filter": {
                "kind": "correlation",
                "expression": None,
                "parameters": [],
                "fields": {"Label": "urgent"},
                "properties": [{"name": "region", "type": "string", "value": "eu"}],
            },
            "action": None,
            "action_parameters": [],
        },
    ]

    for rule in rules:
        put = ask(web, "PUT", f"{EU}/rules/mine", rule)
        assert {name: put[name] for name in rule} == rule
        assert ask(web, "GET", f"{EU}/rules/MINE") == put
    assert ask(web, "DELETE", f"{EU}/rules/mine") == {"deleted": "mine"}
    ask(web, "DELETE", f"{EU}/rules/mine", status=404)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"filter": {"kind": "sql", "expression": "a = 1 AND\n b ="}}, "line 2, column"),
        ({"filter": {"kind": "sql"}}, "no expression"),
        ({"filter": {"kind": "true", "expression": "1=1"}}, "belong to a SQL filter"),
        ({"filter": {"kind": "sql", "expression": "1=1", "fields": {"To": "x"}}}, "correlation"),
        ({"filter": {"kind": "correlation"}}, "1 to"),
        ({"filter": {"kind": "correlation", "fields": {"Nope": "x"}}}, "'Nope'"),
        ({"filter": {"kind": "true"}, "action": "SET"}, "line 1"),
        (
            {
                "filter": {
                    "kind": "sql",
                    "expression": "a = @b",
                    "parameters": [{"name": "@b", "type": "int", "value": "many"}],
                }
            },
            "@b",
        ),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(web: Web, rule: Json, words: str) -> None:
    web.create_topic("news")
    web.subscribe("news", "eu")

    assert words in refusal(web, "PUT", f"{EU}/rules/mine", rule)
    assert len(web.namespace.rules("news/Subscriptions/eu")) == 1


def test_management_needs_the_right_to_manage(web: Web) -> None:
    """R34."""
    spec = new_queue_spec(tier_named("standard"), is_partitioned=False)
    spec.access_rules = [AccessRule("user", LISTEN | SEND, "u")]
    web.create("guarded", spec=spec)
    token = web.token("http://bus/guarded", key_name="user", key="u")

    for method in ("PUT", "PATCH", "DELETE"):
        ask(web, method, "queues/guarded", {}, status=401, token=token)
    assert web.namespace.find("guarded") is not None
    assert ask(web, "GET", "properties", token=token)["tier"] == "standard"


def test_forwarding_needs_the_right_to_send_there(web: Web) -> None:
    """R34."""
    spec = new_queue_spec(tier_named("standard"), is_partitioned=False)
    spec.access_rules = [AccessRule("owner", 7, "o")]
    web.create("guarded", spec=spec)
    token = web.token("http://bus/guarded", key_name="owner", key="o")

    ask(web, "PATCH", "queues/guarded", {"forward_to": "q"}, status=401, token=token)
    ask(web, "PATCH", "queues/guarded", {"forward_to": "q"})

    assert web.namespace.queue("guarded").spec.forward_to == "q"


# What can be said.


def forms(tier: str, generation: str = NEWER) -> EntityForms:
    found = tier_named(tier, generation)
    return forms_document(found, new_queue_spec(found, is_partitioned=True))


def reasons(document: EntityForms, kind: str) -> dict[str, str]:
    return {each.name: each.tier_reason for each in getattr(document.kinds, kind)}


def test_every_option_of_the_table_can_be_said() -> None:
    for kind in (QUEUE, TOPIC, SUBSCRIPTION):
        assert set(options_of(kind)) <= set(settable_of(kind))
        assert all(each in PROPERTIES for each in settable_of(kind))


def test_the_properties_tell_range_default_and_choices() -> None:
    """R7, R9."""
    document = forms("standard")
    found = {each.name: each for each in document.kinds.queue}

    assert document.partitioning_reason == ""
    assert (found["lock_ms"].least, found["lock_ms"].most) == (5_000, 300_000)
    assert (found["default_ttl_ms"].most, found["default_ttl_ms"].default) == (None, None)
    assert found["size_mb"].choices == [1024, 2048, 3072, 4096, 5120]
    assert found["status"].choices == list(STATUSES_OF[QUEUE])
    assert found["is_partitioned"].is_fixed and found["is_partitioned"].default is True
    assert document.sizes[-1].size_mb_max_partitioned == 80 * 1024
    assert "premium" in reasons(document, QUEUE)["message_kb_max"]
    assert not reasons(document, QUEUE)["requires_session"]


def test_the_tier_decides_about_partitioning() -> None:
    """R7."""
    older, newer = forms("premium", OLDER), forms("premium", NEWER)

    assert "every entity" in reasons(older, QUEUE)["is_partitioned"]
    assert (older.is_partitioned_by_default, newer.is_partitioned_by_default) == (True, False)
    assert "no entity" in reasons(newer, TOPIC)["is_partitioned"]
    assert (older.sizes[0].size_mb_max, newer.sizes[-1].size_mb_max) == (2 * 1024, 80 * 1024)
    kilobytes = next(each for each in newer.kinds.queue if each.name == "message_kb_max")
    assert (kilobytes.least, kilobytes.most, kilobytes.tier_reason) == (1024, 102_400, "")


def test_a_basic_namespace_says_what_it_lacks() -> None:
    document = forms("basic")
    found = reasons(document, QUEUE)

    assert not document.has_topics
    assert "basic" in found["requires_session"] and "basic" in found["forward_to"]
    assert next(each for each in document.kinds.queue if each.name == "default_ttl_ms").most
