"""The pieces into which a buffer of messages is cut for Arrow."""

import pytest

from shardbus.gateway.flight.reading.tiles import Tiles


@pytest.mark.parametrize(
    ("start", "end"), [(14, 18), (18, 17), (18, 31)], ids=["overlaps", "is backwards", "leaves"]
)
def test_a_tile_follows_the_last_one_and_stays_in_its_message(start: int, end: int) -> None:
    tiles = Tiles()
    tiles.enter(10, 30)
    first = tiles.cut(12, 16)

    with pytest.raises(ValueError, match="message"):
        tiles.cut(start, end)

    assert tiles.cut(16, 30) == first + 2
