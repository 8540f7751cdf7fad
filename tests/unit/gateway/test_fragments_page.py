"""Fragments over HTTP: where they are, how they are, and who may ask (R1, R29)."""

import asyncio
import json

from shardbus.broker.access.sas import mint_token
from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE, FragmentStatistics
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.server.message import HttpRequest, HttpResponse
from shardbus.stores.base.store import FragmentId
from tests.unit.gateway.site import Endpoint

PATH = "/api/v1/entities/{}/fragments"


def endpoint_with(name: str = "orders", spec: EntitySpec | None = None) -> Endpoint:
    endpoint = Endpoint()

    async def create() -> None:
        await endpoint.namespace.recover()
        await endpoint.namespace.create_queue(name, spec or endpoint.namespace.new_spec())

    asyncio.run(create())
    return endpoint


def ask(
    endpoint: Endpoint,
    name: str,
    *,
    method: str = "GET",
    key_name: str = "RootManageSharedAccessKey",
    key: str = "SAS_KEY_VALUE",
) -> HttpResponse:
    token = mint_token("http://localhost/", key_name, key, 4_102_444_800)
    headers = {"authorization": token} if key else {}
    request = HttpRequest(method, PATH.format(name), headers, b"", is_secure=False)
    return asyncio.run(_respond(endpoint, request))


async def _respond(endpoint: Endpoint, request: HttpRequest) -> HttpResponse:
    return await endpoint.site.respond(request)


def test_each_fragment_is_shown_with_its_broker_state_counts_and_size() -> None:
    endpoint = endpoint_with()
    entity = endpoint.namespace.get("orders")
    home = entity.fragments[3]
    holding = FragmentStatistics(3, [5, 2, 1], 700, FRAGMENT_AVAILABLE, "")
    holding.deferred_count = 6
    holding.scheduled_count = 7
    holding.duplicate_count = 8
    holding.set_aside_count = 4
    holding.sent_total = 90
    endpoint.hosts[home.broker_index].statistics_of[FragmentId(entity.entity_id, 3)] = holding

    response = ask(endpoint, "orders")

    assert response.status == 200
    answer = json.loads(response.body)
    assert (answer["name"], answer["availability"]) == ("orders", "Available")
    assert (answer["kind"], answer["is_partial"]) == ("queue", False)
    assert (answer["size_bytes"], answer["size_bytes_max"]) == (700, 16 * 1024**3)
    assert [part["number"] for part in answer["fragments"]] == list(range(16))
    assert answer["fragments"][3] == {
        "number": 3,
        "broker": f"b{home.broker_index}",
        "state": "available",
        "reason": "",
        "is_counted": True,
        "active": 5,
        "dead_letter": 2,
        "transfer_dead_letter": 1,
        "deferred": 6,
        "scheduled": 7,
        "set_aside": 4,
        "sent_total": 90,
        "duplicates": 8,
        "size_bytes": 700,
        "size_bytes_max": 1024**3,
        "in_per_s": 0.0,
        "out_per_s": 0.0,
        "oldest_at": None,
        "store": "",
    }


def test_fragments_of_a_broker_that_is_out_say_why() -> None:
    """R29: the entity is Limited."""
    endpoint = endpoint_with()
    endpoint.hosts[2].outage = "no route"

    answer = json.loads(ask(endpoint, "orders").body)

    out = [part for part in answer["fragments"] if part["broker"] == "b2"]
    assert answer["availability"] == "Limited"
    assert len(out) == 4
    assert {(part["state"], part["reason"]) for part in out} == {("unavailable", "no route")}


def test_an_entity_with_slashes_in_its_name_is_found() -> None:
    response = ask(endpoint_with("a/b/fragments"), "a/b/fragments")

    assert json.loads(response.body)["name"] == "a/b/fragments"


def test_an_unknown_entity_is_not_found() -> None:
    assert ask(endpoint_with(), "nowhere").status == 404


def test_nothing_is_shown_without_a_token() -> None:
    assert ask(endpoint_with(), "orders", key="").status == 401


def test_who_listens_may_look_and_who_only_sends_may_not() -> None:
    spec = EntitySpec()
    spec.access_rules = [AccessRule("reader", LISTEN, "r"), AccessRule("writer", SEND, "w")]
    endpoint = endpoint_with(spec=spec)

    assert ask(endpoint, "orders", key_name="reader", key="r").status == 200
    assert ask(endpoint, "orders", key_name="writer", key="w").status == 401
