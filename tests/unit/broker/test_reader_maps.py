"""Readers of the data pipeline and queues with another map (P6, P2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.core.errors import READER_NOT_FOUND
from shardbus.core.message import MAIN_LINE, Message
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
    with unavailability("2 older"):
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


def test_a_reader_that_never_came_to_a_map_in_between_is_not_lost(town: Town) -> None:
    """P6, P2: nothing was left there when the next map came."""
    readers = town.handle(town.near).readers
    town.run(readers.open(MAIN_LINE, NAME, OWNER, ID))
    town.change(3)
    town.change(2)

    kept = town.run(readers.keep(MAIN_LINE, NAME, OWNER))

    assert (sorted(kept.found), kept.missing) == ([0], {})


# Where sessions are required.


class Reader:
    """A reader of sessions, which reads claims and completes them."""

    def __init__(self, town: TalkTown, name: str = NAME) -> None:
        self._town = town
        self._name = name
        self._ordinals: dict[int, int] = {}
        self.open()

    def open(self) -> None:
        town = self._town
        town.run(town.handle(TALK).readers.open(MAIN_LINE, self._name, OWNER, ID))

    def claim(self, number: int) -> list[int]:
        """The messages that wait for it in a fragment."""
        readers, ordinal = self._town.handle(TALK).readers, self._ordinals.get(number, 0) + 1
        made = self._town.run(readers.claim(number, MAIN_LINE, self._name, OWNER, ordinal))
        if made.claim is None:
            return []
        self._ordinals[number] = ordinal
        entries = self._town.run(readers.read(number, MAIN_LINE, self._name, ordinal))
        return [int(entry.payload or b"") for entry in entries]

    def complete(self) -> None:
        readers = self._town.handle(TALK).readers
        self._town.run(readers.complete(MAIN_LINE, self._name, OWNER, self._ordinals))

    def drop(self) -> None:
        self._town.run(self._town.handle(TALK).readers.drop(MAIN_LINE, self._name))
        self._ordinals.clear()


@pytest.fixture
def talk() -> Iterator[TalkTown]:
    town = TalkTown()
    town.make()
    yield town
    town.close()


def schedule(town: TalkTown, session_id: str, mark: int, in_ms: int) -> None:
    at_ms = town.clock.now_ms() + in_ms
    message = Message(b"%d" % mark, session_id=session_id, scheduled_at_ms=at_ms)
    town.run(town.handle(TALK).operations.schedule([message]))


def test_a_reader_of_sessions_goes_on_after_a_repartition(talk: TalkTown) -> None:
    """P6, P2: from the older messages of each session to the newer ones, and holds them."""
    reader = Reader(talk)
    talk.put("s", 1, 2)
    assert reader.claim(0) == [1, 2]
    talk.change(2)
    talk.put("s", 3)
    reader.open()
    with unavailability("2 older"):
        reader.claim(present_of(talk, "s"))
    assert talk.refused("s")

    reader.complete()

    assert reader.claim(present_of(talk, "s")) == [3]
    assert talk.refused("s")
    reader.complete()
    talk.put("s", 4)
    owner, _ = talk.serve(talk.held("S"))
    assert owner.marks() == [4]


def present_of(town: TalkTown, session_id: str) -> int:
    router = town.handle(TALK).router
    return router.numbers[router.path_of_key(session_id)[-1]]


def test_a_session_that_a_receiver_held_before_is_not_claimed_before_it_is_released(
    talk: TalkTown,
) -> None:
    """P6, P2: it may set the state where it is, and the newer messages are not for two."""
    held = talk.held("s")
    talk.change(2)
    talk.put("s", 1)
    reader = Reader(talk)
    with unavailability("1 sessions", NAME):
        reader.claim(present_of(talk, "s"))

    talk.set_state(held, b"kept")
    talk.let_go(held)

    assert reader.claim(present_of(talk, "s")) == [1]


def test_one_reader_goes_on_from_fragments_that_may_still_get_messages(talk: TalkTown) -> None:
    """P6, P2: otherwise another one could claim a late message of a session that this one holds."""
    lake, pond = Reader(talk), Reader(talk, "pond")
    schedule(talk, "s", 1, in_ms=60_000)
    talk.change(2)
    talk.put("s", 2)
    number = present_of(talk, "s")
    lake.open()
    pond.open()
    assert lake.claim(number) == [2]
    with unavailability("'lake' is ahead"):
        pond.claim(number)
    talk.pass_s(61)
    assert pond.claim(0) == []
    assert talk.refused("s")
    talk.restart()
    assert pond.claim(0) == []

    lake.drop()

    assert pond.claim(0) == [1]
    with unavailability("1 older"):
        pond.claim(number)
    pond.complete()
    assert pond.claim(number) == [2]


def test_a_reader_is_dropped_in_former_fragments_last(talk: TalkTown) -> None:
    """P6, P2: as long as one cannot be reached it may hold sessions there, and others wait."""
    lake, pond = Reader(talk), Reader(talk, "pond")
    schedule(talk, "s", 1, in_ms=60_000)
    talk.change(8)
    talk.put("s", 2)
    number = present_of(talk, "s")
    lake.open()
    pond.open()
    assert lake.claim(number) == [2]
    talk.pass_s(61)
    homes = {home.number: home for home in talk.namespace.queue(TALK).fragments}
    away = talk.disks[homes[number].broker_index]
    assert homes[0].broker_index != homes[number].broker_index

    away.is_unreadable = True
    talk.restart()
    away.is_unreadable = True
    readers = talk.handle(TALK).readers
    dropped = talk.run(readers.drop(MAIN_LINE, NAME))

    assert {0, number} <= set(dropped.missing)
    assert pond.claim(0) == []
