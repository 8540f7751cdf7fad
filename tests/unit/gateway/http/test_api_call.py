"""The frame of the JSON API: which row is meant, and what a request may say."""

import json

import pytest

from shardbus.core.access import LISTEN, MANAGE, SEND, AccessRule
from shardbus.core.entity import QueueSpec
from shardbus.gateway.http.api import Api
from shardbus.gateway.http.api_call import Answer, Call
from shardbus.gateway.http.api_route import NAME, RULE, Parameter, Route
from shardbus.gateway.http.documents_schema import Document, Schema
from shardbus.gateway.http.message import Response
from tests.unit.gateway.http.web import Web, Wire


class Parts:
    """Rows that tell what they were asked."""

    def routes(self) -> list[tuple[Route, Answer]]:
        page = (NAME, Parameter("top", "query", "How many.", most=9))
        return [
            (Route("/api/v1/things/{name}", "All.", "Thing", parameters=page), self.show),
            (
                Route(
                    "/api/v1/things/{name}",
                    "Put.",
                    "Thing",
                    method="PUT",
                    body="Wish",
                    right=LISTEN | SEND,
                    otherwise=MANAGE,
                    parameters=(NAME,),
                ),
                self.put,
            ),
            (
                Route(
                    "/api/v1/things/{name}/rules/{rule}", "One.", "Thing", parameters=(NAME, RULE)
                ),
                self.show,
            ),
        ]

    def schemas(self) -> dict[str, Schema]:
        members = ("text", "number", "flag", "word", "texts", "numbers", "objects")
        return {
            "Thing": {"type": "object"},
            "Wish": {"type": "object", "properties": {name: {} for name in members}},
        }

    async def show(self, call: Call) -> Document:
        return {"name": call.name, "rule": call.rule, "top": call.query.integer("top", 3, 9)}

    async def put(self, call: Call) -> Document:
        body = call.body
        return {
            "text": body.text("text", "none", most=5),
            "number": body.integer("number", 7, 99),
            "flag": body.flag("flag", False),
            "word": body.choice("word", ["yes", "no"], "yes"),
            "texts": body.texts("texts", [], most=2),
            "numbers": body.integers("numbers", [], most=2),
            "objects": [one.text("x") for one in body.objects("objects", ["x"], most=2)]
            if body.has("objects")
            else [],
        }


@pytest.fixture
def api(web: Web) -> Api:
    return web.with_groups([Parts()])


def put(web: Web, body: bytes, *, token: str | None = None, path: str = "q") -> Response:
    return web.fetch("PUT", f"/api/v1/things/{path}", body, token=token)


@pytest.mark.parametrize(
    ("path", "name", "rule"),
    [
        ("a", "a", ""),
        ("a/b/c", "a/b/c", ""),
        ("a%2Fb", "a/b", ""),
        ("a/$DeadLetterQueue", "a/$DeadLetterQueue", ""),
        ("a/rules/x", "a", "x"),
        ("a/%72ules/x%20y", "a", "x y"),
        ("a%2Frules%2Fx", "a/rules/x", ""),
        ("a/rules/b/rules/c", "a/rules/b", "c"),
        ("a/rules/x/y", "a/rules/x/y", ""),
        ("%25", "%", ""),
    ],
)
def test_a_name_takes_slashes_and_a_rule_none(
    web: Web, api: Api, path: str, name: str, rule: str
) -> None:
    document = json.loads(web.fetch("GET", f"/api/v1/things/{path}").body)

    assert (document["name"], document["rule"]) == (name, rule)


def test_a_body_that_is_left_out_is_empty(web: Web, api: Api) -> None:
    response = put(web, b"")

    assert json.loads(response.body) == {
        "text": "none",
        "number": 7,
        "flag": False,
        "word": "yes",
        "texts": [],
        "numbers": [],
        "objects": [],
    }


def test_every_kind_of_member_is_read(web: Web, api: Api) -> None:
    wish = {
        "text": "häuse",
        "number": 99,
        "flag": True,
        "word": "no",
        "texts": ["a", ""],
        "numbers": [0, 2**63 - 1],
        "objects": [{"x": "1"}, {"x": "2"}],
    }

    told = json.loads(put(web, json.dumps(wish).encode()).body)

    assert told == {**wish, "objects": ["1", "2"]}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"texd": 1}', "'texd'"),
        (b'{"text": 1}', "text"),
        (b'{"text": null}', "text"),
        (b'{"text": "123456"}', "text"),
        (b'{"text": "\\ud800"}', "text"),
        (b'{"number": 100}', "number"),
        (b'{"number": -1}', "number"),
        (b'{"number": true}', "number"),
        (b'{"number": 1.0}', "number"),
        (b'{"number": NaN}', "JSON"),
        (b'{"flag": 1}', "flag"),
        (b'{"word": "perhaps"}', "word"),
        (b'{"texts": ["a", "b", "c"]}', "texts"),
        (b'{"texts": ["a", 1]}', "texts"),
        (b'{"texts": "a"}', "texts"),
        (b'{"numbers": [-1]}', "numbers"),
        (b'{"objects": [{"x": "1"}, {"y": "2"}]}', "objects[1]"),
        (b'{"objects": [1]}', "objects[0]"),
        (b'{"objects": [{}]}', "x"),
        (b'{"\\ud800": 1}', "ud800"),
        (b"[]", "object"),
        (b"null", "object"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b'{"number": ' + b"9" * 5000 + b"}", "JSON"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_what_is_amiss_is_named(web: Web, api: Api, body: bytes, named: str) -> None:
    response = put(web, body)

    error = json.loads(response.body)["error"]
    assert (response.status, error["code"]) == (400, "invalid-argument")
    assert named in error["message"]


@pytest.mark.parametrize(
    ("target", "is_json"),
    [
        ("/api/v1/queues?" + "a=1&" * 40, True),
        ("/api/v1/queues?api-version=2021-05&" + "a=1&" * 40, False),
        ("/q?" + "a=1&" * 40, False),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_in_the_words_of_its_path(
    web: Web, target: str, is_json: bool
) -> None:
    wire = Wire(web)

    wire.send("GET", target)
    web.pass_s(1)

    assert wire.statuses() == [400]
    assert (b"application/json" in wire.transport.written) == is_json
    wire.close()


def test_a_row_may_need_two_rights_at_once(web: Web, api: Api) -> None:
    """R34."""
    spec = QueueSpec()
    spec.access_rules = [
        AccessRule("both", LISTEN | SEND, "b"),
        AccessRule("listener", LISTEN, "l"),
        AccessRule("sender", SEND, "s"),
        AccessRule("manager", MANAGE, "m"),
    ]
    web.create("guarded", spec=spec)

    def status(name: str) -> int:
        token = web.token("http://bus/guarded", key_name=name, key=name[0])
        return put(web, b"", token=token, path="guarded").status

    names = ("both", "listener", "sender", "manager")
    assert [status(name) for name in names] == [200, 401, 401, 200]


def test_who_may_not_ask_is_not_told_what_is_wrong_with_the_question(web: Web, api: Api) -> None:
    assert put(web, b"{", token="").status == 401


def test_methods_of_one_path_stand_together(web: Web, api: Api) -> None:
    refused = web.fetch("DELETE", "/api/v1/things/q")
    description = json.loads(web.fetch("GET", "/api/v1/openapi.json").body)

    assert dict(refused.headers)["Allow"] == "GET, PUT, HEAD"
    assert list(description["paths"]["/api/v1/things/{name}"]) == ["get", "put"]
    body = description["paths"]["/api/v1/things/{name}"]["put"]["requestBody"]
    assert body == {
        "required": False,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Wish"}}},
    }
