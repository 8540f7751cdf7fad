"""Messages that are searched, shown in full and grouped; rules that are tried (R46, R48)."""

import json
import re
from base64 import b64encode
from typing import Final

import pytest

from shardbus.codec.types import (
    Byte,
    Float,
    Int,
    Short,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    Value,
)
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.api.messages.values import exact_property, read_properties
from shardbus.gateway.http.api.search.selection import masked
from tests.unit.gateway.http.web import Web

Json = dict[str, object]
EU = "entities/news%2FSubscriptions%2Feu"
LATER = "2090-01-01T00:00:00Z"
BIG = 9_007_199_254_740_993


def ask(web: Web, method: str, path: str, body: object = None, *, status: int = 200) -> Json:
    content = b"" if body is None else json.dumps(body).encode()
    response = web.fetch(method, f"/api/v1/{path}", content)
    assert response.status == status, response.body
    document: Json = json.loads(response.body)
    return document


def put(web: Web, entity: str, *messages: Json) -> None:
    assert ask(web, "POST", f"entities/{entity}/messages", {"messages": messages})["failures"] == []


def search(web: Web, entity: str, **body: object) -> Json:
    return ask(web, "POST", f"entities/{entity}/messages/search", body)


def found(document: Json) -> list[Json]:
    messages = document["messages"]
    assert isinstance(messages, list)
    return messages


def bodies(document: Json) -> list[object]:
    return [message["body"] for message in found(document)]


def numbered(count: int) -> list[Json]:
    return [
        {"body": f"m{number}", "properties": {"n": number}, "partition_key": f"{number % 7}"}
        for number in range(count)
    ]


def kill(web: Web, entity: str, reason: str, description: str = "") -> None:
    """Dead-letter the oldest message."""
    received = ask(web, "POST", f"entities/{entity}/messages/receive", {})
    settlement = {
        "action": "dead_letter",
        "lock_tokens": [found(received)[0]["lock_token"]],
        "reason": reason,
        "description": description,
    }
    ask(web, "POST", f"entities/{entity}/messages/settle", settlement)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_search_shows_every_message_once_over_all_its_pages(web: Web, newest_first: bool) -> None:
    """R20, R46."""
    for some in range(3):
        put(web, "many", *numbered(60))
        web.pass_s(1 + some)
    seen: list[Json] = []
    cursor = None
    while True:
        page = search(web, "many", count=17, newest_first=newest_first, cursor=cursor)
        seen += found(page)
        assert page["searched"] == len(seen) and page["total"] == 180
        cursor = page["next"]
        if cursor is None:
            break

    assert len({str(message["number"]) for message in seen}) == 180
    moments = [str(message["enqueued_at"]) for message in seen]
    assert moments == sorted(moments, reverse=newest_first)


def test_newest_first_finds_the_few_that_are_left_of_many(web: Web) -> None:
    put(web, "q", {"body": "old"})
    for _ in range(3):
        gone: list[Json] = [{"body": "gone"}] * 900
        put(web, "q", *gone)
    for _ in range(11):
        ask(
            web, "POST", "entities/q/messages/receive", {"count": 250, "mode": "receive_and_delete"}
        )
    put(web, "q", {"body": "new"})

    assert bodies(search(web, "q", newest_first=True)) == ["new"]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"where": "n >= 8"}, ["m8", "m9"]),
        ({"where": "n > 7 AND sys.PartitionKey = '1'"}, ["m8"]),
        ({"text": "M3"}, ["m3"]),
        ({"states": ["scheduled"]}, ["later"]),
        ({"states": ["deferred"]}, []),
        ({"enqueued_before": "2000-01-01T00:00:00Z"}, []),
    ],
)
def test_a_search_narrows(web: Web, wish: Json, expected: list[str]) -> None:
    """R46."""
    put(web, "many", *numbered(10), {"body": "later", "scheduled_at": LATER})

    assert sorted(map(str, bodies(search(web, "many", **wish)))) == expected


def test_a_search_can_be_limited_to_fragments(web: Web) -> None:
    put(web, "many", *numbered(14))
    first = found(search(web, "many"))[0]

    some = found(search(web, "many", fragments=[first["fragment"]]))

    assert {message["fragment"] for message in some} == {first["fragment"]}
    assert not found(search(web, "many", fragments=[9_999]))


def test_a_condition_that_fails_on_a_message_is_counted(web: Web) -> None:
    put(web, "q", {"body": "x", "properties": {"n": 1}})

    page = search(web, "q", where="n / 0 = 1")

    assert (page["errors"], found(page)) == (1, [])
    assert "division by zero" in str(page["first_error"])


@pytest.mark.parametrize(
    "body",
    [
        {"where": "n >"},
        {"cursor": "m1"},
        {"cursor": "f0-x-x"},
        {"cursor": "b0-1"},
        {"cursor": "f0-ffffffffffffffff"},
        {"count": 0},
        {"states": ["dead"]},
        {"enqueued_after": "soon"},
        {"wher": "1=1"},
    ],
)
def test_a_wrong_search_is_refused(web: Web, body: Json) -> None:
    ask(web, "POST", "entities/q/messages/search", body, status=400)


def test_large_bodies_are_cut(web: Web) -> None:
    put(web, "q", {"body": "x" * 100}, {"body_base64": b64encode(bytes(range(256))).decode()})

    text, data = found(search(web, "q", body_bytes_max=9))

    assert (text["body"], text["is_body_cut"], text["body_size_bytes"]) == ("x" * 9, True, 100)
    assert (len(str(data["body_base64"])), data["is_body_cut"]) == (12, True)


def test_a_message_is_shown_in_full_and_can_be_sent_again(web: Web) -> None:
    """R46: integers are exact."""
    big = {"type": "long", "value": str(BIG)}
    said: Json = {
        "body": "hello",
        "message_id": "m",
        "subject": "s",
        "properties": {"big": big, "small": 7, "flag": True},
    }
    put(web, "q", said)
    [short] = found(search(web, "q"))

    whole = ask(web, "GET", f"entities/q/messages/{short['number']}")

    assert short["properties"] == said["properties"]
    assert whole["fields"] == {"message_id": "m", "subject": "s"}
    assert (whole["body_kind"], whole["body_text"]) == ("data", "hello")
    assert whole["properties"] == [
        {"name": "big", "type": "long", "value": str(BIG)},
        {"name": "small", "type": "int", "value": 7},
        {"name": "flag", "type": "boolean", "value": True},
    ]
    put(web, "q", whole["resend"])  # type: ignore[arg-type]  # an object
    assert bodies(search(web, "q")) == ["hello", "hello"]
    ask(web, "GET", "entities/q/messages/77", status=404)
    ask(web, "GET", "entities/q/messages/9999999999999999999", status=404)


NUMBERS: Final[dict[str, Value]] = {
    "int": Int(7),
    "long": 7,
    "longer": 1 << 62,
    "double": 7.0,
    "half": 0.5,
    "float": Float(0.25),
    "short": Short(-7),
    "byte": Byte(7),
    "ulong": Ulong((1 << 64) - 1),
    "uint": Uint(7),
    "ushort": Ushort(7),
    "ubyte": Ubyte(7),
    "text": "7",
}


def in_javascript(document: object) -> object:
    """As a browser reads it: a number without a fraction is an integer."""
    if isinstance(document, float):
        return int(document) if document.is_integer() else document
    if isinstance(document, dict):
        return {name: in_javascript(value) for name, value in document.items()}
    return document


def test_a_message_that_is_sent_again_keeps_the_widths_of_its_numbers(web: Web) -> None:
    """R46"""
    assert (
        read_properties(
            {
                name: in_javascript(json.loads(json.dumps(exact_property(value))))
                for name, value in NUMBERS.items()
            }
        )
        == NUMBERS
    )
    put(web, "q", {"body": "x", "properties": {n: exact_property(v) for n, v in NUMBERS.items()}})

    whole = ask(web, "GET", "entities/q/messages/1")
    put(web, "q", in_javascript(whole["resend"]))  # type: ignore[arg-type]  # an object
    again = ask(web, "GET", "entities/q/messages/2")

    assert again["properties"] == whole["properties"]
    types = [one["type"] for one in again["properties"]]  # type: ignore[attr-defined]  # a list
    assert types == [
        "int",
        "long",
        "long",
        "double",
        "double",
        "float",
        *list(NUMBERS)[6:12],
        "string",
    ]
    for kind, text in (("byte", "128"), ("uint", "-1"), ("int", "1.5")):
        wrong = {"messages": [{"body": "x", "properties": {"n": {"type": kind, "value": text}}}]}
        ask(web, "POST", "entities/q/messages", wrong, status=400)


def test_a_value_is_shown_with_its_type(web: Web) -> None:
    put(web, "q", {"body": {"a": [1, BIG]}, "body_type": "value"})

    whole = ask(web, "GET", "entities/q/messages/1")

    assert (whole["body_kind"], whole["body_type"]) == ("value", "map")
    assert whole["body_json"] == {"a": [1, {"type": "long", "value": str(BIG)}]}


def test_scheduled_messages_of_a_topic_are_listed_and_cancelled(web: Web) -> None:
    """R46."""
    web.create_topic("news")
    put(web, "news", {"body": "later", "scheduled_at": LATER})
    [message] = found(search(web, "news", states=["scheduled"]))
    body = {"numbers": [message["number"]]}

    assert ask(web, "POST", "entities/news/scheduled/cancel", body) == {"cancelled": 1}
    assert not found(search(web, "news"))
    ask(web, "POST", "entities/news/scheduled/cancel", body, status=404)


def test_deferred_messages_are_listed_received_and_deleted(web: Web) -> None:
    """R46."""
    put(web, "q", {"body": "a"}, {"body": "b"})
    for _ in range(2):
        received = found(ask(web, "POST", "entities/q/messages/receive", {}))
        settlement = {"action": "defer", "lock_tokens": [received[0]["lock_token"]]}
        ask(web, "POST", "entities/q/messages/settle", settlement)
    one, other = (message["number"] for message in found(search(web, "q", states=["deferred"])))
    path = "entities/q/deferred/receive"

    locked = found(ask(web, "POST", path, {"numbers": [one]}))
    gone = found(ask(web, "POST", path, {"numbers": [other], "mode": "receive_and_delete"}))

    assert locked[0]["lock_token"] and "lock_token" not in gone[0]
    assert bodies(search(web, "q", states=["deferred"])) == ["a"]


def test_the_placement_of_a_key_is_told(web: Web) -> None:
    """R10, R46."""
    put(web, "many", {"body": "x", "partition_key": "k"})
    [message] = found(search(web, "many"))

    by_key = ask(web, "POST", "entities/many/placement", {"partition_key": "k"})
    by_bus = ask(web, "POST", "entities/many/placement", {"message_id": "m"})

    assert (by_key["fragment"], by_key["broker"]) == (message["fragment"], "b0")
    assert (by_bus["by"], by_bus["fragment"]) == ("bus", None)


def test_dead_letters_are_grouped_by_reason_and_masked_description(web: Web) -> None:
    """R46."""
    put(web, "many", *numbered(5))
    for number in range(3):
        kill(web, "many", "late", f"order {number} of 'customer {number}' was late")
    kill(web, "many", "late", "another cause")
    kill(web, "many", "broken")

    document = ask(web, "POST", "entities/many/dead-letters/groups", {})

    groups = document["groups"]
    assert isinstance(groups, list)
    assert sorted((group["reason"], group["count"]) for group in groups) == [
        ("broken", 1),
        ("late", 1),
        ("late", 3),
    ]
    assert groups[0]["description"] == "order <n> of <text> was late"
    assert (document["searched"], document["next"]) == (5, None)
    letters = search(web, "many%2F$DeadLetterQueue", group=groups[0]["key"])
    assert {str(one["number"]) for one in found(letters)} == set(groups[0]["samples"])


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("id 3f2504e0-4f89-11d3-9a0c-0305e82c3301 gone", "id <id> gone"),
        ("at 2026-01-31T12:00:00 in 3.5 s", "at <n> in <n> s"),
        ("x" * 1000, "x" * 300),
        ("", ""),
    ],
)
def test_what_varies_is_masked(description: str, expected: str) -> None:
    assert masked(description) == expected


def test_a_rule_is_tried_on_messages(web: Web) -> None:
    """R30, R46."""
    web.create_topic("news")
    web.subscribe("news", "eu")
    put(web, "news", {"body": "1", "properties": {"color": "red", "n": 1}, "subject": "L"})
    put(web, "news", {"body": "2", "properties": {"color": "green"}})
    rule = {
        "filter": {"kind": "sql", "expression": "color = 'red'"},
        "action": "SET color = 'blue'; SET sys.Label = 'M'; REMOVE n",
    }

    tried = ask(web, "POST", f"{EU}/rule-test", rule)
    failing = {"filter": {"kind": "sql", "expression": "1 / 0 = 1"}}

    assert (tried["examined"], tried["matched"], tried["not_matched"]) == (2, 1, 1)
    results = tried["results"]
    assert isinstance(results, list)
    [matched] = [one for one in results if one["outcome"] == "matched"]
    changes = {one["name"]: (one["before"], one["after"]) for one in matched["changes"]}
    assert changes["color"] == ("red", "blue")
    assert changes["sys.Label"] == ("L", "M")
    assert changes["n"] == ("1", None)
    assert len(found(search(web, "news%2FSubscriptions%2Feu"))) == 2
    assert ask(web, "POST", f"{EU}/rule-test", failing)["failed"] == 2


def test_a_message_that_several_subscriptions_have_is_tried_once(web: Web) -> None:
    """R46: and as it was sent, where a subscription without an action has it."""
    web.create_topic("news")
    for name in ("eu", "asia", "audit"):
        web.subscribe("news", name)
    changed = {"filter": {"kind": "true"}, "action": "SET color = 'grey'"}
    ask(web, "PUT", f"{EU}/rules/$Default", changed)
    ask(web, "PUT", f"{EU}/rules/again", changed)
    put(web, "news", {"body": "1", "properties": {"color": "red"}})
    put(web, "news", {"body": "2", "properties": {"color": "green"}})
    names = [f"news/Subscriptions/{name}" for name in ("eu", "asia", "audit")]
    rule = {"filter": {"kind": "sql", "expression": "color = 'red'"}, "action": "SET n = 1"}

    tried = ask(web, "POST", f"{EU}/rule-test", {**rule, "sources": names})
    own = ask(web, "POST", f"{EU}/rule-test", rule)

    assert (tried["examined"], tried["matched"]) == (2, 1)
    assert (own["examined"], own["matched"]) == (4, 0)
    [matched] = [one for one in tried["results"] if one["outcome"] == "matched"]  # type: ignore[attr-defined]  # a list
    assert matched["changes"] == [{"name": "n", "before": None, "after": "1"}]


@pytest.mark.parametrize(
    ("rule", "part", "place"),
    [
        ({"filter": {"kind": "sql", "expression": "a = 1 AND\n b = "}}, "filter", (2, 6)),
        ({"filter": {"kind": "true"}, "action": "SET a ="}, "action", (1, 8)),
    ],
)
def test_an_error_of_syntax_has_its_place(
    web: Web, rule: Json, part: str, place: tuple[int, int]
) -> None:
    web.create_topic("news")
    web.subscribe("news", "eu")

    mistake = ask(web, "POST", f"{EU}/rule-test", rule)["syntax_error"]

    assert isinstance(mistake, dict)
    assert (mistake["part"], mistake["line"], mistake["column"]) == (part, *place)


def test_a_rule_is_not_tried_on_messages_that_the_client_may_not_read(web: Web) -> None:
    """R34."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("reader", LISTEN, "r")]
    web.create("mine", spec=spec)
    token = web.token("http://bus/mine", key_name="reader", key="r")
    body = json.dumps({"sources": ["q"]}).encode()

    assert web.fetch("POST", "/api/v1/entities/mine/rule-test", body, token=token).status == 401


# The server, and who may sign in how.


def test_the_system_tells_ports_brokers_and_stores(web: Web) -> None:
    """R45."""
    document = ask(web, "GET", "system")

    assert (document["amqp_port"], document["http_port"]) == (5672, 5300)
    [broker] = document["brokers"]  # type: ignore[misc]  # a list of one
    assert (broker["name"], broker["state"], broker["restarts"]) == ("b0", "available", 0)  # type: ignore[has-type]  # an object
    assert document["endpoint"] == "sb://localhost:5672"


def test_every_client_with_a_key_learns_the_ports(web: Web) -> None:
    """Whoever may only send to a queue needs a connection string too."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("sender", SEND, "s")]
    web.create("mine", spec=spec)
    token = web.token("http://bus/mine", key_name="sender", key="s")

    answer = web.fetch("GET", "/api/v1/ports", token=token)

    assert json.loads(answer.body)["amqp_port"] == 5672


def test_no_route_that_wants_a_token_answers_without_one(web: Web) -> None:
    """R34."""
    paths = json.loads(web.fetch("GET", "/api/v1/openapi.json").body)["paths"]
    guarded = [
        (method.upper(), re.sub(r"\{\w+\}", "q", path))
        for path, operations in paths.items()
        for method, operation in operations.items()
        if operation["security"]
    ]

    answers = {each: web.fetch(*each, token="").status for each in guarded}

    assert len(guarded) > 60
    assert {each: status for each, status in answers.items() if status != 401} == {}


def test_connection_strings_have_the_port_of_amqp(web: Web) -> None:
    """R46."""
    rule = ask(web, "PUT", "entities/q/access-rules/reader", {"rights": ["Listen"]})

    assert rule["primary_connection_string"] == (
        f"Endpoint=sb://bus:5672;SharedAccessKeyName=reader;SharedAccessKey={rule['primary_key']};"
        "EntityPath=q;"
    )


def sign_in(web: Web, peer: str = "127.0.0.1", **headers: str) -> Json:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = web.request("GET", "/api/v1/sign-in", b"", {"Host": "localhost:5300"} | given)
    request.headers.pop("authorization")
    request.peer = peer
    response = web.run(web.site.respond(request))
    assert response.status == 200
    assert dict(response.headers)["Cache-Control"] == "no-store"
    document: Json = json.loads(response.body)
    return document


def local(web: Web) -> Web:
    web.facts.is_loopback = web.facts.has_development_key = True
    return web


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": "http://localhost:5300"},
        {"Host": "127.0.0.1:5300"},
        {"Host": "[::1]:5300"},
        {"Host": "bus.localhost"},
    ],
)
def test_the_development_key_is_offered_to_the_own_page(web: Web, headers: dict[str, str]) -> None:
    """R48."""
    document = sign_in(local(web), **headers)

    assert "development" in str(document["methods"])
    assert "SharedAccessKey=" in str(document["development"])


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "https://localhost:5300"},
        {"Host": "evil.example:5300"},
        {"Host": "localhost.evil.example"},
        {"Host": "bus"},
        {"Host": "10.0.0.1"},
        {"Host": ""},
    ],
)
def test_no_other_page_is_offered_the_development_key(web: Web, headers: dict[str, str]) -> None:
    """R48."""
    document = sign_in(local(web), **headers)

    assert document["methods"] == ["connection_string"]
    assert "development" not in document


def test_no_other_machine_is_offered_the_development_key(web: Web) -> None:
    """R48."""
    for peer in ("10.1.2.3", "2001:db8::/64", ""):
        assert "development" not in sign_in(local(web), peer)
    web.facts.has_development_key = False
    assert "development" not in sign_in(web)
    web.facts.has_development_key, web.facts.is_loopback = True, False
    assert "development" not in sign_in(web)
