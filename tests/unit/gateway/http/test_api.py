"""The JSON API: what is told, to whom, as the description says (R9, R29, R34)."""

import json

import pytest

from shardbus.core.access import LISTEN, MANAGE, SEND, AccessRule
from shardbus.core.entity import QueueSpec
from shardbus.core.errors import ALL_KINDS
from tests.unit.gateway.http.web import Web

Json = dict[str, object]
OPEN = ("/api/v1/openapi.json", "/api/v1/health")
NAMESPACE = ("/api/v1/namespace", "/api/v1/queues", "/api/v1/metrics")
ENTITY = ("/api/v1/queues/q", "/api/v1/entities/q/fragments")


def show(web: Web, path: str, *, status: int = 200, token: str | None = None) -> Json:
    response = web.fetch("GET", path, token=token)
    assert response.status == status, response.body
    assert response.content_type == "application/json; charset=utf-8"
    document: Json = json.loads(response.body)
    return document


def part(document: object, *names: str | int) -> object:
    found = document
    for name in names:
        assert isinstance(found, dict | list)
        found = found[name]  # type: ignore[index]  # a list by number, an object by name
    return found


def valid(value: object, schema: object, components: object) -> None:
    """Check what the schemas of the description use of JSON Schema, and nothing else."""
    assert isinstance(schema, dict)
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        valid(value, part(components, name), components)
        return
    known = {
        "string": str,
        "integer": int,
        "number": int | float,
        "boolean": bool,
        "array": list,
        "object": dict,
        "null": type(None),
    }
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert any(isinstance(value, known[kind]) for kind in kinds), (value, schema)
    assert "enum" not in schema or value in schema["enum"]
    if isinstance(value, list):
        for item in value:
            valid(item, schema["items"], components)
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema["required"]) == set(schema["properties"]) == set(value)
        for name, member in value.items():
            valid(member, schema["properties"][name], components)


def test_every_path_answers_as_its_description_says(web: Web) -> None:
    web.send("q")
    description = show(web, "/api/v1/openapi.json")
    components = part(description, "components", "schemas")
    paths = part(description, "paths")
    assert isinstance(paths, dict)

    for path in paths:
        schema = part(
            paths, path, "get", "responses", "200", "content", "application/json", "schema"
        )
        valid(show(web, path.replace("{name}", "many")), schema, components)

    assert {path.replace("{name}", "q") for path in paths} == {*OPEN, *NAMESPACE, *ENTITY}


def test_the_description_is_openapi(web: Web) -> None:
    description = show(web, "/api/v1/openapi.json")

    assert description["openapi"] == "3.1.0"
    paths = part(description, "paths")
    assert isinstance(paths, dict)
    identifiers = [part(paths, path, "get", "operationId") for path in paths]
    assert len(set(map(str, identifiers))) == len(paths)
    for path in paths:
        parameters = part(paths, path, "get", "parameters")
        assert isinstance(parameters, list)
        named = {one["name"] for one in parameters if one["in"] == "path"}
        assert named == ({"name"} if "{name}" in path else set())
        security = part(paths, path, "get", "security")
        assert bool(security) == (path not in OPEN)


def test_the_namespace_tells_its_tier_and_limits(web: Web) -> None:
    document = show(web, "/api/v1/namespace")

    assert (document["tier"], document["entities"]) == ("standard", 2)
    assert (document["entities_max"], document["partitioned_entities_max"]) == (10_000, 100)


def test_a_queue_is_shown_with_description_and_counts(web: Web) -> None:
    """R9, R29."""
    for _ in range(5):
        web.send("many", b"x", {"PartitionKey": "k"})
    web.send("many", b"x", {"ScheduledEnqueueTimeUtc": "9000-01-01T00:00:00Z"})

    document = show(web, "/api/v1/queues/MANY")

    runtime = part(document, "runtime")
    assert isinstance(runtime, dict)
    assert (runtime["active"], runtime["scheduled"], runtime["deferred"]) == (5, 1, 0)
    assert runtime["size_bytes_max"] == 16 * 1024**3
    assert (runtime["availability"], runtime["is_partial"]) == ("Available", False)
    assert document["fragment_count"] == 16
    assert part(document, "description", "lock_ms") == 60_000
    assert part(document, "description", "default_ttl_ms") is None


def test_keys_are_not_shown(web: Web) -> None:
    spec = QueueSpec()
    spec.access_rules = [AccessRule("reader", LISTEN, "a-secret-key")]
    web.create("guarded", spec=spec)

    document = show(web, "/api/v1/queues/guarded")

    assert part(document, "description", "access_rules") == [
        {"name": "reader", "rights": ["Listen"]}
    ]
    assert "a-secret-key" not in json.dumps(document)


def test_queues_come_in_pages(web: Web) -> None:
    for number in range(5):
        web.create(f"x{number}")

    first = show(web, "/api/v1/queues?top=3")
    rest = show(web, "/api/v1/queues?skip=3&top=1000")

    names = [part(first, "queues", index, "name") for index in range(3)]
    names += [part(rest, "queues", index, "name") for index in range(4)]
    assert names == ["many", "q", "x0", "x1", "x2", "x3", "x4"]
    assert first["count"] == 7


@pytest.mark.parametrize("query", ["skip=-1", "top=x", "top=1001", "skip=10000000001"])
def test_a_page_is_asked_for_in_numbers(web: Web, query: str) -> None:
    document = show(web, f"/api/v1/queues?{query}", status=400)

    assert part(document, "error", "code") == "invalid-argument"


def test_health_is_open_and_names_what_is_wrong(web: Web) -> None:
    assert show(web, "/api/v1/health", token="")["reasons"] == []
    web.reasons = ["broker-2 does not answer"]

    document = show(web, "/api/v1/health", token="")

    assert document["status"] == "degraded"
    assert document["reasons"] == ["broker-2 does not answer"]
    assert json.loads(web.fetch("GET", "/health", token="").body) == document


@pytest.mark.parametrize("path", [*NAMESPACE, *ENTITY])
def test_everything_else_needs_a_token(web: Web, path: str) -> None:
    """R34."""
    document = show(web, path, status=401, token="")

    assert part(document, "error", "code") == "unauthorized"


def test_who_may_see_what(web: Web) -> None:
    """R34."""
    spec = QueueSpec()
    spec.access_rules = [
        AccessRule("manager", MANAGE, "m"),
        AccessRule("listener", LISTEN, "l"),
        AccessRule("sender", SEND, "s"),
    ]
    web.create("guarded", spec=spec)

    def seen(name: str) -> list[bool]:
        token = web.token("http://bus/guarded", key_name=name, key=name[0])
        paths = ("/api/v1/queues/guarded", "/api/v1/entities/guarded/fragments", *NAMESPACE)
        return [web.fetch("GET", path, token=token).status == 200 for path in paths]

    assert seen("manager") == [True, True, False, False, False]
    assert seen("listener") == [False, True, False, False, False]
    assert seen("sender") == [False] * 5


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/queues/nowhere", 404, "not-found"),
        ("GET", "/api/v1/entities/nowhere/fragments", 404, "not-found"),
        ("GET", "/api/v1/nothing", 404, "not-found"),
        ("GET", "/api/v1/entities//fragments", 404, "not-found"),
        ("POST", "/api/v1/queues", 405, "no-such-method"),
        ("PUT", "/api/v1/queues/q", 405, "no-such-method"),
        ("DELETE", "/api/v1/queues/q", 405, "no-such-method"),
    ],
)
def test_refusals_are_json(web: Web, method: str, path: str, status: int, code: str) -> None:
    response = web.fetch(method, path)

    document = json.loads(response.body)
    assert (response.status, document["error"]["code"]) == (status, code)
    assert "TrackingId:" in document["error"]["message"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_another_method_is_told_those_that_there_are(web: Web, method: str) -> None:
    response = web.fetch(method, "/api/v1/namespace")

    assert (response.status, dict(response.headers)["Allow"]) == (405, "GET, HEAD")


def test_a_parameter_that_nobody_knows_is_refused_by_name(web: Web) -> None:
    document = show(web, "/api/v1/queues?tpo=3", status=400)

    assert "'tpo'" in str(part(document, "error", "message"))


def test_every_kind_of_error_is_in_the_description(web: Web) -> None:
    description = show(web, "/api/v1/openapi.json")

    codes = part(
        description, "components", "schemas", "Error", "properties", "error", "properties", "code",
        "enum",
    )  # fmt: skip
    assert isinstance(codes, list)
    assert {kind.name for kind in ALL_KINDS} < set(codes)


def test_a_queue_whose_name_looks_like_the_api_is_still_managed(web: Web) -> None:
    web.create("api/v1/queues")
    web.create("metrics")

    managed = web.fetch("GET", "/api/v1/queues?api-version=2021-05")
    shown = show(web, "/api/v1/queues/api/v1/queues")

    assert b"<QueueDescription" in managed.body
    assert shown["name"] == "api/v1/queues"
    assert b"<QueueDescription" in web.fetch("GET", "/metrics?api-version=2021-05").body
    assert web.fetch("POST", "/api/v1/queues/messages", b"x").status == 201
