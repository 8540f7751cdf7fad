"""Damage in the file: reported where it is, never served, never fatal to the rest (D4)."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from shardbus.core.message import DEAD_LETTER_LINE, DELAYED, MAIN_LINE, SET_ASIDE, Entry
from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.crash_child import (
    FRAGMENTS,
    SESSIONFUL,
    commit_of,
    expected,
    message,
    rounds_of,
    state_of,
)
from tests.stores.harness import Pen, Scalpel, SqliteCase, numbers, read_all, without_payload
from tests.stores.test_crash import check_sessions

BYTES_MAX = 1 << 20


def two_chunks(case: SqliteCase, pen: Pen) -> list[Entry]:
    """Messages 1 to 5 in one chunk and 6 to 10 in another."""
    entries = pen.append([b"message %d" % at for at in range(1, 6)])
    pen.write(case.store)
    entries += pen.append([b"message %d" % at for at in range(6, 11)])
    pen.write(case.store)
    return entries


@pytest.mark.parametrize("at", [0, 2, 5, 12, 30, -1])
def test_a_damaged_head_costs_its_chunk_alone(sqlite_case: SqliteCase, pen: Pen, at: int) -> None:
    two_chunks(sqlite_case, pen)
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.flip_head(pen.fragment, pen.sequence(2), at)

    page = sqlite_case.store.read_line(
        pen.fragment, MAIN_LINE, after=pen.sequence(1), count_max=99, bytes_max=BYTES_MAX
    )
    short = sqlite_case.store.read_line(
        pen.fragment, MAIN_LINE, after=0, count_max=2, bytes_max=BYTES_MAX
    )

    assert page.damaged == [pen.sequence(n) for n in range(2, 6)]
    assert numbers(page.entries) == [pen.sequence(n) for n in range(6, 11)]
    assert page.is_end
    assert short.damaged == [pen.sequence(1), pen.sequence(2)]
    assert not short.is_end
    assert sqlite_case.store.read_payloads(pen.fragment, [pen.sequence(3), pen.sequence(7)]) == [
        None,
        b"message 7",
    ]


def test_what_is_set_aside_of_a_damaged_head_stays_as_evidence(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    two_chunks(sqlite_case, pen)
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.flip_head(pen.fragment, pen.sequence(2), 12)
        damaged = scalpel.execute("SELECT head, body FROM chunk WHERE id = 1")[0]
    pen.update(
        [Entry(pen.sequence(n), None, 0, enqueued_at_ms=0, state=SET_ASIDE) for n in range(1, 6)]
    )
    pen.write(sqlite_case.store)

    page = sqlite_case.store.browse(
        pen.fragment, MAIN_LINE, start=0, count_max=99, bytes_max=BYTES_MAX
    )

    assert page.damaged == []
    assert numbers(page.entries) == [pen.sequence(n) for n in range(6, 11)]
    with Scalpel(sqlite_case.path) as scalpel:
        assert scalpel.execute("SELECT head, body FROM evidence") == [damaged]
        assert scalpel.number("SELECT count(*) FROM chunk") == 1
    pen.remove([Entry(pen.sequence(n), None, 0, enqueued_at_ms=0) for n in range(1, 6)])
    pen.write(sqlite_case.store)
    with Scalpel(sqlite_case.path) as scalpel:
        assert scalpel.number("SELECT count(*) FROM entry") == 0


def test_a_message_in_memory_outlives_the_damaged_head_of_its_chunk(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    entries = two_chunks(sqlite_case, pen)
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.flip_head(pen.fragment, pen.sequence(2), 12)

    pen.move(entries[1:2], line=DEAD_LETTER_LINE)
    pen.write(sqlite_case.store)

    letters = read_all(sqlite_case.store, pen.fragment, DEAD_LETTER_LINE)
    assert [e.payload for e in letters] == [b"message 2"]


def test_where_it_cannot_be_told_what_left_nothing_is_served(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    """A completed message must not come back because the note of its removal is damaged."""
    entries = two_chunks(sqlite_case, pen)
    pen.remove(entries[1:3])
    pen.write(sqlite_case.store)
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.flip_gap(pen.fragment, pen.sequence(1))

    page = sqlite_case.store.read_line(
        pen.fragment, MAIN_LINE, after=0, count_max=99, bytes_max=BYTES_MAX
    )

    assert page.damaged == [pen.sequence(n) for n in range(1, 6)]
    assert numbers(page.entries) == [pen.sequence(n) for n in range(6, 11)]


def test_a_damaged_dead_letter_is_named(sqlite_case: SqliteCase, pen: Pen) -> None:
    entries = two_chunks(sqlite_case, pen)
    pen.move(without_payload(entries[:3]), line=DEAD_LETTER_LINE)
    pen.write(sqlite_case.store)
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.flip_state(pen.fragment, pen.sequence(2))

    page = sqlite_case.store.read_line(
        pen.fragment, DEAD_LETTER_LINE, after=0, count_max=99, bytes_max=BYTES_MAX
    )

    assert page.damaged == [pen.sequence(2)]
    assert numbers(page.entries) == [pen.sequence(1), pen.sequence(3)]


def test_a_damaged_record_that_is_due_is_told_of_with_what_its_row_says(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    """So that it can be set aside with the right counters, and comes no more."""
    entries = pen.append([b"one", b"two", b"three"])
    pen.write(sqlite_case.store)
    pen.move(without_payload(entries), line=DEAD_LETTER_LINE)
    pen.delay(entries, 1_000)
    pen.write(sqlite_case.store)
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.flip_state(pen.fragment, pen.sequence(2))

    due = sqlite_case.store.read_due(pen.fragment, now_ms=1_000, count_max=9, bytes_max=1)
    told = [(e.sequence_number, e.line, e.state, e.size_bytes) for e in due.damaged]
    pen.move(due.damaged, state=SET_ASIDE)
    pen.write(sqlite_case.store)
    after = sqlite_case.store.read_due(pen.fragment, now_ms=1_000, count_max=9, bytes_max=1)

    assert numbers(due.entries) == [pen.sequence(1), pen.sequence(3)]
    assert told == [(pen.sequence(2), DEAD_LETTER_LINE, DELAYED, 3)]
    assert (numbers(after.entries), after.damaged) == (numbers(due.entries), [])


def test_a_message_is_not_served_from_a_session_that_is_not_its_own(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    """R26: a flipped number of a session must not mix two of them."""
    pen.append([b"red"], session_id="red")
    pen.append([b"blue"], session_id="blue")
    pen.write(sqlite_case.store)
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.execute("UPDATE entry SET session = 1")

    page = sqlite_case.store.read_session(
        pen.fragment, "red", after=0, count_max=9, bytes_max=BYTES_MAX
    )

    assert [e.payload for e in page.entries] == [b"red"]
    assert page.damaged == [pen.sequence(2)]


def test_damaged_counters_are_reported_for_their_fragment_alone(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    other = FragmentId(7, 4)
    sqlite_case.store.create([other])
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.execute(
            "UPDATE fragment SET counters = zeroblob(length(counters)) WHERE number = ?",
            pen.fragment.number,
        )

    with pytest.raises(StoreError, match="counters of fragment 3 of entity 7 are damaged"):
        sqlite_case.store.load(pen.fragment)

    assert sqlite_case.store.load(other).counters.last_counter == 0


def history(path: Path, rounds: int) -> SqliteStore:
    store = SqliteStore(path, durability="relaxed", recent_max=9)
    store.create(FRAGMENTS)
    for round_number in range(1, rounds + 1):
        store.commit([commit_of(fragment, round_number) for fragment in FRAGMENTS])
    return store


def test_a_torn_log_leaves_a_prefix(tmp_path: Path) -> None:
    """A log cut anywhere, as after the loss of power: some rounds whole, nothing of the others."""
    rounds = 12
    store = history(tmp_path / "store.db", rounds)
    log = (tmp_path / "store.db-wal").read_bytes()
    main = (tmp_path / "store.db").read_bytes()
    store.close()
    dice = random.Random(1)
    seen: set[int] = set()

    for attempt in range(25):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        (folder / "store.db").write_bytes(main)
        (folder / "store.db-wal").write_bytes(log[: dice.randrange(len(log) + 1)])
        seen.add(rounds_left(folder / "store.db"))
        shutil.rmtree(folder)

    assert len(seen) > 3
    assert max(seen) <= rounds


def rounds_left(path: Path) -> int:
    store = SqliteStore(path)
    try:
        if not store.fragments():
            return 0
        rounds = rounds_of(store, FRAGMENTS[0])
        for fragment in FRAGMENTS:
            main, dead = expected(fragment, rounds)
            assert rounds_of(store, fragment) == rounds
            found = read_all(store, fragment)
            assert [e.payload for e in found] == [message(fragment, c).payload for c in main]
            letters = read_all(store, fragment, DEAD_LETTER_LINE)
            assert [e.payload for e in letters] == [message(fragment, c).payload for c in dead]
        check_sessions(store, expected(SESSIONFUL, rounds)[0], rounds)
        return rounds
    finally:
        store.close()


def test_whatever_byte_is_flipped_nothing_wrong_is_served(tmp_path: Path) -> None:
    """Any single bit of the file: right bytes, a report of damage, or StoreError; nothing else."""
    history(tmp_path / "store.db", 12).close()
    content = (tmp_path / "store.db").read_bytes()
    dice = random.Random(2)
    outcomes = {"right": 0, "damaged": 0, "refused": 0}

    for _ in range(120):
        spoilt = bytearray(content)
        spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
        path = tmp_path / "spoilt.db"
        path.write_bytes(bytes(spoilt))
        outcomes[outcome(path)] += 1
        for name in ("spoilt.db", "spoilt.db-wal", "spoilt.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)

    assert outcomes["damaged"] > 0
    assert outcomes["right"] > 0


def outcome(path: Path) -> str:
    try:
        store = SqliteStore(path)
    except StoreError:
        return "refused"
    result = "right"
    try:
        for fragment in FRAGMENTS:
            for line in (MAIN_LINE, DEAD_LETTER_LINE):
                page = store.read_line(fragment, line, after=0, count_max=10_000, bytes_max=1 << 30)
                for entry in page.entries:
                    assert (
                        entry.payload == message(fragment, entry.sequence_number & 0xFFFF).payload
                    )
                if page.damaged:
                    result = "damaged"
            store.read_due(fragment, now_ms=1 << 50, count_max=100, bytes_max=1 << 20)
            store.load(fragment)
            for rank, name in store.read_sessions(fragment, after=0, count_max=100).sessions:
                assert rank >> 48 == fragment.number
                page = store.read_session(
                    fragment, name, after=0, count_max=10_000, bytes_max=1 << 30
                )
                for entry in page.entries:
                    assert entry.session_id == name
            for name in store.list_sessions(fragment, updated_after_ms=-1, skip=0, count_max=100):
                assert store.read_state(fragment, name) in (None, state_of(12))
    except StoreError:
        result = "refused"
    finally:
        close_quietly(store)
    return result


def close_quietly(store: SqliteStore) -> None:
    try:
        store.close()
    except StoreError:
        # The checkpoint met the damage; the files are given back all the same.
        return
