"""Places for streams: who is silent gives way, and who waits for us does not."""

from __future__ import annotations

import threading

import pytest

from shardbus.gateway.flight.server.bus import BusError
from shardbus.gateway.flight.server.peers import LaneConnection
from shardbus.gateway.flight.server.places import SILENT_S_MAX, YIELDS_AFTER_S, LanePlaces, overlong


class Hall:
    """Two places, a clock that is set by hand, and who was hung up on."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.gone: list[str] = []
        self.places = LanePlaces(
            self.hang_up, streams_max=2, waits_s_max=0.0, monotonic_s=lambda: self.now_s
        )

    def hang_up(self, peer: str) -> bool:
        self.gone.append(peer)
        return True


def test_all_places_are_taken_by_who_is_at_work() -> None:
    hall = Hall()
    with (
        hall.places.stream("a") as first,
        hall.places.stream("b") as second,
        hall.places.stream("c") as third,
    ):
        hall.places.take(first)
        hall.places.take(first)
        hall.places.take(second)
        hall.now_s += 10 * SILENT_S_MAX
        with pytest.raises(BusError, match=r"^server-busy: .*2"):
            hall.places.take(third)
    assert hall.gone == []


def test_a_stream_that_ends_gives_back_its_place() -> None:
    hall = Hall()
    for _ in range(5):
        with hall.places.stream("a") as first, hall.places.stream("b") as second:
            hall.places.take(first)
            hall.places.take(second)


def test_who_comes_when_all_places_are_taken_waits_for_its_turn() -> None:
    """A sink has more tasks than there are places: they were refused, and the job failed."""
    places = LanePlaces(lambda _peer: False, streams_max=2, waits_s_max=60.0)
    served: list[int] = []

    def work(number: int) -> None:
        with places.stream(str(number)) as stream:
            places.take(stream)
            assert places.taken <= 2
            served.append(number)

    with places.stream("a") as first, places.stream("b") as second:
        places.take(first)
        places.take(second)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        while places.count() < len(threads) + 2:
            threading.Event().wait(0.001)
        assert served == []
    for thread in threads:
        thread.join(30)

    assert sorted(served) == list(range(40))
    assert places.taken == 0


def test_who_is_silent_gives_way_to_who_is_not() -> None:
    hall = Hall()
    is_taken = threading.Event()

    def newcomer() -> None:
        with hall.places.stream("new") as stream:
            hall.places.take(stream)
            is_taken.set()

    with hall.places.stream("busy") as busy:
        hall.places.take(busy)
        with hall.places.stream("silent") as silent:
            hall.places.take(silent)
            with hall.places.client_turn(silent):
                hall.now_s += YIELDS_AFTER_S + 1
                thread = threading.Thread(target=newcomer)
                thread.start()
                while not hall.gone:
                    pass
                assert not is_taken.is_set()
        # What hanging up does to the stream: it ends, and its place is free.
        assert is_taken.wait(10)
        thread.join()
    assert hall.gone == ["silent"]


def test_who_was_silent_for_a_moment_does_not_give_way() -> None:
    hall = Hall()
    with (
        hall.places.stream("a") as first,
        hall.places.stream("b") as second,
        hall.places.stream("c") as third,
    ):
        hall.places.take(first)
        hall.places.take(second)
        with hall.places.client_turn(first), hall.places.client_turn(second):
            hall.now_s += YIELDS_AFTER_S - 1
            with pytest.raises(BusError, match=r"^server-busy: "):
                hall.places.take(third)
    assert hall.gone == []


def test_a_client_that_takes_too_long_is_hung_up_on_once() -> None:
    hall = Hall()
    with (
        hall.places.stream("slow") as slow,
        hall.places.stream("new") as new,
        hall.places.stream("ours"),
    ):
        with hall.places.client_turn(slow), hall.places.client_turn(new, 60):
            assert hall.places.busy_peers() == {"ours"}
            hall.now_s += 61
            hall.places.end_silent()
            assert hall.gone == ["new"]
            hall.now_s += SILENT_S_MAX
            hall.places.end_silent()
            hall.places.end_silent()
        hall.now_s += 10 * SILENT_S_MAX
        hall.places.end_silent()

    assert hall.gone == ["new", "slow"]


def test_connections_end_when_they_are_silent_and_the_longest_silent_when_they_are_many() -> None:
    known = [
        LaneConnection("a", 5),
        LaneConnection("b", 700_000),
        LaneConnection("c", 90),
        LaneConnection("d", 0),
    ]

    assert overlong(known) == ["b"]
    assert overlong(known, connections_max=2) == ["b", "c"]
    assert overlong(known, connections_max=0) == ["b", "c", "a"]
    assert overlong(known[:1]) == []
