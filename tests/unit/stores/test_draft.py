"""Which payloads of a commit are stored together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardbus.stores.chunked.breath import Breath
from shardbus.stores.chunked.chunk import CHUNK_BYTES_MAX, CHUNK_COUNT_MAX, CHUNK_SPAN_MAX
from shardbus.stores.chunked.draft import PART_BYTES_MIN, ChunkDraft, Run, Shares

SIZE = PART_BYTES_MIN
POOL = [bytes([at]) * SIZE for at in range(6)]


def draft_of(payloads: list[bytes]) -> ChunkDraft:
    draft = ChunkDraft(1)
    for at, payload in enumerate(payloads):
        draft.add(1 + at, (0, 0, len(payload), 0), payload)
    return draft


def chunks_of(keys: list[int], size: int = 1) -> list[ChunkDraft]:
    run = Run()
    drafts: list[ChunkDraft] = []
    for key in keys:
        full = run.add(key, (0, 0, size, 0), bytes(size))
        if full is not None:
            drafts.append(full)
    last = run.last()
    return drafts if last is None else [*drafts, last]


def test_a_run_without_holes_has_no_positions() -> None:
    [draft] = chunks_of(list(range(40, 50)))

    assert (draft.first, draft.span(), draft.positions, draft.holes()) == (40, 10, [], 0)


def test_a_run_with_holes_says_where_they_are() -> None:
    [draft] = chunks_of([40, 41, 44, 46])

    assert (draft.span(), draft.positions, draft.holes()) == (7, [0, 1, 4, 6], 0b0101100)


def test_a_chunk_is_full_by_count_by_bytes_and_by_span() -> None:
    by_count = chunks_of(list(range(CHUNK_COUNT_MAX + 1)))
    by_bytes = chunks_of([1, 2, 3], CHUNK_BYTES_MAX // 2)
    large = chunks_of([1, 2], CHUNK_BYTES_MAX + 1)
    by_span = chunks_of([1, CHUNK_SPAN_MAX, CHUNK_SPAN_MAX + 1])

    assert [len(draft.records) for draft in by_count] == [CHUNK_COUNT_MAX, 1]
    assert [len(draft.records) for draft in by_bytes] == [2, 1]
    assert [len(draft.records) for draft in large] == [1, 1]
    assert [draft.span() for draft in by_span] == [CHUNK_SPAN_MAX, 1]


def test_what_all_chunks_have_is_one_part() -> None:
    drafts = [draft_of(POOL) for _ in range(3)]

    shares = Shares(drafts, 10, Breath())

    [part] = shares.parts
    assert (part.number, part.users, b"".join(part.payloads)) == (10, 3, b"".join(POOL))
    assert shares.next_part == 11
    assert shares.spots(drafts[1])[0] == [(at, 0, at * SIZE) for at in range(6)]


def test_what_a_chunk_has_to_itself_stays_its_own_unless_it_shares_others() -> None:
    alone, both, other = draft_of(POOL[:2]), draft_of(POOL[2:5]), draft_of(POOL[2:4])
    shares = Shares([alone, both, other], 1, Breath())

    assert not shares.is_sharing(alone)
    assert shares.is_sharing(both)
    spots, parts = shares.spots(both)
    assert [(part.users, part.payloads) for part in parts] == [(2, POOL[2:4]), (1, POOL[4:5])]
    assert spots == [(0, 0, 0), (1, 0, SIZE), (2, 1, 0)]


def test_equal_payloads_that_are_not_the_same_object_are_not_sought() -> None:
    """To compare bytes would cost those who share nothing."""
    drafts = [draft_of([bytes(bytearray(POOL[0]))]) for _ in range(2)]

    assert Shares(drafts, 1, Breath()).parts == []


chosen = st.lists(st.lists(st.sampled_from(POOL), max_size=8), min_size=1, max_size=5)


@given(chosen, st.lists(st.integers(1, 4), min_size=8, max_size=8))
def test_every_chunk_finds_its_payloads_and_needs_all_of_its_parts(
    wanted: list[list[bytes]], steps: list[int]
) -> None:
    drafts: list[ChunkDraft] = []
    for payloads in wanted:
        draft, key = ChunkDraft(5), 5
        for payload, step in zip(payloads, steps, strict=False):
            draft.add(key, (0, 0, SIZE, 0), payload)
            key += step
        drafts.append(draft)
    shares = Shares(drafts, 1, Breath())
    users: dict[int, int] = {}

    for draft, payloads in zip(drafts, wanted, strict=True):
        if not shares.is_sharing(draft):
            continue
        spots, parts = shares.spots(draft)
        bodies = [b"".join(part.payloads) for part in parts]
        assert [bodies[part][start : start + SIZE] for _, part, start in spots] == payloads
        assert [position for position, _, _ in spots] == (
            draft.positions or list(range(len(payloads)))
        )
        assert {id(one) for part in parts for one in part.payloads} == {id(one) for one in payloads}
        for part in parts:
            users[part.number] = users.get(part.number, 0) + 1

    assert {part.number: part.users for part in shares.parts} == users
    stored = [id(one) for part in shares.parts if part.users > 1 for one in part.payloads]
    assert len(stored) == len(set(stored))
