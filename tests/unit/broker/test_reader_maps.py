"""Readers of the data pipeline and queues with another map (P6, P2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.core.errors import NOT_ALLOWED, READER_NOT_FOUND
from shardbus.core.message import MAIN_LINE
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.test_maps import Town
from tests.unit.broker.test_session_maps import TALK
from tests.unit.broker.test_session_maps import Town as TalkTown

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
        found += claimed(town, number)
        town.run(readers.complete(MAIN_LINE, NAME, OWNER, {number: 1}))
    assert sorted(found) == list(range(20))


def claimed(town: Town, number: int) -> list[int]:
    """What the first claim of a fragment has."""
    readers = town.handle(town.near).readers
    town.run(readers.claim(number, MAIN_LINE, NAME, OWNER, 1))
    entries = town.run(readers.read(number, MAIN_LINE, NAME, 1))
    return [int(entry.payload or b"") for entry in entries]


def test_a_reader_goes_on_with_the_former_fragment_and_then_with_the_present_ones(
    town: Town,
) -> None:
    """P6, P2: what it has claimed of the former one counts until it is completed."""
    readers = town.handle(town.near).readers
    town.put(*range(5))
    town.run(readers.open(MAIN_LINE, NAME, OWNER, ID))
    town.change(3)
    town.put(*range(5, 20))
    # The new fragments do not know it yet.
    kept = town.run(readers.keep(MAIN_LINE, NAME, OWNER))
    assert (sorted(kept.found), kept.missing) == ([0], {})
    town.run(readers.open(MAIN_LINE, NAME, OWNER, ID))
    with unavailability("5 older"):
        claimed(town, 1)
    assert claimed(town, 0) == list(range(5))
    for number in (1, 2, 3):
        with unavailability("5 older"):
            claimed(town, number)

    town.run(readers.complete(MAIN_LINE, NAME, OWNER, {0: 1}))

    found = [mark for number in (1, 2, 3) for mark in claimed(town, number)]
    assert sorted(found) == list(range(5, 20))
    # Another map begins anew.
    town.run(readers.complete(MAIN_LINE, NAME, OWNER, {1: 1, 2: 1, 3: 1}))
    town.put(*range(20, 25))
    town.change(1)
    town.put(30)
    town.run(readers.open(MAIN_LINE, NAME, OWNER, ID))
    with unavailability("5 older"):
        claimed(town, 4)


def test_a_former_fragment_that_is_away_is_waited_for(town: Town) -> None:
    """P6, P2: it may have older messages."""
    town.put(0)
    town.change(3)
    town.put(*range(1, 9))
    town.restart()
    town.disk_of(town.near).is_unreadable = True
    readers = town.handle(town.near).readers
    town.run(readers.open(MAIN_LINE, NAME, OWNER, ID))
    homes = town.entity().fragments
    [number, *_] = [home.number for home in homes if home.broker_index != homes[0].broker_index]

    with unavailability("former"):
        claimed(town, number)


def test_a_reader_that_was_dropped_everywhere_is_told_so(town: Town) -> None:
    """P2: as on a queue with one map."""
    readers = town.handle(town.near).readers
    town.change(3)
    town.run(readers.open(MAIN_LINE, NAME, OWNER, ID))
    town.run(readers.drop(MAIN_LINE, NAME))

    for work in (readers.keep, readers.release):
        with refusal_of(READER_NOT_FOUND):
            town.run(work(MAIN_LINE, NAME, OWNER))


def test_readers_of_sessions_prevent_a_repartition() -> None:
    """P6, P2: they would have to know of sessions in several fragments."""
    town = TalkTown()
    town.make()
    town.run(town.handle(TALK).readers.open(MAIN_LINE, NAME, OWNER, ID))

    with refusal_of(NOT_ALLOWED, TALK, "readers"):
        town.change(2)

    town.put("a", 1)
    town.close()
