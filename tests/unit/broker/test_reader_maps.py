"""Readers of the data pipeline and queues with another map (P6, P2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.core.message import MAIN_LINE
from tests.unit.broker.test_maps import Town

OWNER, ID = b"o" * 16, b"i" * 16
NAME = "lake"


@pytest.fixture
def town() -> Iterator[Town]:
    town = Town()
    yield town
    town.close()


def test_a_reader_that_begins_after_a_repartition_claims_of_all_fragments(town: Town) -> None:
    """P6, P2: also in the gateway that was there before."""
    town.put(*range(5))
    readers = town.handle(town.near).readers
    town.change(3)
    town.put(*range(5, 20))

    opened = town.run(readers.open(MAIN_LINE, NAME, OWNER, ID))

    assert sorted(opened.found) == sorted(readers.numbers()) == [0, 1, 2, 3]
    found: list[int] = []
    for number in readers.numbers():
        town.run(readers.claim(number, MAIN_LINE, NAME, OWNER, 1))
        entries = town.run(readers.read(number, MAIN_LINE, NAME, 1))
        found += [int(entry.payload or b"") for entry in entries]
    assert sorted(found) == list(range(20))
