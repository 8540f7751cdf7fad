"""Who lets go when all together hold too much that is not whole (docs/adr/0039)."""

from shardbus.gateway.admission.holdings import PROGRESS_BYTES, Holdings

MB = 1024 * 1024


class Connection:
    def __init__(self) -> None:
        self.is_ended = False

    def end_holding(self) -> None:
        self.is_ended = True


def ended(connections: list[Connection]) -> list[int]:
    return [number for number, each in enumerate(connections) if each.is_ended]


def test_what_is_finished_is_not_held() -> None:
    holdings, one = Holdings(10 * MB), Connection()

    for _ in range(100):
        holdings.note(one, MB, 0)
        holdings.note(one, 0, 1)

    assert holdings.total_bytes == 0 and not one.is_ended


def test_a_connection_that_is_over_holds_nothing() -> None:
    holdings, one = Holdings(10 * MB), Connection()
    holdings.note(one, MB, 0)

    holdings.forget(one)
    holdings.forget(one)

    assert holdings.total_bytes == 0


def test_the_one_that_holds_the_most_for_the_longest_time_goes() -> None:
    holdings = Holdings(10 * MB)
    crowd = [Connection() for _ in range(4)]
    holdings.note(crowd[0], MB, 0)
    holdings.note(crowd[1], 4 * MB, 0)
    holdings.note(crowd[2], 4 * MB, 50)

    holdings.note(crowd[3], 2 * MB, 100)

    assert ended(crowd) == [1]
    assert holdings.total_bytes == 7 * MB


def test_whoever_is_sending_gets_through_although_others_only_hold() -> None:
    """Each of the others has less than the large message that comes in beside them."""
    holdings = Holdings(100 * MB)
    honest = Connection()
    crowd = [Connection() for _ in range(1_000)]

    for step in range(1, 400):
        now_ms = step * 10
        holdings.note(honest, step * 2 * PROGRESS_BYTES, now_ms)
        holdings.note(crowd[step], 2 * MB, now_ms)
        # They send a byte now and then, so as not to look idle.
        for other in crowd[max(1, step - 40) : step]:
            if not other.is_ended:
                holdings.note(other, 2 * MB + step, now_ms)

    assert not honest.is_ended
    assert holdings.total_bytes <= holdings.bytes_max
    assert len(ended(crowd)) > 300


def test_a_slow_client_with_a_small_message_outlasts_those_who_hold_much() -> None:
    holdings = Holdings(20 * MB)
    slow = Connection()
    crowd = [Connection() for _ in range(100)]

    for second in range(60):
        holdings.note(slow, (second + 1) * 4 * 1024, second * 1000)
        holdings.note(crowd[second], 8 * MB, second * 1000)

    assert not slow.is_ended
    assert len(ended(crowd)) >= 57
