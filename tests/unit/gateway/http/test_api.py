"""The JSON API: what is told, to whom, as the description says (R9, R29, R34)."""

import json
import re

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from shardbus import __version__
from shardbus.core.errors import ALL_KINDS, Unavailable
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.rule_spec import RuleSpec, TypedValue, correlation_filter, sql_filter
from tests.unit.gateway.http.web import Web

Json = dict[str, object]
OPEN = ("/api/v1/openapi.json", "/api/v1/health", "/api/v1/sign-in")
NAMESPACE = ("/api/v1/namespace", "/api/v1/queues", "/api/v1/topics", "/api/v1/metrics")
ENTITY = (
    "/api/v1/queues/q",
    "/api/v1/topics/q",
    "/api/v1/topics/q/subscriptions",
    "/api/v1/entities/q",
    "/api/v1/entities/q/rules",
    "/api/v1/entities/q/fragments",
)
S = "/api/v1/entities/t/Subscriptions/s"
VARIABLES = ("name", "rule", "subscription", "pipeline", "job", "number")
OTHERS = re.compile(r"\{(?!name)")
OF_ENTITY = {
    "q": ["/api/v1/queues/q", "/api/v1/entities/q", "/api/v1/entities/q/fragments"],
    "many": ["/api/v1/queues/many", "/api/v1/entities/many", "/api/v1/entities/many/fragments"],
    "t": ["/api/v1/topics/t", "/api/v1/topics/t/subscriptions", "/api/v1/entities/t"],
    "t/Subscriptions/s": [S, f"{S}/rules", f"{S}/fragments"],
}


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


def strict(schema: object) -> object:
    """The schema, with nothing allowed that it does not name."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    stricter = {name: strict(member) for name, member in schema.items()}
    if isinstance(schema.get("properties"), dict):
        stricter["additionalProperties"] = False
    return stricter


def check(value: object, schema: object, description: Json) -> None:
    """Hold an answer against a schema of the description."""
    assert isinstance(schema, dict)
    whole = {**schema, "components": strict(description["components"])}
    jsonschema_rs.Draft202012Validator(whole, validate_formats=True).validate(value)


def answered(description: Json, path: str, method: str = "get", status: str = "200") -> object:
    """The schema of an answer."""
    return part(
        description, "paths", path, method, "responses", status, "content", "application/json",
        "schema",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["q", "many", "t", "t/Subscriptions/s"])
def test_every_path_answers_as_its_description_says(web: Web, name: str) -> None:
    """R9, R29."""
    web.create_topic("t")
    web.subscribe("t", "s", [RuleSpec("red", sql_filter("colour = 'red'"), 0)])
    web.send("q")
    description = show(web, "/api/v1/openapi.json")
    paths = part(description, "paths")
    assert isinstance(paths, dict)

    seen = set()
    for path in [path for path in paths if "get" in paths[path] and not OTHERS.search(path)]:
        response = web.fetch("GET", path.replace("{name}", name))
        document = json.loads(response.body)
        check(document, answered(description, path, status=str(response.status)), description)
        assert response.status in (200, 400, 404)
        if response.status == 200:
            seen.add(path.replace("{name}", name))

    expected = {*OPEN, *NAMESPACE, *OF_ENTITY[name]}
    assert expected <= seen


def test_the_description_is_openapi(web: Web) -> None:
    """Valid by the meta-schema of OpenAPI 3.1, schemas by that of JSON Schema."""
    description = show(web, "/api/v1/openapi.json")

    jsonschema_rs.validator_for(OPENAPI_31).validate(description)
    assert description["openapi"] == "3.1.0"
    schemas = part(description, "components", "schemas")
    assert isinstance(schemas, dict)
    for schema in schemas.values():
        jsonschema_rs.meta.validate(schema)


def operations(web: Web) -> list[tuple[str, str, dict[str, object]]]:
    """Path, method and description of everything the API can do."""
    paths = show(web, "/api/v1/openapi.json")["paths"]
    assert isinstance(paths, dict)
    return [(path, method, one) for path in paths for method, one in paths[path].items()]


def test_operations_have_names_of_their_own_and_parameters_for_their_variables(web: Web) -> None:
    found = operations(web)

    assert len({str(one["operationId"]) for _, _, one in found}) == len(found)
    for path, _, one in found:
        parameters = one["parameters"]
        assert isinstance(parameters, list)
        named = {item["name"] for item in parameters if item["in"] == "path"}
        assert named == {name for name in VARIABLES if f"{{{name}}}" in path}
        assert bool(one["security"]) == (path not in OPEN)


def test_every_body_has_an_example_that_is_as_its_schema_says(web: Web) -> None:
    description = show(web, "/api/v1/openapi.json")
    bodies = [part(one, "requestBody", "content", "application/json")
              for _, _, one in operations(web) if "requestBody" in one]  # fmt: skip

    assert bodies
    for body in bodies:
        check(part(body, "example"), part(body, "schema"), description)


@pytest.mark.parametrize("status", ["400", "401", "404", "405", "413", "503"])
def test_refusals_are_described(web: Web, status: str) -> None:
    for path, _, one in operations(web):
        if (path, status) != ("/api/v1/health", "503"):
            described = part(one, "responses", status, "content", "application/json", "schema")
            assert described == {"$ref": "#/components/schemas/Error"}


def test_what_changes_something_may_collide_or_exceed_a_quota(web: Web) -> None:
    changing = [one for _, method, one in operations(web) if method != "get"]

    assert changing
    for one in changing:
        responses = one["responses"]
        assert isinstance(responses, dict)
        assert {"403", "409", "410"} <= set(responses)


def test_every_schema_that_is_named_is_there(web: Web) -> None:
    description = show(web, "/api/v1/openapi.json")

    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(description)))

    schemas = part(description, "components", "schemas")
    assert isinstance(schemas, dict)
    assert named == set(schemas)


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
    assert part(document, "description", "size_mb_max") == 16 * 1024
    assert (runtime["availability"], runtime["is_partial"]) == ("Available", False)
    assert document["fragment_count"] == 16
    assert part(document, "description", "lock_ms") == 60_000
    assert part(document, "description", "default_ttl_ms") is None


def test_a_topic_is_shown_with_its_subscriptions_and_what_they_hold(web: Web) -> None:
    """R9, R29."""
    web.create_topic("news", is_partitioned=True)
    for name in ("world", "europe", "asia"):
        web.subscribe("news", name)
    web.send("news")

    topic = show(web, "/api/v1/topics/NEWS")
    page = show(web, "/api/v1/topics/news/subscriptions?skip=1&top=1")

    assert part(topic, "kind") == "topic"
    assert part(topic, "description", "size_mb_max") == 16 * 1024
    assert part(topic, "runtime", "subscriptions") == 3
    assert part(topic, "runtime", "sent_total") == 1
    assert (page["count"], page["skip"]) == (3, 1)
    subscription = part(page, "subscriptions", 0)
    assert part(subscription, "name") == "news/Subscriptions/europe"
    assert (part(subscription, "topic"), part(subscription, "short_name")) == ("news", "europe")
    assert part(subscription, "runtime", "active") == 1
    assert show(web, "/api/v1/entities/news/subscriptions/Europe") == subscription
    assert part(topic, "runtime", "size_bytes") == 3 * int(
        str(part(subscription, "runtime", "size_bytes"))
    )


def test_rules_are_shown_with_the_types_of_their_values(web: Web) -> None:
    web.create_topic("news")
    red = RuleSpec("red", sql_filter("size > @least", [TypedValue("@least", "int", "7")]), 0)
    red.action = "SET colour = 'red'"
    urgent = correlation_filter({"Label": "urgent"}, [TypedValue("region", "string", "eu")])
    web.subscribe("news", "s", [red, RuleSpec("urgent", urgent, 0)])

    document = show(web, "/api/v1/entities/news/Subscriptions/s/rules")

    assert document["count"] == 2
    assert part(document, "rules", 0, "action") == "SET colour = 'red'"
    assert part(document, "rules", 0, "filter") == {
        "kind": "sql",
        "expression": "size > @least",
        "parameters": [{"name": "@least", "type": "int", "value": "7"}],
        "fields": {},
        "properties": [],
    }
    assert part(document, "rules", 1, "filter") == {
        "kind": "correlation",
        "expression": None,
        "parameters": [],
        "fields": {"Label": "urgent"},
        "properties": [{"name": "region", "type": "string", "value": "eu"}],
    }
    assert part(document, "rules", 1, "action") is None


def test_what_a_queue_forwards_to_is_shown(web: Web) -> None:
    spec = EntitySpec()
    spec.forward_dead_letters_to = "many"
    web.create("from", spec=spec)

    description = part(show(web, "/api/v1/entities/from"), "description")

    assert part(description, "forward_dead_letters_to") == "many"
    assert part(description, "forward_to") is None


@pytest.mark.parametrize(
    "path", ["queues/t", "topics/q", "topics/q/subscriptions", "entities/q/rules"]
)
def test_each_kind_is_found_among_its_own(web: Web, path: str) -> None:
    web.create_topic("t")

    assert part(show(web, f"/api/v1/{path}", status=404), "error", "code") == "not-found"


def test_what_cannot_be_counted_is_said_wherever_an_entity_is_shown(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R29."""
    web.create_topic("t")
    name = web.subscribe("t", "s")

    async def out(*_: object) -> None:
        raise Unavailable("broker b0 is away")

    monkeypatch.setattr(web.broker, "statistics", out)
    shown = [
        part(show(web, f"/api/v1/{path}"), *names, "runtime")
        for path, names in [
            ("queues/many", ()),
            ("queues", ("queues", 0)),
            ("topics/t", ()),
            ("topics", ("topics", 0)),
            ("topics/t/subscriptions", ("subscriptions", 0)),
            (f"entities/{name}", ()),
        ]
    ]
    fragments = show(web, "/api/v1/entities/many/fragments")

    for runtime in [*shown, fragments]:
        assert (part(runtime, "availability"), part(runtime, "is_partial")) == ("Limited", True)
    assert all("broker b0 is away" in str(part(runtime, "problems")) for runtime in shown)
    assert part(fragments, "fragments", 0, "is_counted") is False


def test_keys_are_not_shown(web: Web) -> None:
    spec = EntitySpec()
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


@pytest.mark.parametrize("path", [*NAMESPACE, *ENTITY])
def test_everything_else_needs_a_token(web: Web, path: str) -> None:
    """R34."""
    document = show(web, path, status=401, token="")

    assert part(document, "error", "code") == "unauthorized"


def test_a_ready_made_token_may_be_called_a_bearers(web: Web) -> None:
    """R34: as the Python administration client does with `SharedAccessSignature=…`."""
    shown = show(web, "/api/v1/namespace", token=f"Bearer {web.token()}")

    assert shown["tier"] == "standard"


def test_who_may_see_what(web: Web) -> None:
    """R34."""
    spec = EntitySpec()
    spec.access_rules = [
        AccessRule("manager", MANAGE, "m"),
        AccessRule("listener", LISTEN, "l"),
        AccessRule("sender", SEND, "s"),
    ]
    web.create("guarded", spec=spec)

    def seen(name: str) -> list[bool]:
        token = web.token("http://bus/guarded", key_name=name, key=name[0])
        singles = ("queues/guarded", "entities/guarded", "entities/guarded/fragments")
        paths = (*(f"/api/v1/{path}" for path in singles), *NAMESPACE)
        return [web.fetch("GET", path, token=token).status == 200 for path in paths]

    assert seen("manager") == [True] * 3 + [False] * 4
    assert seen("listener") == [True] * 3 + [False] * 4
    assert seen("sender") == [False] * 7


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/queues/nowhere", 404, "not-found"),
        ("GET", "/api/v1/entities/nowhere/fragments", 404, "not-found"),
        ("GET", "/api/v1/nothing", 404, "not-found"),
        ("GET", "/api/v1/entities//fragments", 404, "not-found"),
        ("POST", "/api/v1/queues", 405, "no-such-method"),
        ("POST", "/api/v1/queues/q", 405, "no-such-method"),
        ("DELETE", "/api/v1/entities/q", 405, "no-such-method"),
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

    codes = part(description, "components", "schemas", "Failure", "properties", "code", "enum")
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


def test_the_description_is_written_once_however_often_strangers_ask(web: Web) -> None:
    """R34: it takes no token, and writing it takes the loop for milliseconds."""
    first = web.fetch("GET", "/api/v1/openapi.json", token="")
    again = web.fetch("GET", "/api/v1/openapi.json", token="")

    assert json.loads(first.body)["openapi"]
    assert again.body is first.body


def test_a_token_is_told_what_it_is_good_for(web: Web) -> None:
    """R34: whatever that is, and nobody without one is told anything."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("reader", LISTEN, "r")]
    web.create("Guarded", spec=spec)
    web.run(web.namespace.set_rules([AccessRule("in", SEND, "s")]))

    def shown(token: str) -> Json:
        return show(web, "/api/v1/token", token=token)

    of_queue = shown(web.token("sb://bus/Guarded", key_name="reader", key="r"))
    of_all = shown(web.token(key_name="in", key="s"))
    narrow = shown(web.token("sb://bus/q", key_name="in", key="s"))

    assert (of_queue["rule"], of_queue["entity"]) == ("reader", "guarded")
    assert (of_queue["resource"], of_queue["rights"]) == ("guarded", ["Listen"])
    assert (of_all["entity"], of_all["resource"], of_all["rights"]) == ("", "", ["Send"])
    assert narrow["resource"] == "q"
    for token in ("", "nonsense", web.token(key="wrong"), web.token(valid_s=-5)):
        show(web, "/api/v1/token", status=401, token=token)


def test_a_stranger_does_not_learn_the_version(web: Web) -> None:
    response = web.fetch("GET", "/api/v1/openapi.json", token="")

    assert json.loads(response.body)["info"]["version"] == "1"
    assert __version__.encode() not in response.body


def test_a_loop_of_forwarding_is_warned_of(web: Web) -> None:
    web.create("ring")
    spec = web.namespace.get("ring").spec.copy()
    spec.forward_to = "ring"
    web.run(web.namespace.update_queue("ring", spec))

    shown = json.loads(web.fetch("GET", "/api/v1/queues/ring").body)
    plain = json.loads(web.fetch("GET", "/api/v1/queues/q").body)

    assert "ForwardTo makes a loop" in shown["runtime"]["warnings"][0]
    assert plain["runtime"]["warnings"] == []
