"""Lifecycle records through the bulk lane: all of them, each once, or an error (P8)."""

from __future__ import annotations

import json
import sqlite3
from itertools import pairwise

import pyarrow.flight as flight
import pytest

from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.lifecycle.rows import DEAD_LETTER
from shardbus.core.message import Entry
from shardbus.gateway.flight.reading import recorded
from shardbus.gateway.flight.reading.schema import RECORD_COLUMNS
from tests.unit.gateway.flight.diary import AT_MS, Diary
from tests.unit.gateway.flight.lane_site import LaneSite, options


@pytest.fixture
def diary(site: LaneSite) -> Diary:
    return Diary(site)


def read(site: LaneSite, first: int, stop: int) -> list[tuple[object, object]]:
    found = site.read(
        table="lifecycle", columns=["block", "sequence_number"], **{"from": first, "to": stop}
    )
    return list(zip(*found.to_pydict().values(), strict=True))


def test_a_stream_gives_the_records_of_a_range_of_blocks(site: LaneSite, diary: Diary) -> None:
    """P8"""
    diary.gone(1, 2)
    diary.gone(3)
    diary.gone(4, 5)

    assert read(site, 2, 4) == [(2, 3), (3, 4), (3, 5)]
    assert read(site, 0, 2) == [(1, 1), (1, 2)]
    assert read(site, 4, 4) == []


def test_a_record_has_what_the_fragment_noted(site: LaneSite, diary: Diary) -> None:
    """P8: and null for what it does not know."""
    journal = diary.journal
    entry = Entry(9, None, 70, enqueued_at_ms=AT_MS - 500, session_id="s\ud800")
    journal.locked([entry], "worker", 0)
    journal.at_ms += 20
    journal.moved(DEAD_LETTER, [entry], "bad")
    journal.dropped(["k"])
    diary.store()
    diary.gone(4)

    found = site.read(table="lifecycle", columns=list(RECORD_COLUMNS), **{"from": 0, "to": 3})

    assert {name: str(kind) for name, kind in RECORD_COLUMNS.items()} == {
        field.name: str(field.type) for field in found.schema
    }
    rows = found.to_pylist()
    assert [row["event"] for row in rows] == ["lock", "dead_letter", "duplicate", "consume"]
    assert [row["row"] for row in rows] == [0, 1, 2, 0]
    assert [row["block"] for row in rows] == [1, 1, 1, 2]
    assert [row["sequence_number"] for row in rows] == [9, 9, None, 4]
    assert [row["age_ms"] for row in rows] == [500, 520, None, None]
    assert [row["held_ms"] for row in rows] == [None, 20, None, None]
    assert [row["key"] for row in rows] == ["s?", "s?", "k", None]
    assert [row["receiver"] for row in rows] == ["worker", "worker", None, None]
    assert [row["detail"] for row in rows] == [None, "bad", None, None]
    assert rows[1]["event_time"].timestamp() * 1000 == AT_MS + 20


def test_many_blocks_come_in_batches_of_whole_blocks(
    site: LaneSite, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8: a reader continues after the last block that it has."""
    monkeypatch.setattr(recorded, "BATCH_ROWS", 5)
    for at in range(0, 900, 3):
        diary.gone(at + 1, at + 2, at + 3)

    stream = site.get(table="lifecycle", columns=["block"], **{"from": 1, "to": 301})
    table = stream.read_all()
    batches: list[list[int]] = [batch.to_pydict()["block"] for batch in table.to_batches()]

    assert [block for batch in batches for block in batch] == [
        block for block in range(1, 301) for _ in range(3)
    ]
    ends = [(before[-1], after[0]) for before, after in pairwise(batches)]
    assert len(ends) > 100 and all(before < after for before, after in ends)


def test_a_reader_that_is_too_slow_is_told_so(site: LaneSite, diary: Diary) -> None:
    """P8: dropped blocks are never mistaken for numbers that were not used."""
    diary.outgrow(1, 2, 3, 4)
    first = diary.journal.first
    assert first > 1

    with pytest.raises(flight.FlightServerError, match=r"^records-dropped: "):
        read(site, 1, 5)

    assert read(site, 0, 5) == [(block, block) for block in range(first, 5)]
    assert read(site, first, 5) == read(site, 0, 5)


def test_numbers_that_were_never_used_are_no_loss(site: LaneSite, diary: Diary) -> None:
    """P8: a fragment that is loaded again skips the numbers that it had reserved."""
    diary.gone(1)
    diary.journal.next += 1_000
    diary.gone(2)

    assert read(site, 1, 2_000) == [(1, 1), (1_002, 2)]


def test_a_damaged_block_is_left_out(site: LaneSite, diary: Diary) -> None:
    diary.gone(1)
    # Too far behind for the same piece.
    diary.journal.next += 1_000
    diary.gone(2)
    site.stop()
    with sqlite3.connect(site.path) as database:
        database.execute(
            "UPDATE stage SET data = x'00' WHERE stage = ? AND piece = 1", (LIFECYCLE_STAGE,)
        )
    database.close()
    assert read(site, 1, 2_000) == [(1_002, 2)]


def test_a_flight_has_a_ticket_for_each_fragment_and_the_columns_of_records(
    site: LaneSite, diary: Diary
) -> None:
    """P8"""
    diary.gone(1)
    asked = json.dumps({"entity": "q", "table": "lifecycle"}).encode()
    command = flight.FlightDescriptor.for_command(asked)

    info = site.client.get_flight_info(command, options())
    [ticket] = [json.loads(each.ticket.ticket) for each in info.endpoints]

    assert info.schema.names == list(RECORD_COLUMNS)
    assert (ticket["from"], ticket["to"], ticket["table"]) == (0, 2, "lifecycle")
    [stream] = [site.client.do_get(each.ticket, options()) for each in info.endpoints]
    assert stream.read_all().num_rows == 1
    result = site.client.get_schema(command, options())
    assert result.schema.names == info.schema.names  # type: ignore[attr-defined]  # a result


def test_the_description_of_records_is_that_of_the_bus(site: LaneSite, diary: Diary) -> None:
    diary.gone(1)

    parts = site.act("describe", table="lifecycle")["fragments"]

    assert isinstance(parts, list)
    assert [(part["first"], part["next"]) for part in parts] == [(1, 2)]


def test_a_fragment_that_cannot_be_asked_is_not_taken_for_an_empty_one(
    site: LaneSite, diary: Diary
) -> None:
    diary.told(is_counted=False)
    asked = json.dumps({"entity": "q", "table": "lifecycle"}).encode()

    with pytest.raises(flight.FlightUnavailableError):
        site.client.get_flight_info(flight.FlightDescriptor.for_command(asked), options())


@pytest.mark.parametrize(
    "ticket",
    [
        {"table": "events"},
        {"table": 7},
        {"table": "lifecycle", "states": ["active"]},
        {"table": "lifecycle", "reader": "r", "ordinals": [1, 1]},
        {"table": "lifecycle", "columns": ["body"]},
    ],
)
def test_what_records_do_not_have_is_refused(
    site: LaneSite, diary: Diary, ticket: dict[str, object]
) -> None:
    asked = {"columns": None, "from": 0, "to": 1, **ticket}
    with pytest.raises(flight.FlightServerError, match=r"^invalid-argument: "):
        site.read(**asked)
