"""What the writer remembers of chunks, and that it forgets rather than grows."""

from shardbus.stores.chunked.chunk import key_of, pack_gap
from shardbus.stores.chunked.directory import OLDER_MAX, Chunk, StoreDirectory
from shardbus.stores.sqlite.texts import listed_chunks


def chunk(number: int, local: int, counter: int, count: int = 10, *, is_recent: bool) -> Chunk:
    made = Chunk(number, key_of(local, counter), count, 0, 0, False)
    made.is_recent = is_recent
    return made


def test_a_chunk_is_found_by_any_of_its_keys_and_no_other() -> None:
    directory = StoreDirectory()
    first, second = chunk(1, 4, 10, is_recent=True), chunk(2, 4, 30, is_recent=True)
    directory.add_recent(second)
    directory.add_recent(first)

    assert directory.find(key_of(4, 9)) is None
    assert directory.find(key_of(4, 10)) is first
    assert directory.find(key_of(4, 19)) is first
    assert directory.find(key_of(4, 20)) is None
    assert directory.find(key_of(4, 39)) is second
    assert directory.find(key_of(5, 10)) is None


def test_a_dropped_chunk_is_forgotten() -> None:
    directory = StoreDirectory()
    made = chunk(1, 4, 10, is_recent=True)
    directory.add_recent(made)
    directory.drop(made)
    directory.drop(made)

    assert directory.find(key_of(4, 10)) is None
    assert directory.recent_count == 0


def test_ageing_forgets_recent_chunks_and_keeps_older_ones() -> None:
    directory = StoreDirectory()
    older = chunk(1, 4, 10, is_recent=False)
    directory.add_older([older])
    directory.add_recent(chunk(2, 4, 30, is_recent=True))
    directory.age()

    assert directory.recent_count == 0
    assert directory.find(key_of(4, 30)) is None
    assert directory.find(key_of(4, 10)) is older


def test_older_chunks_make_room_for_others_but_recent_ones_stay() -> None:
    directory = StoreDirectory()
    directory.add_recent(chunk(1, 9, 10, is_recent=True))
    for at in range(OLDER_MAX):
        directory.add_older([chunk(at + 2, 4, at * 10, is_recent=False)])
    more = [chunk(at + 5_000, 5, at * 10, is_recent=False) for at in range(OLDER_MAX + 5)]
    directory.add_older(more)

    assert directory.find(key_of(4, 0)) is None
    assert all(directory.find(made.first) is made for made in more)
    assert directory.find(key_of(9, 10)) is not None


def test_a_chunk_holds_what_has_not_left_it() -> None:
    made = chunk(1, 4, 10, count=3, is_recent=True)
    made.gone = 0b010

    assert [made.holds(key_of(4, at)) for at in (9, 10, 11, 12, 13)] == [
        False, True, False, True, False,
    ]  # fmt: skip
    assert not made.is_empty()
    made.gone = 0b111
    assert made.is_empty()


def test_listed_chunks_carry_their_gaps() -> None:
    first = key_of(4, 10)
    gap = pack_gap(first, 0b101, 3).hex()

    whole, partly, damaged = listed_chunks(
        f"{first} 3 99 7 0 0 ;{first} 3 99 8 1234 1 {gap};{first} 3 99 9 0 0 {gap[2:]}",
        is_recent=False,
    )

    assert (whole.number, whole.gone, whole.has_gap, whole.is_mixed) == (7, 0, False, False)
    assert (partly.number, partly.gone, partly.has_gap) == (8, 0b101, True)
    assert (partly.due_at_ms, partly.is_mixed, partly.is_recent) == (1234, True, False)
    assert (damaged.gone, damaged.has_gap) == (0, True)
    assert listed_chunks(None, is_recent=True) == []
