"""The record format: it comes back as it went in, and any change of a byte is noticed."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from shardbus.core.fragment.change import Counters, LineCounters
from shardbus.core.message import (
    DEAD_LETTER_LINE,
    DEFERRED,
    DELAYED,
    NEVER_MS,
    SCHEDULED,
    SET_ASIDE,
    Entry,
)
from shardbus.stores.base.record import HOLE, Record
from shardbus.stores.chunked.chunk import (
    CHUNK_SPAN_MAX,
    COUNTER_MAX,
    DUE_SPREAD_MS,
    assembled,
    due_of,
    holes_of,
    is_plain,
    key_of,
    local_of,
    pack_counters,
    pack_gap,
    pack_head,
    pack_record,
    pack_remembered,
    pack_scattered,
    pack_session_state,
    pack_shared,
    pack_state,
    record_of,
    sequence_base,
    sequence_of,
    session_of,
    session_state_bytes,
    unpack_counters,
    unpack_gap,
    unpack_head,
    unpack_record,
    unpack_remembered,
    unpack_session_state,
    unpack_spots,
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


def test_the_bytes_of_scattered_and_shared_heads_never_change() -> None:
    assert pack_scattered(KEY, RECORDS, [0, 9]).hex() == (
        "020002004d00000000280000"
        "0068e5cf8b010000000000000000000003000000" "1032547698badcfe"
        "0200000000000000030000000000000000000000" "0100000000000000"
        "00000900"
        "7827c2ced13573cc"
    )  # fmt: skip
    assert pack_shared(KEY, RECORDS, [(0, 1, 5), (9, 0, 70_000)], [7, 8]).hex() == (
        "030002004d00000000280000"
        "0068e5cf8b010000000000000000000003000000" "1032547698badcfe"
        "0200000000000000030000000000000000000000" "0100000000000000"
        "0000010005000000" "0900000070110100"
        "0700000000000000" "0800000000000000"
        "d568f548e4129acb"
    )  # fmt: skip


@st.composite
def scattered(draw: st.DrawFn) -> tuple[list[Record], list[int]]:
    """Records and positions that rise from 0."""
    wanted = draw(records)
    last = CHUNK_SPAN_MAX - 1
    rest = draw(st.sets(st.integers(1, last), min_size=len(wanted) - 1, max_size=len(wanted) - 1))
    return wanted, [0, *sorted(rest)]


@given(scattered())
def test_records_come_back_at_their_positions(made: tuple[list[Record], list[int]]) -> None:
    wanted, positions = made
    spots = [(position, 0, 0) for position in positions]

    for head in (pack_scattered(KEY, wanted, positions), pack_shared(KEY, wanted, spots, [4])):
        found = unpack_head(KEY, head)
        assert found is not None
        assert len(found) == positions[-1] + 1
        assert {at: found[at] for at in positions} == dict(zip(positions, wanted, strict=True))
        holes = holes_of(found)
        real = [at for at, record in enumerate(found) if record != HOLE]
        assert holes.bit_count() == len(found) - len(real)
        assert all(found[at] == HOLE for at in set(range(len(found))) - set(positions))


@pytest.mark.parametrize(
    "positions", [[1, 2], [0, 0], [3, 1], [0, CHUNK_SPAN_MAX], [0, (1 << 16) - 1]]
)
def test_positions_that_cannot_be_make_a_head_damaged(positions: list[int]) -> None:
    spots = [(position, 0, 0) for position in positions]
    assert unpack_head(KEY, pack_scattered(KEY, RECORDS, positions)) is None
    assert unpack_head(KEY, pack_shared(KEY, RECORDS, spots, [1])) is None


def test_a_shared_body_is_put_together_as_if_it_were_one() -> None:
    payloads = [b"one", b"two!", b"", b"three"]
    records_made = [(1, 2, len(payload), 3) for payload in payloads]
    spots = [(0, 1, 0), (2, 0, 4), (3, 0, 0), (9, 1, 3)]
    head = pack_shared(KEY, records_made, spots, [70, 71])

    assert unpack_spots(head) == (spots, [70, 71])
    assert assembled(head, {70: b"....two!", 71: b"onethree"}) == b"onetwo!three"
    assert assembled(head, {71: b"onethree"}) == b"one\x00\x00\x00\x00three"
    assert assembled(head, {70: b"....two!", 71: b"onet"}) == b"onetwo!t\x00\x00\x00\x00"


def test_where_a_head_is_damaged_it_names_no_parts() -> None:
    head = pack_shared(KEY, RECORDS, [(0, 0, 0), (1, 0, 3)], [1])
    for at in range(len(head)):
        spoilt = bytearray(head)
        spoilt[at] ^= 0x01
        assert unpack_spots(bytes(spoilt)) == ([], [])
        assert unpack_head(KEY, bytes(spoilt)) is None
    for end in range(len(head)):
        assert unpack_spots(head[:end]) == ([], [])
        assert unpack_head(KEY, head[:end]) is None
    assert unpack_spots(pack_head(KEY, RECORDS)) == ([], [])


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


texts = st.none() | st.text(st.characters(), max_size=20)


@given(st.integers(0, 255), st.integers(0, 4), st.lists(texts, min_size=3, max_size=3), st.binary())
def test_a_state_comes_back(
    line: int, state: int, words: list[str | None], modified: bytes
) -> None:
    wanted = entry(line=line, state=state, delivery_count=1 << 31, expires_at_ms=99)
    wanted.reason, wanted.description, wanted.session_id = words
    wanted.modified, wanted.delayed_until_ms = modified, 1 << 62

    found = unpack_state(KEY, sequence_base(3), pack_state(KEY, wanted))

    assert found is not None
    assert found.payload is None
    assert (found.sequence_number, found.size_bytes) == (3 << 48 | 77, 3)
    assert (found.enqueued_at_ms, found.expires_at_ms) == (10, 99)
    assert (found.line, found.state, found.delivery_count) == (line, state, 1 << 31)
    assert [found.reason, found.description, found.session_id] == words
    assert (found.modified, found.delayed_until_ms) == (modified, 1 << 62)


def test_the_bytes_of_a_state_and_of_counters_never_change() -> None:
    """Files are read by later versions: a new layout needs a new version number."""
    changed = entry(delivery_count=2, state=DELAYED, delayed_until_ms=8, expires_at_ms=9)
    changed.reason, changed.modified, changed.session_id = "why", b"m", "red"
    lines = [LineCounters(1, 2, 3, 4), LineCounters(5, 6, 7, 8), LineCounters(9, 10, 11, 12)]
    counters = Counters(13, lines, 14, states=15, state_bytes=16, duplicates=17)

    assert pack_state(KEY, changed).hex() == (
        "01004d000000002800000004"
        "0a0000000000000009000000000000000300000002000000"
        "03000000ffffffff01000000030000000800000000000000"
        "776879" "6d" "726564" "3f13616e80a9efc4"
    )  # fmt: skip
    assert pack_counters(4, counters).hex() == (
        "0100"
        + "".join(f"{n:02x}00000000000000" for n in (13, *range(1, 13), 14, 15, 16, 17))
        + "2b631996836cafa5"
    )


def test_a_record_of_another_version_is_damaged() -> None:
    """Also one that is shorter than it should be."""
    for version in (0, 2):
        state = pack("<HqBBqqIIiiIiq", version, KEY, 1, 3, 10, 99, 3, 7, -1, -1, 0, -1, 0)
        assert unpack_state(KEY, 0, checksummed(state)) is None
    short = pack("<HqBBqqIIiiI", 1, KEY, 1, 3, 10, 99, 3, 7, -1, -1, 0)
    assert unpack_state(KEY, 0, checksummed(short)) is None
    for version in (0, 2):
        counters = pack("<H17q", version, *range(17))
        assert unpack_counters(4, checksummed(counters, seed=4)) is None
    assert unpack_counters(4, checksummed(pack("<H8q", 1, *range(8)), seed=4)) is None


def test_the_state_of_a_session_comes_back_and_a_damaged_one_does_not() -> None:
    packed = pack_session_state(5, b"\xed\xb2\x80", 99, b"\x00 state")

    assert unpack_session_state(packed) == (5, b"\xed\xb2\x80", 99, b"\x00 state")
    assert session_state_bytes(b"\xed\xb2\x80", packed) == 7
    assert unpack_session_state(pack_session_state(5, b"", 0, b"")) == (5, b"", 0, b"")
    for at in range(len(packed)):
        spoilt = bytearray(packed)
        spoilt[at] ^= 1
        assert unpack_session_state(bytes(spoilt)) is None
        assert unpack_session_state(packed[:at]) is None


def test_remembered_ids_come_back_and_damaged_ones_do_not() -> None:
    packed = pack_remembered(5, 1 << 50, bytes(range(32)))

    found = unpack_remembered(5, packed)

    assert found is not None
    assert (found.at_ms, found.digests) == (1 << 50, bytes(range(32)))
    assert unpack_remembered(6, packed) is None
    for at in range(len(packed)):
        spoilt = bytearray(packed)
        spoilt[at] ^= 1
        assert unpack_remembered(5, bytes(spoilt)) is None
        assert unpack_remembered(5, packed[:at]) is None


def checksummed(data: bytes, seed: int = 0) -> bytes:
    return data + pack("<Q", xxh3_64_intdigest(data, seed=seed))


@given(st.data())
def test_a_state_with_any_bit_flipped_is_damaged(data: st.DataObject) -> None:
    changed = entry(delivery_count=2)
    changed.reason = "because"
    changed.session_id = "red"
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
    assert not is_plain(in_session())
    assert not is_plain(entry(state=SCHEDULED))


def in_session(**changed: int) -> Entry:
    made = entry(**changed)
    made.session_id = "red"
    return made


def test_a_session_has_what_is_on_the_main_line_and_not_set_aside() -> None:
    assert session_of(in_session()) == b"red"
    assert session_of(in_session(state=DELAYED)) == b"red"
    assert session_of(in_session(line=DEAD_LETTER_LINE)) is None
    assert session_of(in_session(state=SET_ASIDE)) is None
    assert session_of(entry()) is None


def test_a_record_tells_of_its_payload() -> None:
    first, second = record_of(entry(), b"abc"), record_of(entry(), b"abd")

    assert first[:3] == (10, NEVER_MS, 3)
    assert first[3] != second[3]


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 40), st.binary(), st.binary())
def test_a_kept_record_comes_back_and_damage_is_noticed(
    local: int, kind: int, key: bytes, data: bytes
) -> None:
    packed = pack_record(local, kind, key, data)

    assert unpack_record(packed) == (local, kind, key, data)
    for at in (0, 5, 12, 20, len(packed) - 9, len(packed) - 1):
        spoilt = bytearray(packed)
        spoilt[at] ^= 0x10
        assert unpack_record(bytes(spoilt)) is None
    assert unpack_record(packed[:-1]) is None
    assert unpack_record(b"") is None
