"""The Flight server over real stores and a bus in a table: what it gives, and how it says no."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest

from shardbus.gateway.flight.reading import states
from shardbus.gateway.flight.server.bus import BusError, Document
from shardbus.gateway.flight.server.lane import ACTION_BYTES_MAX
from shardbus.message.sections import encode_data_message
from tests.stores.harness import Scalpel, without_payload
from tests.unit.gateway.flight.lane_site import TOKEN, LaneSite, options

LARGE = b"x" * 200_000


def command(**members: object) -> flight.FlightDescriptor:
    asked = json.dumps({"entity": "q", **members}).encode()
    return flight.FlightDescriptor.for_command(asked)


def tickets(info: flight.FlightInfo) -> list[Document]:
    return [json.loads(endpoint.ticket.ticket) for endpoint in info.endpoints]


def test_a_stream_gives_the_messages_of_a_range(site: LaneSite) -> None:
    """P1."""
    site.send(b"a", b"b", b"c")
    site.send(b"d")

    table = site.read(**{"from": 2, "to": 5})

    assert table.to_pydict() == {"sequence_number": [2, 3, 4], "body": [b"b", b"c", b"d"]}
    assert site.read(**{"from": 5, "to": 5}).num_rows == 0
    assert site.bus.asked == [("entities/q/bulk", TOKEN)] * 2


def test_reads_that_follow_each_other_open_the_store_once(site: LaneSite) -> None:
    """P1: and see what was stored meanwhile."""
    site.send(b"a")
    site.describe(2)
    first = site.read(**{"from": 1, "to": 2})
    site.send(b"b")
    site.describe(3)
    second = site.read(**{"from": 1, "to": 3})
    site.act("describe")

    assert (first.num_rows, second.num_rows) == (1, 2)
    assert site.opened == ["broker-0"]


def test_a_flight_has_a_ticket_for_each_fragment_from_where_it_begins(site: LaneSite) -> None:
    """P1."""
    entries = site.pen.append([b"\x00\x53\x75\xa0\x01a"] * 3)
    site.pen.write(site.store)
    site.pen.remove(without_payload(entries[:2]))
    site.pen.write(site.store)
    site.describe(4)

    info = site.client.get_flight_info(flight.FlightDescriptor.for_path("q"), options())
    chosen = site.client.get_flight_info(
        command(columns=["body"], states=["deferred"], **{"from": {"0": 1}, "to": {"0": 9}}),
        options(),
    )

    [whole], [part] = tickets(info), tickets(chosen)
    assert (whole["from"], whole["to"], whole["states"]) == (3, 4, ["active"])
    assert (part["from"], part["to"], part["states"]) == (1, 9, ["deferred"])
    assert chosen.schema.names == ["body"]
    result = site.client.get_schema(command(columns=["body"]), options())
    assert result.schema.names == ["body"]  # type: ignore[attr-defined]  # a result, no schema
    [stream] = [site.client.do_get(each.ticket, options()) for each in info.endpoints]
    assert stream.read_all().num_rows == 1


def test_a_ticket_is_of_one_entity_and_not_of_the_next_with_its_name(site: LaneSite) -> None:
    """P1: what is deleted and made again has the same numbers, of other messages."""
    site.send(b"a")

    info = site.client.get_flight_info(flight.FlightDescriptor.for_path("q"), options())
    [ticket] = tickets(info)

    incarnation = ticket["incarnation"]
    assert site.read(**{"from": 1, "to": 2}, incarnation=incarnation).num_rows == 1
    with pytest.raises(flight.FlightError, match=r"^not-found: "):
        site.read(**{"from": 1, "to": 2}, incarnation="another")
    with pytest.raises(flight.FlightError, match=r"^invalid-argument: "):
        site.read(**{"from": 1, "to": 2}, incarnation=7)


def test_describing_tells_where_fragments_begin_in_truth(site: LaneSite) -> None:
    """P1: clients divide what is there by it."""

    def first() -> object:
        fragments = site.act("describe")["fragments"]
        assert isinstance(fragments, list)
        return fragments[0]["first"]

    site.describe(4)
    empty = first()
    entries = site.pen.append([b"\x00\x53\x75\xa0\x01a"] * 3)
    site.pen.write(site.store)
    filled = first()
    site.pen.remove(without_payload(entries[:1]))
    site.pen.write(site.store)

    assert (empty, filled, first()) == (4, 1, 2)


def test_a_fragment_that_nobody_can_ask_is_no_empty_one(site: LaneSite) -> None:
    """P1: a table with a part missing would look whole."""
    site.describe(1, is_counted=False)

    with pytest.raises(flight.FlightUnavailableError, match=r"^unavailable: .*0"):
        site.client.get_flight_info(flight.FlightDescriptor.for_path("q"), options())
    assert site.client.get_flight_info(command(to={"0": 5}), options()).endpoints


def test_news_are_waited_for_by_the_bus_and_need_no_store(site: LaneSite) -> None:
    """P1."""
    site.describe(3)
    site.send(b"a", b"b")
    plain = site.bus.answers["entities/q/bulk"]
    assert isinstance(plain, dict)
    waiting = "entities/q/bulk?known=s1&wait_ms=500"
    site.bus.answers[waiting] = {**plain, "stamp": "s1"}

    site.stop()
    site.path.rename(site.path.with_name("away.db"))
    assert site.act("describe", known="s1", wait_ms=500)["stamp"] == "s1"

    assert site.bus.asked[-1][0] == waiting
    with pytest.raises(flight.FlightServerError, match=r"^invalid-argument: .*'known'"):
        site.act("describe", known=1)


def test_actions_are_passed_on_with_the_token_of_the_client(site: LaneSite) -> None:
    """P2."""
    site.bus.answers["entities/q/readers/open"] = {"fragments": []}
    site.bus.answers["entities/q/readers"] = {"readers": []}

    opened = site.act("open", reader="r", owner="me")
    listed = site.act("list")

    assert (opened, listed) == ({"fragments": []}, {"readers": []})
    assert site.bus.posted == [{"reader": "r", "owner": "me"}]
    assert {token for _, token in site.bus.asked} == {TOKEN}
    kinds = {action.type for action in site.client.list_actions(options())}
    assert {"describe", "open", "claim", "complete", "drop"} <= kinds


REFUSALS: list[tuple[int, str, type[flight.FlightError]]] = [
    (401, "unauthorized", flight.FlightUnauthenticatedError),
    (403, "forbidden", flight.FlightUnauthorizedError),
    (404, "not-found", flight.FlightServerError),
    (409, "reader-in-use", flight.FlightServerError),
    (503, "unavailable", flight.FlightUnavailableError),
    (0, "unavailable", flight.FlightUnavailableError),
]


@pytest.mark.parametrize(("status", "code", "kind"), REFUSALS)
def test_what_the_bus_refuses_begins_with_its_code(
    site: LaneSite, status: int, code: str, kind: type[flight.FlightError]
) -> None:
    """P1."""
    site.bus.answers["entities/q/bulk"] = BusError(status, code, "No.")

    for ask in (
        lambda: site.act("describe"),
        lambda: site.client.get_flight_info(command(), options()),
        lambda: site.read(**{"from": 1, "to": 2}),
    ):
        with pytest.raises(kind, match=f"^{code}: No"):
            ask()


@pytest.mark.parametrize(
    "ask",
    [
        lambda site: site.act("dance"),
        lambda site: site.act("describe", entity=5),
        lambda site: site.act("open", reader="x" * ACTION_BYTES_MAX),
        lambda site: site.read(fragment=1, **{"from": 1, "to": 2}),
        lambda site: site.read(**{"from": 1}),
        lambda site: site.read(reader="r"),
        lambda site: site.client.get_flight_info(command(columns=["x"]), options()),
    ],
)
def test_what_is_asked_wrongly_is_an_invalid_argument(
    site: LaneSite, ask: Callable[[LaneSite], object]
) -> None:
    with pytest.raises(flight.FlightServerError, match=r"^invalid-argument: "):
        ask(site)


def test_a_bug_of_ours_shows_clients_nothing_of_the_inside(site: LaneSite) -> None:
    site.bus.answers["entities/q/bulk"] = {"entity_id": "seven"}

    with pytest.raises(flight.FlightInternalError, match=r"^internal: ") as told:
        site.act("describe")
    assert "Traceback" not in str(told.value)


@pytest.mark.parametrize("spoil", ["gone", "other"])
def test_a_store_that_cannot_be_read_is_unavailable(
    site: LaneSite, spoil: str, tmp_path: Path
) -> None:
    """P1: whoever restores it finds it read again, without a word of where it is."""
    site.stop()
    if spoil == "gone":
        site.path.rename(tmp_path / "elsewhere.db")
    else:
        site.path.write_bytes(b"no database at all" * 1_000)

    with pytest.raises(flight.FlightUnavailableError, match=r"^unavailable: ") as told:
        site.read(**{"from": 1, "to": 2})
    assert str(tmp_path) not in str(told.value)


def flip(path: Path) -> None:
    """Spoil one byte of the payloads of the only chunk."""
    with Scalpel(path) as scalpel:
        [(body,)] = scalpel.execute("SELECT body FROM chunk")
        assert isinstance(body, bytes)
        spoiled = bytearray(body)
        spoiled[4] ^= 1
        scalpel.execute("UPDATE chunk SET body = ?", bytes(spoiled))


def test_a_damaged_message_of_a_claim_is_left_out_and_set_aside(site: LaneSite) -> None:
    """P2: completing the claim must not remove the evidence."""
    site.send(b"a", b"b", b"c")
    flip(site.path)
    site.bus.answers["entities/q/readers/runs"] = site.claims([[1, 2]])
    site.bus.answers["entities/q/readers/check"] = {"count": 1}

    table = site.read(reader="r", reader_id="0a", ordinals=[1, 1])

    assert table.to_pydict() == {"sequence_number": [2], "body": [b"b"]}
    ordinals = {"first_ordinal": 1, "last_ordinal": 1}
    asked = {"reader": "r", "reader_id": "0a", "fragment": 0, **ordinals}
    assert site.bus.posted == [asked, asked]
    assert site.bus.asked[-1] == ("entities/q/readers/check", TOKEN)


def test_claims_are_read_in_the_order_of_their_ordinals(site: LaneSite) -> None:
    """P2."""
    site.send(*(b"%d" % number for number in range(1, 10)))
    site.bus.answers["entities/q/readers/runs"] = site.claims([[5, 6], [8, 8]], [[1, 2]], [])

    table = site.read(reader="r", ordinals=[1, 3])

    assert table["sequence_number"].to_pylist() == [5, 6, 8, 1, 2]


@pytest.mark.parametrize("then", ["lost", "same"])
def test_a_claim_that_is_taken_away_while_it_is_read_is_an_error(site: LaneSite, then: str) -> None:
    """P2: a shorter stream would be taken for the whole claim."""
    site.send(b"a", b"b")
    told = [site.claims([[1, 3]])]

    def runs() -> Document:
        if told or then == "same":
            return told.pop() if told else site.claims([[1, 3]])
        raise BusError(410, "claim-lost", "Claim 1 was lost.")

    site.bus.answers["entities/q/readers/runs"] = runs
    expected = "^claim-lost: " if then == "lost" else "^unavailable: .*1"
    with pytest.raises(flight.FlightError, match=expected):
        site.read(reader="r", ordinals=[1, 1])


@pytest.mark.parametrize("told", [[], [[[1, 1]]]], ids=["none", "one of two"])
def test_claims_that_the_bus_does_not_tell_of_are_not_empty(
    site: LaneSite, told: list[list[list[int]]]
) -> None:
    """P2: rows that are not read would be taken for completed."""
    site.send(b"a", b"b", b"c")
    site.bus.answers["entities/q/readers/runs"] = site.claims(*told)

    with pytest.raises(flight.FlightUnavailableError, match=r"^unavailable: .*1"):
        site.read(reader="r", ordinals=[1, 2])


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[LaneSite]:
    """Room for one stream, and far more to read than a connection holds."""
    site = LaneSite(tmp_path, streams_max=1)
    for _ in range(30):
        site.send(*[LARGE] * 20)
    site.describe(601)
    yield site
    site.close()


def test_who_does_not_read_on_holds_a_place_and_neither_memory_nor_the_store(
    narrow: LaneSite,
) -> None:
    """P1: the log of a store cannot be cut while somebody reads it."""
    stalled = narrow.get(**{"from": 1, "to": 601})
    stalled.read_chunk()

    with pytest.raises(flight.FlightUnavailableError, match=r"^server-busy: .*1"):
        narrow.read(**{"from": 1, "to": 601})
    with sqlite3.connect(narrow.path, timeout=20) as other:
        [(is_busy, _, _)] = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    other.close()
    rest = stalled.read_all().num_rows

    assert is_busy == 0
    assert 0 < rest < 600


def test_a_stream_that_is_cancelled_makes_room(narrow: LaneSite) -> None:
    stalled = narrow.get(**{"from": 1, "to": 601})
    stalled.read_chunk()
    stalled.cancel()
    narrow.client.close()
    narrow.client = narrow.connect()

    for _ in range(1_000):
        try:
            table = narrow.read(columns=["sequence_number"], **{"from": 1, "to": 601})
            break
        except flight.FlightUnavailableError:
            continue

    assert table.num_rows == 600


@pytest.mark.parametrize("bytes_max", [states.STATES_BYTES_MAX, 10])
def test_a_stream_has_the_states_of_sessions_if_asked(
    site: LaneSite, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    """P2: the state is that of the row's session, whether the id is read or not."""
    monkeypatch.setattr(states, "STATES_BYTES_MAX", bytes_max)
    names = ["Red", "blue", "red", None, "RED"]
    payloads = [
        encode_data_message(b"%d" % number, session_id=name) for number, name in enumerate(names)
    ]
    site.pen.append(payloads)
    site.pen.set_state("red", b"a state")
    site.pen.write(site.store)
    site.bus.answers["entities/q/readers/runs"] = site.claims([[1, 5]])
    ticket = {"reader": "r", "ordinals": [1, 1]}

    whole = site.read(**ticket, columns=["session_state", "session_id", "body"])
    alone = site.read(**ticket, columns=["session_state"])
    browsed = site.read(**{"from": 1, "to": 6}, columns=["body", "session_state"])

    found = [b"a state", None, b"a state", None, b"a state"]
    assert whole.column_names == ["session_state", "session_id", "body"]
    assert whole["session_id"].to_pylist() == names
    for table in (whole, alone, browsed):
        assert table["session_state"].to_pylist() == found
    assert whole["session_state"].num_chunks == (1 if bytes_max > 100 else 3)
