"""What is put goes to the bus in pieces that it takes (P3)."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from shardbus.core.namespace.placement import even_hash_starts, fragment_at, hash_point
from shardbus.gateway.flight.server.bus import BusError, Document
from shardbus.gateway.flight.writing.pieces import PIECE_BYTES_MAX, PieceGatherer
from shardbus.gateway.flight.writing.putting import PIECES_MAX
from shardbus.gateway.flight.writing.sinking import drafts_of
from shardbus.message.sections import decode_message, split_batch
from tests.unit.gateway.flight.lane_site import LaneSite, options


def put(site: LaneSite, *batches: pa.RecordBatch, **members: object) -> int:
    command = json.dumps({"entity": "q", "stage": "s", **members}).encode()
    descriptor = flight.FlightDescriptor.for_command(command)
    writer, answers = site.client.do_put(descriptor, batches[0].schema, options())
    with writer:
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        answer = answers.read()  # type: ignore[attr-defined]  # the stubs say another reader
    rows: int = json.loads(answer.to_pybytes())["rows"]
    return rows


def bodies(*sizes: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([b"x" * size for size in sizes])], ["body"])


def size_of(payload: bytes) -> int:
    body = decode_message(payload).body
    assert isinstance(body, bytes)
    return len(body)


def test_rows_are_put_in_pieces_of_less_than_a_megabyte(site: LaneSite) -> None:
    site.bus.answers["entities/q/stages/s"] = {}

    rows = put(site, bodies(*[400_000] * 4), bodies(1, 2, 3))

    assert rows == 7
    assert all(len(piece) < 1024 * 1024 for piece in site.bus.put_bytes)
    sizes = [[size_of(payload) for payload in split_batch(piece)] for piece in site.bus.put_bytes]
    assert sizes == [[400_000, 400_000], [400_000, 400_000, 1, 2, 3]]


def test_past_messages_are_put_in_order_with_their_numbers(site: LaneSite) -> None:
    """P5: however many fragments there are, and keys or none."""
    site.bus.answers["entities/q/stages/s"] = {"fragments": 4}
    keys = [f"k{row}" if row % 3 else None for row in range(25)]
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(range(1, 26), pa.int64()),
            pa.array(keys),
            pa.array([b"%d" % row + bytes(100_000) for row in range(25)]),
        ],
        ["sequence_number", "partition_key", "body"],
    )

    assert put(site, rows, past=True) == 25

    numbers: list[int] = []
    contents: list[int] = []
    for piece in sorted(site.bus.put_bytes, key=lambda piece: piece[:8]):
        count = next(n for n in range(1, 26) if piece[8 * n : 8 * n + 2] == b"\x00\x53")
        numbers += [int.from_bytes(piece[8 * at : 8 * at + 8], "big") for at in range(count)]
        for payload in split_batch(piece[8 * count :]):
            body = decode_message(payload).body
            assert isinstance(body, bytes)
            contents.append(int(body.rstrip(b"\0")))
    assert numbers == list(range(1, 26))
    assert contents == list(range(25))


def test_past_messages_need_numbers(site: LaneSite) -> None:
    site.bus.answers["entities/q/stages/s"] = {}

    with pytest.raises(flight.FlightServerError):
        put(site, bodies(1), past=True)


def test_rows_are_known_again_however_they_are_divided_and_ordered() -> None:
    """P3: a null in one batch is the same as a column that another batch does not need."""
    ids = [f"id {row}" if row % 3 else None for row in range(12)]
    keys = ["k" if row > 6 else None for row in range(12)]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(ids), pa.array(keys, pa.string()), pa.array([b"%d" % row for row in range(12)])],
        ["message_id", "partition_key", "body"],
    )

    def digest_of(*batches: pa.RecordBatch) -> int:
        pieces = PieceGatherer()
        for batch in batches:
            pieces.take_in(drafts_of(batch))
        return int(pieces.digest(), 16)

    whole = digest_of(rows)
    turned = rows.take(pa.array(range(11, -1, -1)))
    divided = digest_of(rows.slice(0, 5)) + digest_of(rows.slice(5, 3), rows.slice(8))
    changed = digest_of(rows.slice(0, 11), bodies(2))

    assert digest_of(turned) == whole == divided % (1 << 128)
    assert digest_of(rows.slice(0, 11)) != whole != changed
    assert digest_of(bodies(1, 1)) != digest_of(bodies(2, 2))


def test_rows_are_placed_by_their_session_in_any_spelling_else_by_their_key() -> None:
    sessions = ["Order-1", "order-1", "ORDER-1", "Ünder", "ünder", "", None, None, None]
    keys = [None, None, None, None, None, "beside", "Order-1", "order-1", None]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(sessions), pa.array(keys)], ["session_id", "partition_key"]
    )
    starts = even_hash_starts(1_000)

    places = drafts_of(rows).places(starts)

    texts = ["order-1"] * 3 + ["ünder"] * 2 + ["", "Order-1", "order-1"]
    assert places == [*(fragment_at(hash_point(text), starts) for text in texts), -1]
    assert places[6] != places[7]


def test_rows_with_keys_are_put_by_fragment_once_the_bus_has_told_how_many_there_are(
    site: LaneSite,
) -> None:
    site.bus.answers["entities/q/stages/s"] = {"fragments": 2}
    keys = [f"k{row % 7}" for row in range(30)]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array([bytes(100_000)] * 30)], ["partition_key", "body"]
    )

    assert put(site, rows) == 30

    found = [
        {
            fragment_at(hash_point(str(decode_message(each).head.partition_key)), [0, 1 << 31])
            for each in split_batch(piece)
        }
        for piece in site.bus.put_bytes
    ]
    assert found[0] == {0, 1}
    assert sum(len(fragments) == 1 for fragments in found) >= 2


def test_a_stage_is_put_in_several_streams_one_behind_the_other(site: LaneSite) -> None:
    """Each says with which piece it begins; the same one again has the same pieces."""
    pieces: list[str] = []

    def note(path: str, token: str, content: bytes | memoryview) -> Document:
        pieces.append(path.partition("piece=")[2])
        return {}

    site.bus.put = note  # type: ignore[method-assign]  # what it was asked, whole
    for piece in (0, 3, 3):
        assert put(site, bodies(*[400_000] * 5), piece=piece) == 5

    assert pieces == ["0", "1", "2", "3", "4", "5", "3", "4", "5"]
    with pytest.raises(flight.FlightServerError, match=r"^invalid-argument: .*'piece'"):
        put(site, bodies(1), piece=-1)


def test_more_puts_than_places_take_turns(tmp_path: Path) -> None:
    """P3."""
    site = LaneSite(tmp_path, streams_max=2, waits_s_max=60.0)
    site.bus.answers["entities/q/stages/s"] = {}
    with ThreadPoolExecutor(40) as tasks:
        rows = list(tasks.map(lambda _task: put(site, bodies(1, 2)), range(80)))
    site.close()

    assert rows == [2] * 80


def test_what_is_under_way_has_arrived_when_a_refusal_is_told(site: LaneSite) -> None:
    """A stage that is discarded then does not come back."""
    first = threading.Event()
    arrived: list[int] = []

    def answer() -> Document:
        number = len(arrived)
        arrived.append(number)
        if number == 1:
            assert first.wait(10)
            raise BusError(403, "quota-exceeded", "It is full.")
        if number == PIECES_MAX:
            first.set()
        return {}

    site.bus.answers["entities/q/stages/s"] = answer

    with pytest.raises(flight.FlightUnauthorizedError, match=r"^quota-exceeded: "):
        put(site, bodies(*[900_000] * (PIECES_MAX + 1)))

    assert len(arrived) == PIECES_MAX + 1


def test_whatever_a_stage_is_called_it_is_that_stage(site: LaneSite) -> None:
    path = "entities/q/stages/a%2F..%3Fpiece%3D9%23%20b"
    site.bus.answers[path] = {}

    assert put(site, bodies(1), stage="a/..?piece=9# b") == 1

    assert [asked for asked, _ in site.bus.asked] == [path]


def test_nothing_is_put_of_what_cannot_be_a_message(site: LaneSite) -> None:
    odd = pa.RecordBatch.from_arrays([pa.array([1])], ["price"])
    with pytest.raises(flight.FlightServerError, match=r"^invalid-argument: .*'price'"):
        put(site, odd)
    with pytest.raises(flight.FlightServerError, match=r"^invalid-argument: "):
        put(site, bodies(1), stage="")
    assert site.bus.put_bytes == []


def test_what_the_bus_refuses_is_told(site: LaneSite) -> None:
    site.bus.answers["entities/q/stages/s"] = BusError(403, "quota-exceeded", "It is full.")

    with pytest.raises(flight.FlightUnauthorizedError, match=r"^quota-exceeded: "):
        put(site, bodies(1))


def test_publishing_and_discarding_are_asked_of_the_bus(site: LaneSite) -> None:
    site.bus.answers["entities/q/stages/publish"] = {"is_new": True, "count": 1}
    site.bus.answers["entities/q/stages/discard"] = {"stages": 1}

    published = site.act("publish", producer="p", batch=1, stages=[])
    discarded = site.act("discard", stages=["s"])

    assert (published, discarded) == ({"is_new": True, "count": 1}, {"stages": 1})
    assert site.bus.posted == [{"producer": "p", "batch": 1, "stages": []}, {"stages": ["s"]}]


def test_a_message_that_no_request_takes_is_put_in_parts(site: LaneSite) -> None:
    site.bus.answers["entities/q/stages/s"] = {"fragments": 1}

    assert put(site, bodies(1, 3 * PIECE_BYTES_MAX, 2)) == 3

    first, *parts, last = (content for _, content in sorted(site.bus.put_at.items()))
    assert len(parts) == 4
    assert all(len(part) <= PIECE_BYTES_MAX for part in parts)
    [large] = split_batch(b"".join(parts))
    payloads = [*split_batch(first), large, *split_batch(last)]
    assert [size_of(payload) for payload in payloads] == [1, 3 * PIECE_BYTES_MAX, 2]


def test_a_message_that_is_too_large_for_its_entity_is_named_by_its_row(site: LaneSite) -> None:
    small, large = bodies(1, 2), bodies(3, PIECE_BYTES_MAX)
    answers: list[Document | BusError] = [{}, BusError(413, "too-large", "The entity takes less.")]

    def answer() -> Document:
        told = answers.pop(0)
        if isinstance(told, BusError):
            raise told
        return told

    site.bus.answers["entities/q/stages/s"] = answer
    with pytest.raises(flight.FlightServerError, match=r"^too-large: .*Row 3"):
        put(site, small, large)
