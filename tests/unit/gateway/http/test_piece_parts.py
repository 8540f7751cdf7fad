"""Messages that are larger than a request, put in parts (P3)."""

from __future__ import annotations

import pytest

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    SERVER_BUSY,
    STAGE_LOST,
    TOO_LARGE,
    ErrorKind,
    Refused,
)
from shardbus.gateway.http.api.bulk.piece_parts import (
    CLIENT_BYTES_MAX,
    CLIENT_PIECES_MAX,
    GATHERED_BYTES_MAX,
    IDLE_MS_MAX,
    PIECES_MAX,
    Key,
    PieceParts,
)

KEY = ("a", 7, "s", 0)
OTHER = ("a", 7, "s", 1)
MUCH = 1 << 40


class Gathering:
    """Parts at a time that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._parts = PieceParts(lambda: self.now_ms)

    def add(
        self,
        part: int,
        content: bytes,
        parts: int = 3,
        key: Key = KEY,
        size_max: int = MUCH,
    ) -> bytes | None:
        return self._parts.add(key, part, parts, content, size_max)

    def refused(
        self, part: int, content: bytes, kind: ErrorKind, size_max: int = MUCH, key: Key = KEY
    ) -> str:
        with pytest.raises(Refused) as caught:
            self.add(part, content, key=key, size_max=size_max)
        assert caught.value.kind is kind
        return str(caught.value)


def test_the_last_part_makes_the_piece_whole() -> None:
    gathering = Gathering()

    assert gathering.add(0, b"a") is None
    assert gathering.add(0, b"x", key=OTHER) is None
    assert gathering.add(1, b"b") is None
    assert gathering.add(2, b"c") == b"abc"
    gathering.refused(2, b"c", STAGE_LOST)


def test_the_part_that_came_last_may_come_again_and_the_first_begins_anew() -> None:
    gathering = Gathering()
    gathering.add(0, b"a")
    gathering.add(1, b"b")
    assert gathering.add(1, b"b") is None
    assert gathering.add(2, b"c") == b"abc"

    gathering.add(0, b"a")
    gathering.add(1, b"b")
    gathering.add(0, b"d")
    gathering.add(1, b"e")
    assert gathering.add(2, b"f") == b"def"


@pytest.mark.parametrize("before", [[], [0]])
def test_a_part_out_of_turn_gives_the_piece_up(before: list[int]) -> None:
    gathering = Gathering()
    for part in before:
        gathering.add(part, b"x")

    assert "send the piece again" in gathering.refused(2, b"x", STAGE_LOST)
    gathering.refused(1, b"x", STAGE_LOST)


def test_a_part_that_is_none_is_refused() -> None:
    Gathering().refused(3, b"x", INVALID_ARGUMENT)


def test_a_message_that_the_entity_does_not_take_is_given_up_as_soon_as_that_is_seen() -> None:
    gathering = Gathering()
    gathering.add(0, bytes(900), size_max=1_000)

    assert "at most 1000 bytes" in gathering.refused(1, bytes(900), TOO_LARGE, size_max=1_000)
    gathering.refused(1, b"x", STAGE_LOST)


def test_what_nobody_adds_to_is_forgotten() -> None:
    gathering = Gathering()
    half = bytes(CLIENT_BYTES_MAX // 2)
    gathering.add(0, half, key=OTHER)
    gathering.add(0, half)

    gathering.now_ms += IDLE_MS_MAX + 1
    assert gathering.add(0, half) is None
    assert gathering.add(1, half) is None


def test_a_client_has_its_share_and_the_others_have_theirs() -> None:
    gathering = Gathering()
    gathering.add(0, bytes(CLIENT_BYTES_MAX), key=OTHER)

    told = gathering.refused(0, b"x", SERVER_BUSY)

    assert f"at most {CLIENT_BYTES_MAX} bytes" in told
    assert "put fewer at a time" in told
    assert gathering.add(0, bytes(CLIENT_BYTES_MAX), key=("b", 7, "s", 0)) is None


def test_pieces_of_a_client_are_bounded_and_the_others_have_theirs() -> None:
    gathering = Gathering()
    for piece in range(1, CLIENT_PIECES_MAX + 1):
        gathering.add(0, b"x", key=("a", 7, "s", piece))

    told = gathering.refused(0, b"x", SERVER_BUSY)

    assert f"at most {CLIENT_PIECES_MAX} large messages" in told
    assert gathering.add(0, b"x", key=("b", 7, "s", 0)) is None


def test_when_all_room_is_taken_who_has_the_most_makes_room_for_who_has_less() -> None:
    gathering = Gathering()
    half = bytes(CLIENT_BYTES_MAX // 2)
    for client in ("a", "b"):
        for piece in (0, 1):
            gathering.add(0, half, key=(client, 7, "s", piece))
    gathering.add(0, half, key=("a", 7, "s", 0))  # Younger than the other one now.
    new = ("c", 7, "s", 0)

    assert gathering.add(0, half, key=new) is None

    assert "send the piece again" in gathering.refused(1, b"x", STAGE_LOST, key=OTHER)
    for client, piece in (("a", 0), ("b", 0), ("b", 1), ("c", 0)):
        assert gathering.add(1, b"", key=(client, 7, "s", piece)) is None


def test_pieces_of_all_clients_are_bounded_and_who_has_the_most_makes_room() -> None:
    gathering = Gathering()
    for client, count in (("a", CLIENT_PIECES_MAX), ("b", PIECES_MAX - CLIENT_PIECES_MAX - 1)):
        for piece in range(count):
            gathering.add(0, b"x", key=(client, 7, "s", piece))
    gathering.add(0, b"x", key=("c", 7, "s", 0))

    assert gathering.add(0, b"x", key=("d", 7, "s", 0)) is None

    gathering.refused(1, b"y", STAGE_LOST, key=("a", 7, "s", 0))
    assert gathering.add(1, b"y", key=("c", 7, "s", 0)) is None


def test_what_is_gathered_of_all_pieces_is_bounded() -> None:
    gathering = Gathering()
    third = bytes(GATHERED_BYTES_MAX // 3)
    for client in ("a", "b", "c"):
        gathering.add(0, third, key=(client, 7, "s", 0))

    told = gathering.refused(1, b"xx", SERVER_BUSY, key=("a", 7, "s", 0))

    assert "put the stage again later" in told
    assert gathering.add(1, b"xx", key=("b", 7, "s", 0)) is None
