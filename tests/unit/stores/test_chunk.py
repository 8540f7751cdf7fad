"""The record format: it comes back as it went in, and any change of a byte is noticed."""

from hypothesis import given
from hypothesis import strategies as st

from shardbus.core.change import Counters, LineCounters
from shardbus.core.message import DEAD_LETTER_LINE, DEFERRED, MAIN_LINE, NEVER_MS, SET_ASIDE, Entry
from shardbus.stores.chunk import (
    COUNTER_MAX,
    DUE_SPREAD_MS,
    Record,
    due_of,
    is_plain,
    key_of,
    local_of,
    pack_counters,
    pack_gap,
    pack_head,
    pack_state,
    record_of,
    sequence_base,
    sequence_of,
    unpack_counters,
    unpack_gap,
    unpack_head,
    unpack_state,
)

KEY = key_of(5, 77)
RECORDS: list[Record] = [(1_700_000_000_000, 0, 3, 0xFEDCBA9876543210), (2, 3, 0, 1)]
moments = st.integers(0, 1 << 62)
records = st.lists(
    st.tuples(moments, moments, st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)),
    min_size=1,
    max_size=20,
)


def entry(**changed: int) -> Entry:
    made = Entry(sequence_base(3) | 77, b"abc", 3, enqueued_at_ms=10)
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def test_keys_and_sequence_numbers_tell_fragment_and_counter() -> None:
    assert local_of(KEY) == 5
    assert sequence_of(sequence_base(3), KEY) == 3 << 48 | 77
    assert sequence_of(sequence_base(3), key_of(5, COUNTER_MAX)) == 3 << 48 | COUNTER_MAX


def test_the_bytes_of_a_head_never_change() -> None:
    """Files are read by later versions: a new layout needs a new version number."""
    assert pack_head(KEY, RECORDS).hex() == (
        "010002004d00000000280000"
        "0068e5cf8b010000000000000000000003000000" "1032547698badcfe"
        "0200000000000000030000000000000000000000" "0100000000000000"
        "58f59d1baf76f3d4"
    )  # fmt: skip


@given(records)
def test_a_head_comes_back(wanted: list[Record]) -> None:
    assert unpack_head(KEY, pack_head(KEY, wanted)) == wanted


@given(records, st.data())
def test_a_head_with_any_bit_flipped_is_damaged(wanted: list[Record], data: st.DataObject) -> None:
    spoilt = bytearray(pack_head(KEY, wanted))
    at = data.draw(st.integers(0, len(spoilt) * 8 - 1))
    spoilt[at // 8] ^= 1 << at % 8
    assert unpack_head(KEY, bytes(spoilt)) is None


@given(st.binary(max_size=100))
def test_a_head_of_noise_is_damaged(noise: bytes) -> None:
    assert unpack_head(KEY, noise) is None


def test_a_head_of_another_chunk_is_damaged() -> None:
    assert unpack_head(KEY + 1, pack_head(KEY, RECORDS)) is None


@given(
    st.integers(0, 255),
    st.integers(0, 3),
    st.integers(0, 1 << 31),
    st.none() | st.text(max_size=20),
    st.none() | st.text(max_size=20),
    st.binary(max_size=20),
)
def test_a_state_comes_back(
    line: int,
    state: int,
    delivery_count: int,
    reason: str | None,
    description: str | None,
    modified: bytes,
) -> None:
    wanted = entry(line=line, state=state, delivery_count=delivery_count, expires_at_ms=99)
    wanted.reason, wanted.description, wanted.modified = reason, description, modified

    found = unpack_state(KEY, sequence_base(3), pack_state(KEY, wanted))

    assert found is not None
    assert found.payload is None
    assert (found.sequence_number, found.size_bytes) == (3 << 48 | 77, 3)
    assert (found.enqueued_at_ms, found.expires_at_ms) == (10, 99)
    assert (found.line, found.state, found.delivery_count) == (line, state, delivery_count)
    assert (found.reason, found.description, found.modified) == (reason, description, modified)


@given(st.data())
def test_a_state_with_any_bit_flipped_is_damaged(data: st.DataObject) -> None:
    changed = entry(delivery_count=2)
    changed.reason = "because"
    spoilt = bytearray(pack_state(KEY, changed))
    at = data.draw(st.integers(0, len(spoilt) * 8 - 1))
    spoilt[at // 8] ^= 1 << at % 8
    assert unpack_state(KEY, 0, bytes(spoilt)) is None
    assert unpack_state(KEY, 0, bytes(spoilt[: at // 8])) is None


@given(st.integers(1, 256), st.data())
def test_a_gap_comes_back_and_a_damaged_one_does_not(count: int, data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, (1 << count) - 1))
    gap = pack_gap(KEY, gone, count)
    at = data.draw(st.integers(0, len(gap) * 8 - 1))
    spoilt = bytearray(gap)
    spoilt[at // 8] ^= 1 << at % 8

    assert unpack_gap(KEY, gap) == gone
    assert unpack_gap(KEY + 1, gap) == -1
    assert unpack_gap(KEY, bytes(spoilt)) == -1
    assert unpack_gap(KEY, gap[:8]) == -1


def test_counters_come_back_and_damaged_ones_do_not() -> None:
    counters = Counters(9, [LineCounters(1, 2), LineCounters(3, 4), LineCounters(5, 6)], 7)
    packed = pack_counters(4, counters)

    found = unpack_counters(4, packed)

    assert found is not None
    assert (found.last_counter, found.set_aside) == (9, 7)
    assert [(x.count, x.size_bytes) for x in found.lines] == [(1, 2), (3, 4), (5, 6)]
    assert unpack_counters(5, packed) is None
    assert unpack_counters(4, packed[:-1]) is None
    for at in range(len(packed)):
        spoilt = bytearray(packed)
        spoilt[at] ^= 1
        assert unpack_counters(4, bytes(spoilt)) is None


def test_due_is_the_earliest_of_what_is_left() -> None:
    kept: list[Record] = [(0, 5_000, 0, 0), (0, 1_000, 0, 0), (0, 9_000, 0, 0)]

    assert due_of(kept, 0b000) == (1_000, True)
    assert due_of(kept, 0b010) == (5_000, True)
    assert due_of(kept, 0b110) == (5_000, False)
    assert due_of(kept, 0b111) == (NEVER_MS, False)


def test_expiries_close_together_count_as_one_moment() -> None:
    close: list[Record] = [(0, 1_000, 0, 0), (0, 1_000 + DUE_SPREAD_MS, 0, 0)]
    apart: list[Record] = [(0, 1_000, 0, 0), (0, 1_001 + DUE_SPREAD_MS, 0, 0)]
    immortal: list[Record] = [(0, 1_000, 0, 0), (0, NEVER_MS, 0, 0)]

    assert due_of(close, 0) == (1_000, False)
    assert due_of(apart, 0) == (1_000, True)
    assert due_of(immortal, 0) == (1_000, True)


def test_only_an_untouched_message_is_plain() -> None:
    reasoned = entry()
    reasoned.reason = ""

    assert is_plain(entry(expires_at_ms=5))
    assert not is_plain(entry(delivery_count=1))
    assert not is_plain(entry(line=DEAD_LETTER_LINE))
    assert not is_plain(entry(state=DEFERRED))
    assert not is_plain(reasoned)


def test_a_record_tells_of_its_payload() -> None:
    first, second = record_of(entry(), b"abc"), record_of(entry(), b"abd")

    assert first[:3] == (10, NEVER_MS, 3)
    assert first[3] != second[3]
