"""Who goes when all together have not read too much (docs/adr/0039)."""

from shardbus.gateway.admission.holdings import PROGRESS_BYTES
from shardbus.gateway.admission.unread import Unread

MB = 1024 * 1024


class Connection:
    def __init__(self) -> None:
        self.size_bytes = 0
        self.is_ended = False

    def unread_bytes(self) -> int:
        return self.size_bytes

    def end_unread(self) -> None:
        self.is_ended = True


class Crowd:
    def __init__(self, count: int, bytes_max: int = 10 * MB) -> None:
        self.unread = Unread(bytes_max)
        self.all = [Connection() for _ in range(count)]

    def note(self, number: int, size_bytes: int, now_ms: int) -> None:
        self.all[number].size_bytes = size_bytes
        self.unread.note(self.all[number], size_bytes, now_ms)

    def ended(self) -> list[int]:
        return [number for number, each in enumerate(self.all) if each.is_ended]


def test_what_is_read_does_not_count() -> None:
    crowd = Crowd(1)

    for _ in range(100):
        crowd.note(0, MB, 0)
        crowd.note(0, 0, 1)

    assert crowd.unread.total_bytes == 0 and crowd.ended() == []


def test_a_connection_that_is_over_has_nothing_unread() -> None:
    crowd = Crowd(1)
    crowd.note(0, MB, 0)

    crowd.unread.forget(crowd.all[0])
    crowd.unread.forget(crowd.all[0])

    assert crowd.unread.total_bytes == 0


def test_the_one_that_is_behind_the_most_for_the_longest_time_goes() -> None:
    crowd = Crowd(4)
    crowd.note(0, MB, 0)
    crowd.note(1, 4 * MB, 0)
    crowd.note(2, 4 * MB, 50)

    crowd.note(3, 2 * MB, 100)

    assert crowd.ended() == [1]
    assert crowd.unread.total_bytes == 7 * MB


def test_what_was_read_without_a_word_is_seen_before_anybody_goes() -> None:
    crowd = Crowd(2)
    crowd.note(0, 8 * MB, 0)
    crowd.all[0].size_bytes = MB

    crowd.note(1, 8 * MB, 100)

    assert crowd.ended() == []
    assert crowd.unread.total_bytes == 9 * MB


def test_whoever_reads_a_large_message_stays() -> None:
    """It has more than all the others, and has had it for longer."""
    crowd = Crowd(4)
    crowd.note(0, 8 * MB, 0)
    crowd.note(1, MB, 1_000)
    crowd.note(2, MB, 2_000)
    crowd.all[0].size_bytes -= PROGRESS_BYTES

    crowd.note(3, MB, 3_000)

    assert crowd.ended() == [1, 2]


def test_getting_more_is_not_reading() -> None:
    crowd = Crowd(3)
    crowd.note(0, MB, 0)
    crowd.note(0, 4 * MB, 5_000)
    crowd.note(1, 4 * MB + MB // 2, 4_000)

    crowd.note(2, 3 * MB, 5_001)

    assert crowd.ended() == [0]
