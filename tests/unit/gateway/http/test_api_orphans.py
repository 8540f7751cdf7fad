"""Orphans over the JSON API: listed, removed, made a queue of (R28)."""

import json

from shardbus.core.namespace.access import LISTEN, AccessRule
from shardbus.core.namespace.entity import Entity, EntitySpec
from tests.unit.gateway.http.web import Web

ORPHAN = 70
ORPHANS = "/api/v1/orphans"


def ask(web: Web, method: str, path: str, body: dict[str, object] | None = None) -> object:
    response = web.fetch(method, path, b"" if body is None else json.dumps(body).encode())
    assert response.status == 200, response.body
    found: object = json.loads(response.body)
    return found


def make_orphan(web: Web) -> None:
    lost = Entity(ORPHAN, "lost", EntitySpec(), 0)
    web.run(web.broker.create_fragments(lost, [0, 3]))
    web.run(web.namespace.sweep())


def test_orphans_are_listed_and_counted_in_the_metrics(web: Web) -> None:
    assert ask(web, "GET", ORPHANS) == {"orphans": []}
    make_orphan(web)

    [found] = json.loads(web.fetch("GET", ORPHANS).body)["orphans"]

    assert found["entity_id"] == ORPHAN and found["fragments"] == [0, 3]
    assert (found["messages"], found["size_bytes"], found["problem"]) == (0, 0, "")
    assert "shardbus_orphaned_fragments 2" in web.run(web.metrics.text())
    assert web.namespace.leftovers.orphan_count() == 2


def test_orphans_are_removed_when_asked_for_by_their_id(web: Web) -> None:
    make_orphan(web)

    removed = ask(web, "POST", f"{ORPHANS}/remove", {"entity_id": ORPHAN})

    assert removed == {"entity_id": ORPHAN, "is_removed": True}
    assert ask(web, "GET", ORPHANS) == {"orphans": []}
    again = web.fetch("POST", f"{ORPHANS}/remove", json.dumps({"entity_id": ORPHAN}).encode())
    assert again.status == 404


def test_orphans_become_a_queue_that_can_be_used(web: Web) -> None:
    make_orphan(web)

    body: dict[str, object] = {"entity_id": ORPHAN, "name": "rescued"}
    assert ask(web, "POST", f"{ORPHANS}/recover", body) == {
        "entity_id": ORPHAN,
        "name": "rescued",
        "fragments": 2,
    }

    sent = ask(web, "POST", "/api/v1/entities/rescued/messages", {"messages": [{"body": "hello"}]})
    assert sent
    assert web.namespace.queue("rescued").entity_id == ORPHAN


def test_whoever_may_not_manage_the_namespace_sees_no_orphans(web: Web) -> None:
    web.run(web.namespace.set_rules([AccessRule("reader", LISTEN, "key")]))

    for method, path in (("GET", ORPHANS), ("POST", f"{ORPHANS}/remove")):
        assert web.fetch(method, path, b'{"entity_id": 1}', token="wrong").status in (401, 403)
