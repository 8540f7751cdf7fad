"""Simple GETs: what is read of them is what h11 reads, and everything else is left to h11."""

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardbus.gateway.http.server.simple_get import (
    SIMPLE_BYTES_MAX,
    head_of_answer,
    read_simple_get,
)
from tests.unit.gateway.test_http_connection import Client, run, settle

POLL = (
    b"GET /api/v1/overview?step=5s HTTP/1.1\r\nHost: localhost:5300\r\nConnection: keep-alive\r\n"
    b'sec-ch-ua: "Chromium";v="140"\r\nAuthorization: SharedAccessSignature sr=x&sig=y\r\n'
    b'If-None-Match:  W/"0123" \r\nX-Odd:\r\nX-Latin: \xe9\r\n\r\n'
)


def fields(*lines: bytes) -> bytes:
    return b"GET /api/v1/a HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def read_by_h11(data: bytes) -> h11.Request | None:
    """The only request that h11 finds, if the connection can be used again after it."""
    reader = h11.Connection(h11.SERVER)
    try:
        reader.receive_data(data)
        head, end = reader.next_event(), reader.next_event()
    except h11.RemoteProtocolError:
        return None
    is_whole = isinstance(head, h11.Request) and isinstance(end, h11.EndOfMessage)
    is_kept = reader.their_state is h11.DONE and reader.trailing_data == (b"", False)
    return head if is_whole and is_kept and isinstance(head, h11.Request) else None


PIECES = st.one_of(
    st.sampled_from(
        [
            *(line + b"\r\n" for line in POLL.split(b"\r\n")),
            b"GET /api/v1/a HTTP/1.0\r\n",
            b"Content-Length: 3\r\n",
            b"Content-Length: 0\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"Connection: Upgrade\r\n",
            b"Expect: 100-continue\r\n",
            b"Host: other\r\n",
            b" folded\r\n",
            b"\r\n",
            b"\n",
            b"\r",
            b": ",
            b"\x00",
            b"name with space: x\r\n",
        ]
    ),
    st.binary(max_size=12),
)


@given(st.lists(PIECES, max_size=8).map(b"".join))
@example(POLL)
@example(POLL + POLL)
@example(fields(b"Host: h", b"Host: h"))
@example(fields(b"Host: h", b"A: b", b" folded"))
@example(fields(b"Host: h", b"A : b"))
@example(fields(b"A: b"))
def test_what_is_read_is_what_h11_reads(data: bytes) -> None:
    for request in (data, b"GET /api/v1/a HTTP/1.1\r\nHost: h\r\n" + data + b"\r\n"):
        simple = read_simple_get(request)
        if simple is None:
            continue
        head = read_by_h11(request)
        assert head is not None
        assert (head.method, head.http_version) == (b"GET", b"1.1")
        assert simple.target == head.target.decode()
        assert simple.headers == {
            name.decode(): value.decode("latin-1") for name, value in head.headers
        }
        assert simple.header_names == {
            name.decode().lower(): name.decode() for name, _ in head.headers.raw_items()
        }


def test_the_request_of_a_browser_is_simple() -> None:
    simple = read_simple_get(POLL)

    assert simple is not None
    assert simple.target == "/api/v1/overview?step=5s"
    assert simple.headers["if-none-match"] == 'W/"0123"'
    assert (simple.headers["x-odd"], simple.headers["x-latin"]) == ("", "\xe9")
    assert simple.header_names["x-odd"] == "X-Odd"


@pytest.mark.parametrize(
    "data",
    [
        POLL[:-1],
        POLL + b"G",
        POLL + POLL,
        POLL.replace(b"GET", b"PUT"),
        POLL.replace(b"/api/", b"/other/"),
        POLL.replace(b"HTTP/1.1", b"HTTP/1.0"),
        POLL.replace(b"keep-alive", b"close"),
        POLL.replace(b"keep-alive", b"Upgrade"),
        POLL.replace(b"X-Odd:", b"Upgrade: websocket"),
        POLL.replace(b"X-Odd:", b"Expect: 100-continue"),
        POLL.replace(b"X-Odd:", b"content-length: 0"),
        POLL.replace(b"X-Odd:", b"Transfer-Encoding: chunked"),
        POLL.replace(b"X-Odd:", b"host: other"),
        POLL.replace(b"Host:", b"Hosts:"),
        POLL.replace(b"\r\n", b"\n"),
        POLL.replace(b"X-Odd:", b"X-Long: " + b"x" * SIMPLE_BYTES_MAX),
    ],
)
def test_everything_else_is_left_to_h11(data: bytes) -> None:
    assert read_simple_get(data) is None


def test_no_header_of_an_answer_is_more_than_one_line() -> None:
    head = head_of_answer(304, (("ETag", 'W/"x"'), ("Server", "Shardbus")))

    assert head == b'HTTP/1.1 304 Not Modified\r\nETag: W/"x"\r\nServer: Shardbus\r\n\r\n'
    for name, value in [("A", "b\r\nSet-Cookie: c"), ("A", "b\n"), ("A\r\nB", "c"), ("A", "\0")]:
        with pytest.raises(ValueError, match="A"):
            head_of_answer(200, ((name, value),))


OTHER = b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"


@pytest.mark.parametrize("last", [POLL, OTHER])
def test_simple_and_other_requests_follow_each_other(last: bytes) -> None:
    async def scenario(client: Client) -> None:
        for data in (POLL, POLL, OTHER, POLL[:20], POLL[20:], POLL + OTHER, last):
            client.send(data)
            await settle()
        assert not client.transport.is_closed
        client.transport.ended(None)

    client = run(scenario)

    assert client.statuses() == [200] * 7
    paths = [request.path for request in client.requests]
    assert paths == ["api/v1/overview"] * 2 + ["x"] + ["api/v1/overview"] * 2 + [
        "x",
        "x" if last is OTHER else "api/v1/overview",
    ]
    assert client.requests[0].query == {"step": "5s"}


def test_an_answer_to_a_simple_request_is_like_any_other() -> None:
    def answer(data: bytes) -> list[bytes]:
        async def scenario(client: Client) -> None:
            client.send(data)
            await settle()

        return run(scenario).transport.written.split(b"\r\n")

    simple, other = answer(POLL), answer(POLL.replace(b"X-Odd:", b"Content-Length: 0"))

    assert simple[0] == other[0] == b"HTTP/1.1 200 OK"
    assert [line for line in simple if not line.startswith(b"Date: ")] == [
        line for line in other if not line.startswith(b"Date: ")
    ]
    assert any(line.startswith(b"Date: ") and line.endswith(b" GMT") for line in simple)


def test_what_comes_during_a_simple_request_waits_for_its_answer() -> None:
    async def scenario(client: Client) -> None:
        client.gate.clear()
        client.send(POLL)
        client.send(POLL.replace(b"overview", b"second"))
        await settle()
        assert [request.path for request in client.requests] == ["api/v1/overview"]
        assert client.transport.is_paused
        client.gate.set()
        await settle()
        assert not client.transport.is_paused

    assert run(scenario).bodies() == ["GET api/v1/overview", "GET api/v1/second"]


def test_a_client_that_has_said_everything_gets_the_answer_to_a_simple_request() -> None:
    async def scenario(client: Client) -> None:
        client.gate.clear()
        client.send(POLL)
        await settle()
        assert client.protocol.eof_received()
        assert client.requests[0].departure.has_happened
        client.gate.set()
        await settle()
        assert client.transport.is_closed

    assert run(scenario).bodies() == ["GET api/v1/overview"]


def test_garbage_after_a_simple_request_is_refused_and_ends_the_connection() -> None:
    async def scenario(client: Client) -> None:
        client.send(POLL)
        await settle()
        client.send(b"GET\x00/ HTTP/1.1\r\n\r\n")
        await settle()

    assert run(scenario).statuses() == [200, 400]


def test_a_simple_request_with_a_path_that_is_too_long_is_refused() -> None:
    async def scenario(client: Client) -> None:
        client.send(POLL.replace(b"overview", b"x/" * 1_000))
        await settle()

    client = run(scenario)

    assert (client.statuses(), client.requests) == ([400], [])
    assert client.transport.has_written_eof


def test_leaving_lets_the_answer_to_a_simple_request_end() -> None:
    async def scenario(client: Client) -> None:
        client.gate.clear()
        client.send(POLL)
        await settle()
        client.protocol.shut_down()
        client.gate.set()
        await settle()
        assert client.transport.is_closed

    client = run(scenario)

    assert client.bodies() == ["GET api/v1/overview"]
    assert b"Connection: close\r\n" in client.transport.written
