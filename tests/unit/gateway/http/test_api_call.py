"""The frame of the JSON API: which row is meant, and what a request may say."""

import json
from typing import Annotated, Literal

import pytest
from msgspec import UNSET, Meta, Struct, field

from shardbus.core.namespace.access import LISTEN, MANAGE, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.route import NAME, RULE, Parameter, Route
from shardbus.gateway.http.api.table import Api
from shardbus.gateway.http.document import Body, Count, Json, Maybe
from shardbus.gateway.http.server.message import HttpResponse
from tests.unit.gateway.http.web import Web, Wire


class Inner(Body, kw_only=True, frozen=True):
    x: str


class Wish(Body, kw_only=True, frozen=True):
    text: Annotated[str, Meta(max_length=5, examples=["hello"])] = "none"
    number: Annotated[int, Meta(ge=0, le=99)] = 7
    flag: bool = False
    word: Literal["yes", "no"] = "yes"
    texts: Annotated[list[str], Meta(max_length=2)] = field(default_factory=list)
    numbers: Annotated[list[Count], Meta(max_length=2)] = field(default_factory=list)
    objects: Annotated[list[Inner], Meta(max_length=2)] = field(default_factory=list)
    anything: Maybe[Json] = UNSET


class Thing(Struct, kw_only=True):
    name: str
    rule: str
    top: int


class Granted(Struct, kw_only=True):
    wish: Wish


class Parts:
    """Rows that tell what they were asked."""

    def rows(self) -> list[Row]:
        page = (NAME, Parameter("top", "query", "How many.", most=9))
        return [
            shows(Route("/api/v1/things/{name}", "All.", Thing, parameters=page), self.show),
            takes(
                Route(
                    "/api/v1/things/{name}",
                    "Put.",
                    Granted,
                    method="PUT",
                    right=LISTEN | SEND,
                    otherwise=MANAGE,
                    parameters=(NAME,),
                ),
                Wish,
                self.put,
            ),
            shows(
                Route("/api/v1/things/{name}/rules/{rule}", "One.", Thing, parameters=(NAME, RULE)),
                self.show,
            ),
        ]

    async def show(self, call: Call[Nothing]) -> Thing:
        return Thing(name=call.name, rule=call.rule, top=call.query.integer("top", 3, 9))

    async def put(self, call: Call[Wish]) -> Granted:
        return Granted(wish=call.body)


@pytest.fixture
def api(web: Web) -> Api:
    return web.with_groups([Parts()])


def put(web: Web, body: bytes, *, token: str | None = None, path: str = "q") -> HttpResponse:
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

    assert json.loads(response.body)["wish"] == {
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
        "anything": {"a": [1, None]},
    }

    told = json.loads(put(web, json.dumps(wish).encode()).body)

    assert told["wish"] == wish


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            b'{"texd": 1}',
            "The body has the member 'texd'; it may have: text, number, flag, word, texts, "
            "numbers, objects, anything.",
        ),
        (b'{"text": 1}', "text of the body must be a text of at most 5 characters."),
        (b'{"text": null}', "text of the body must be a text of at most 5 characters."),
        (b'{"text": "123456"}', "text of the body must be a text of at most 5 characters."),
        (b'{"number": 100}', "number of the body must be a whole number from 0 to 99."),
        (b'{"number": -1}', "number of the body must be a whole number from 0 to 99."),
        (b'{"number": true}', "number of the body must be a whole number from 0 to 99."),
        (b'{"number": 1.0}', "number of the body must be a whole number from 0 to 99."),
        (b'{"number": 1e2}', "number of the body must be a whole number from 0 to 99."),
        (
            b'{"number": ' + b"9" * 5000 + b"}",
            "number of the body must be a whole number from 0 to 99.",
        ),
        (b'{"flag": 1}', "flag of the body must be true or false."),
        (b'{"word": "perhaps"}', "word of the body is 'perhaps'; it must be one of no, yes."),
        (b'{"texts": ["a", "b", "c"]}', "texts of the body must be a list of at most 2 texts."),
        (b'{"texts": ["a", 1]}', "texts[1] of the body must be a text."),
        (b'{"texts": "a"}', "texts of the body must be a list of at most 2 texts."),
        (b'{"numbers": [-1]}', "numbers[0] of the body must be a whole number from 0 to"),
        (
            b'{"objects": [{"x": "1"}, {"y": "2"}]}',
            "objects[1] of the body has the member 'y'; it may have: x.",
        ),
        (b'{"objects": [1]}', "objects[0] of the body must be a JSON object."),
        (b'{"objects": [{}]}', "objects[0] of the body has no member x."),
        (b'{"x` - at `$.text`": 1}', "The body"),
        (
            b'{"anything": 1e999}',
            "anything of the body must be JSON whose numbers are not too large.",
        ),
        (b"[]", "The body must be a JSON object."),
        (b"null", "The body must be a JSON object."),
        (b"[" * 100_000, "The body must be a JSON object."),
    ],
)
def test_what_is_amiss_is_named(web: Web, api: Api, body: bytes, told: str) -> None:
    response = put(web, body)

    error = json.loads(response.body)["error"]
    assert (response.status, error["code"]) == (400, "invalid-argument")
    assert error["message"].startswith(told)


@pytest.mark.parametrize(
    "body",
    [
        b'{"text": "\\ud800"}',
        b'{"\\ud800": 1}',
        b'{"anything": "\\udc00"}',
        b'{"number": NaN}',
        b'{"anything": Infinity}',
        b'{"number": 1,}',
        b'{"number": 1} {}',
        b"\xef\xbb\xbf{}",
        b'{"text": "\xff"}',
        b"{",
        b"\xff",
        b'{"anything": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_is_refused(web: Web, api: Api, body: bytes) -> None:
    response = put(web, body)

    error = json.loads(response.body)["error"]
    assert (response.status, error["code"]) == (400, "invalid-argument")
    assert error["message"].startswith("The body is not JSON in UTF-8")


def test_of_two_members_of_one_name_the_last_counts(web: Web, api: Api) -> None:
    told = json.loads(put(web, b'{"number": 1, "number": 2}').body)

    assert told["wish"]["number"] == 2


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
    spec = EntitySpec()
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
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Wish"},
                "example": {"text": "hello"},
            }
        },
    }
