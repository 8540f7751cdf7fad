"""Whatever strangers write in properties and headers: an answer that says what, never a 500."""

import json
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.codec.encoder import encode
from shardbus.codec.types import (
    Array,
    Char,
    Described,
    Float,
    Int,
    Map,
    Symbol,
    Timestamp,
    Ubyte,
    Ulong,
    Uuid,
    Value,
)
from shardbus.gateway.http.messaging.broker_properties import parse_json, read_broker_properties
from shardbus.gateway.http.messaging.sent import BATCH_MESSAGES_MAX, read_messages
from shardbus.gateway.http.server.message import HttpRequest, HttpResponse
from shardbus.gateway.http.server.target import read_target
from tests.unit.gateway.http.test_crossing import section, send_over_amqp
from tests.unit.gateway.http.web import Web, broker_properties

BATCH = "application/vnd.microsoft.servicebus.json"
NAMES = (
    "ContentType", "CorrelationId", "ForcePersistence", "Label", "MessageId", "PartitionKey",
    "ReplyTo", "ReplyToSessionId", "ScheduledEnqueueTimeUtc", "SessionId", "TimeToLive",
    "TimeToLiveTimeSpan", "To", "ViaPartitionKey", "State",
)  # fmt: skip

texts = st.text(max_size=200)
dates = st.sampled_from(
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 32 Nov 1994 08:49:37 GMT",
        "2030-01-01T00:00:00Z",
        "9999-12-31T23:59:59+00:00",
        "0001-01-01T00:00:00+23:59",
        "5.00:00:01",
        "99999999.23:59:59.9999999",
    ]
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | dates
    | st.integers(10**18, 10**420),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
property_values = st.dictionaries(st.sampled_from(NAMES) | texts, json_values, max_size=6)
header_names = st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,30}", fullmatch=True)
header_values = st.text(
    st.characters(max_codepoint=255, blacklist_characters="\0\r\n"), max_size=80
) | st.from_regex(r'"?[-+0-9.eE"\\u]{1,40}"?', fullmatch=True)


@pytest.fixture(scope="module")
def shared() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


def check(web: Web, request: HttpRequest) -> None:
    """Ask; what was taken must come back as answers that HTTP can carry."""
    response = web.run(web.site.respond(request))
    assert response.status in (201, 400, 403), response.body
    if response.status != 201:
        assert b"<Detail>" in response.body
        assert len(response.body) < 4096
        return
    web.pass_s(0.1)
    for _ in range(BATCH_MESSAGES_MAX + 1):
        received = web.take("q")
        if received.status == 204:
            return
        assert received.status == 200
        carried(received)
    raise AssertionError("more came back than was sent")


def carried(response: HttpResponse) -> None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    connection.next_event()
    headers = [("Content-Type", response.content_type), *response.headers]
    written = connection.send(
        h11.Response(status_code=200, headers=[*headers, ("Content-Length", "0")])
    )
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=128 * 1024)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    client.receive_data(written or b"")
    seen = client.next_event()
    assert isinstance(seen, h11.Response)
    assert len(list(seen.headers)) == len(headers) + 1


@settings(deadline=None)
@given(property_values)
def test_no_broker_properties_break_anything(shared: Web, members: dict[str, object]) -> None:
    headers = {"BrokerProperties": json.dumps(members)}

    check(shared, shared.request("POST", "/q/messages", b"x", headers))


@settings(deadline=None)
@given(st.dictionaries(header_names, header_values, max_size=5), header_values)
def test_no_headers_break_anything(shared: Web, headers: dict[str, str], broker_text: str) -> None:
    named = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    check(shared, shared.request("POST", "/q/messages", b"x", named))
    named["BrokerProperties"] = broker_text

    check(shared, shared.request("POST", "/q/messages", b"x", named))


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "Body": json_values,
                "BrokerProperties": property_values | json_values,
                "UserProperties": st.dictionaries(texts, json_values, max_size=4) | json_values,
            },
        ),
        max_size=3,
    )
    | json_values
)
def test_no_batch_breaks_anything(shared: Web, batch: object) -> None:
    body = json.dumps(batch).encode()

    check(shared, shared.request("POST", "/q/messages", body, {"Content-Type": BATCH}))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reading_of_a_batch(shared: Web, body: bytes) -> None:
    check(shared, shared.request("POST", "/q/messages", body, {"Content-Type": BATCH}))


scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.floats(width=32).map(Float),
    texts,
    st.binary(max_size=40),
    st.text(st.characters(max_codepoint=127), max_size=40).map(Symbol),
    st.integers(-(1 << 63), (1 << 63) - 1).map(Timestamp),
    st.integers(0, 0x10FFFF).map(Char),
    st.integers(0, 255).map(Ubyte),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Int),
    st.integers(0, (1 << 64) - 1).map(Ulong),
    st.binary(min_size=16, max_size=16).map(Uuid),
)
values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(texts, inner, max_size=3),
        st.tuples(scalars, inner).map(lambda pair: Map([pair])),
        inner.map(lambda value: Described(Symbol("d"), value)),
        st.just(Array(0x56, [True, False])),
    ),
    max_leaves=5,
)


def encodable(value: Value) -> bool:
    try:
        encode(value)
    except ValueError:
        return False
    return True


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(texts, values.filter(encodable), max_size=5).filter(encodable),
    values.filter(encodable),
    st.text(st.characters(max_codepoint=127), max_size=40),
)
def test_every_message_of_amqp_can_be_carried(
    shared: Web, properties: dict[str, Value], body: Value, content_type: str
) -> None:
    fields: list[Value] = ["m"] + [None] * 5 + [Symbol(content_type)]
    send_over_amqp(shared, section(0x73, fields) + section(0x74, properties) + section(0x77, body))

    response = shared.take("q")

    assert response.status == 200
    carried(response)
    assert broker_properties(response)["MessageId"] == "m"


@given(st.text(max_size=60), st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"]))
def test_no_path_breaks_the_reading_of_it(path: str, method: str) -> None:
    request = HttpRequest(method, f"/q/messages/{path}", {}, b"", is_secure=False)

    target = read_target(request)

    assert target is None or target.address().entity


@settings(deadline=None)
@given(
    st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]),
    st.sampled_from(["queues", "queues/", "entities/", "namespace", "metrics", "health", ""]),
    st.text(st.characters(codec="utf-8"), max_size=30).map(lambda text: quote(text, safe="/")),
    st.sampled_from(["", "/fragments"]),
    st.dictionaries(st.sampled_from(["skip", "top", "x"]), texts, max_size=2),
)
def test_no_request_breaks_the_api(
    shared: Web, method: str, start: str, name: str, end: str, query: dict[str, str]
) -> None:
    encodable_query = urlencode(query, errors="replace")

    response = shared.fetch(method, f"/api/v1/{start}{name}{end}?{encodable_query}")

    # A name may be valid, and then a PUT creates a queue, once.
    assert response.status in (200, 201, 400, 404, 405, 409)
    answer = json.loads(response.body)
    assert ("error" in answer) == (response.status >= 400)


MEGABYTE = 1024 * 1024
LARGE_BATCHES = {
    "depth": b"[" * MEGABYTE,
    "depth of objects": b'{"a":' * (MEGABYTE // 5),
    "digits": b"[" + b"9" * (MEGABYTE - 2) + b"]",
    "exponent": b'[{"Body": "x", "UserProperties": {"a": 1e999999999}}]',
    "numbers": b"[" + b"1," * (MEGABYTE // 2 - 1) + b"1]",
    "messages": b"[" + b'{"Body":""},' * 80_000 + b'{"Body":""}]',
    "members": b'[{"Body":"","UserProperties":{'
    + b",".join(b'"%d":1' % number for number in range(90_000))
    + b"}}]",
    "text": b'[{"Body":"' + b"\\u0000" * (MEGABYTE // 6 - 3) + b'"}]',
    "half characters": b'[{"Body":"' + b"\\ud800" * 1000 + b'"}]',
    "utf-16": '[{"Body": "x"}]'.encode("utf-16"),
    "mark": '[{"Body": "x"}]'.encode("utf-8-sig"),
    "nothing": b"",
    "null": b"null",
}


@pytest.mark.parametrize("name", LARGE_BATCHES)
def test_no_large_batch_breaks_anything(shared: Web, name: str) -> None:
    body = LARGE_BATCHES[name]

    check(shared, shared.request("POST", "/q/messages", body, {"Content-Type": BATCH}))


@pytest.mark.parametrize("text", ["[" * 30_000, '{"a":' * 6000, '{"TimeToLive":1e400}', "{" * 9])
def test_no_deep_broker_properties_break_anything(shared: Web, text: str) -> None:
    check(shared, shared.request("POST", "/q/messages", b"x", {"BrokerProperties": text}))


def test_unknown_members_are_passed_over() -> None:
    read = read_broker_properties(parse_json('{"Label": "l", "Mystery": {"x": [1]}}', "it"))

    assert read.texts.get("subject") == "l"


def test_a_request_without_anything_is_an_empty_message() -> None:
    request = HttpRequest("POST", "/q/messages", {}, b"", is_secure=False)

    [message] = read_messages(request, 0)

    assert message.message_id is None
    assert message.ttl_ms == -1
