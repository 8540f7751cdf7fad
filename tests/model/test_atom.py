"""Whatever a queue is told to be, its document says so; whatever bytes arrive, nothing breaks."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE, EntityStatistics, FragmentStatistics
from shardbus.core.errors import Refused
from shardbus.core.namespace import property as entity_property
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND, AccessRule
from shardbus.core.namespace.description import STATUSES
from shardbus.core.namespace.entity import Entity, EntitySpec, spread_fragments
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.property import (
    DESTINATION,
    DURATION,
    FLAG,
    MEGABYTES,
    NUMBER,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    WORD,
    properties_of,
)
from shardbus.core.namespace.tier import DAY_MS, INFINITE_MS
from shardbus.gateway.http.atom.descriptions import DESCRIPTION_OF, Shown, entity_entry, fill_spec
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import ATOM, FeedWriter, read_description
from shardbus.gateway.http.atom.markup import escaped, parse
from shardbus.gateway.http.moment import format_duration, parse_duration
from shardbus.gateway.http.server.connection import HttpGateway
from shardbus.gateway.http.server.message import TEXT, HttpRequest, HttpResponse
from tests.simulation.world import VirtualLoop
from tests.unit.gateway.transport import FakeTransport

# What XML can carry unchanged: it turns a bare carriage return into a line feed.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\n"),
    max_size=30,
)
NAMES = st.text(alphabet="aZ9.-_", max_size=20)
DURATIONS = st.one_of(st.integers(0, 400 * DAY_MS), st.just(INFINITE_MS))
RULES = st.builds(
    AccessRule, TEXTS, st.sampled_from([LISTEN, SEND, LISTEN | SEND, MANAGE]), TEXTS, TEXTS
)


VALUES: dict[str, st.SearchStrategy[int] | st.SearchStrategy[str]] = {
    FLAG: st.booleans(),
    NUMBER: st.integers(0, 102_400),
    MEGABYTES: st.integers(1, 100_000),
    DURATION: DURATIONS,
    WORD: st.sampled_from(STATUSES),
    entity_property.TEXT: TEXTS,
    DESTINATION: NAMES,
}


@st.composite
def entities(draw: st.DrawFn) -> Entity:
    entity = Entity(1, "q", EntitySpec(), 1000)
    entity.kind = draw(st.sampled_from([QUEUE, TOPIC, SUBSCRIPTION]))
    for each in properties_of(entity.kind):
        value = draw(VALUES[each.form])
        assert isinstance(value, int | str)
        each.put(entity.spec, value)
    if entity.kind != SUBSCRIPTION:
        entity.spec.access_rules = draw(st.lists(RULES, max_size=3))
    entity.fragments = spread_fragments(1, 1, 1)
    entity.hash_starts = even_hash_starts(1)
    return entity


def document(entity: Entity) -> str:
    statistics = EntityStatistics([FragmentStatistics(0, [0, 0, 0], 0, FRAGMENT_AVAILABLE, "")])
    writer = FeedWriter("http://h", "2021-05", "ns", 1000)
    return writer.document(entity_entry(writer, Shown(entity, statistics)))


@given(entities())
def test_a_client_that_sends_back_what_it_was_shown_changes_nothing(entity: Entity) -> None:
    read = EntitySpec()
    shown = document(entity)

    fill_spec(entity.kind, read, read_description(shown.encode(), DESCRIPTION_OF[entity.kind]))

    again = Entity(1, "q", read, 1000)
    again.kind, again.fragments, again.hash_starts = (
        entity.kind,
        entity.fragments,
        entity.hash_starts,
    )
    assert document(again) == shown
    # A destination that is shown as an address is kept as the client wrote it.
    read.forward_to_written = read.forward_dead_letters_to_written = ""
    assert read.to_document() == entity.spec.to_document()


@given(st.integers(0, INFINITE_MS))
def test_every_duration_is_read_back(duration_ms: int) -> None:
    read_ms = parse_duration("x", format_duration(duration_ms))

    assert read_ms == (duration_ms if duration_ms < 10_675_199 * DAY_MS else INFINITE_MS)


@given(st.text(max_size=50))
def test_every_text_can_be_written(text: str) -> None:
    parse(f'<a b="{escaped(text)}">{escaped(text)}</a>'.encode())


TAGS = st.sampled_from(
    ["entry", "content", "QueueDescription", "LockDuration", "AuthorizationRules", "Rights"]
)
PIECES = st.one_of(
    TAGS.map(lambda name: f'<{name} xmlns="{ATOM}">'),
    TAGS.map(lambda name: f'<{name} xmlns="{CONNECT}">'),
    TAGS.map(lambda name: f"</{name}>"),
    st.sampled_from(["<!DOCTYPE a [", "]>", "<!ENTITY a 'b'>", "&a;", "<![CDATA[", "]]>", "PT1M"]),
    st.text(max_size=5),
)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(PIECES, max_size=20).map(lambda parts: "".join(parts).encode()),
    )
)
def test_any_bytes_are_a_description_or_refused(body: bytes) -> None:
    try:
        described = read_description(body)
        fill_spec(QUEUE, EntitySpec(), described)
    except Refused as refusal:
        assert refusal.message


LINES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"PUT /q HTTP/1.1\r\n",
        b"Host: h\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"abc",
    ]
)


@settings(max_examples=200)
@given(st.lists(st.one_of(LINES, st.binary(max_size=30)), max_size=15), st.booleans())
def test_any_bytes_on_a_connection_are_answered_or_end_it(
    pieces: list[bytes], has_left: bool
) -> None:
    loop = VirtualLoop()

    async def respond(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, TEXT, request.path)

    def refuse(refusal: Refused, target: str, peer: str) -> HttpResponse:
        return HttpResponse(refusal.kind.status, TEXT, refusal.message)

    async def main() -> FakeTransport:
        transport = FakeTransport()
        async with HttpGateway(respond, refuse) as gateway:
            connection = gateway.connection()
            transport.connect(connection)
            for piece in pieces:
                if not transport.is_closed:
                    connection.data_received(piece)
                await asyncio.sleep(0)
            if has_left and not transport.is_closed:
                connection.eof_received()
            await asyncio.sleep(200)
        return transport

    transport = loop.finish(loop.create_task(main()))

    assert transport.is_closed
    assert transport.written == b"" or transport.written.startswith(b"HTTP/1.1 ")
