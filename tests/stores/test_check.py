"""`check` finds what is wrong with a store, and `repair` keeps everything else."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.stores.base.check import Damage, Repaired, StoreReport, ranges_of
from shardbus.stores.base.store import StoreError
from shardbus.stores.chunked.chunk import COUNTER_MAX, sequence_base
from shardbus.stores.sqlite.examine import repair as repair_module
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import COUNTER_SKIP, repair_store
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import (
    FRAGMENTS,
    Filled,
    filled,
    remembered,
    served,
    set_aside,
    states,
)
from tests.stores.harness import Pen, Scalpel, read_all

ROOT = Path(__file__).resolve().parents[2]
FRAGMENT = FRAGMENTS[1]


def checked(path: Path) -> StoreReport:
    return check_store(path, lambda _: None)


def repaired(path: Path) -> Repaired:
    return repair_store(path, lambda _: None)


def numbers_in(damages: list[Damage]) -> set[int]:
    return {
        number
        for damage in damages
        for first, last in damage.ranges
        for number in range(first, last + 1)
    }


def files_of(path: Path) -> dict[str, bytes]:
    """The store and its log; the index of the log is nobody's data."""
    return {
        one.name: one.read_bytes()
        for one in path.parent.iterdir()
        if not one.name.endswith(("-shm", ".lock"))
    }


@pytest.fixture
def store(tmp_path: Path) -> Filled:
    return filled(tmp_path / "broker-0.db")


def test_a_sound_store_is_found_sound_and_counted(store: Filled) -> None:
    report = checked(store.path)

    assert [damage.what for damage in report.damages] == []
    assert (report.messages, report.set_aside) == (len(store.shelf), 0)
    assert report.fragments == [tuple(fragment) for fragment in FRAGMENTS]
    assert (report.sessions, report.states, report.remembered) == (4, 4, 12)


def test_a_message_under_a_number_that_was_given_out_before_is_sound_and_is_kept(
    tmp_path: Path,
) -> None:
    """R22: also if the file around it is made anew."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    pen.append([b"first"])
    given = pen.reserve(2)
    broken = pen.append([b"second"])
    pen.write(store)
    pen.append([b"third"])
    pen.write(store)
    pen.append_reserved([b"late"], given[1:], 5_000)
    pen.write(store)
    store.close()
    assert [damage.what for damage in checked(path).damages] == []

    with Scalpel(path) as scalpel:
        scalpel.flip_payload(FRAGMENT, broken[0].sequence_number)
    assert repaired(path).kept_as

    store = SqliteStore(path)
    found = store.browse(FRAGMENT, MAIN_LINE, start=0, count_max=9, bytes_max=99)
    store.close()
    assert [entry.payload for entry in found.entries] == [b"first", b"late", b"third"]


@pytest.mark.parametrize("work", [checked, repaired])
def test_neither_check_nor_repair_touches_a_sound_file_or_its_log(
    tmp_path: Path, work: Callable[[Path], object]
) -> None:
    """Also what only the log holds is checked, as after a crash."""
    path = tmp_path / "live" / "broker-0.db"
    path.parent.mkdir()
    filled(path)
    live = SqliteStore(path)
    pen = Pen(FRAGMENT, live.load(FRAGMENT).counters)
    pen.append([b"in the log"])
    pen.write(live)
    copy = tmp_path / "copy" / "broker-0.db"
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        copy.with_name(copy.name + suffix).write_bytes(
            path.with_name(path.name + suffix).read_bytes()
        )
    live.close()
    before = files_of(copy)
    assert len(before["broker-0.db-wal"]) > 0

    work(copy)

    assert files_of(copy) == before
    assert [damage.what for damage in checked(copy).damages] == []


def test_a_store_that_is_served_is_not_examined(store: Filled) -> None:
    live = SqliteStore(store.path)
    try:
        with pytest.raises(StoreError, match="another process serves this file"):
            checked(store.path)
        with pytest.raises(StoreError, match="another process serves this file"):
            repaired(store.path)
    finally:
        live.close()


def on_the_line(store: Filled, line: int) -> int:
    """A message of the fragment that waits there."""
    base = sequence_base(FRAGMENT.number)
    return min(
        number
        for number, (at, _, _) in store.shelf.items()
        if at == line and number & ~COUNTER_MAX == base
    )


def in_a_chunk(store: Filled) -> int:
    """A message of the fragment that never left its chunk."""
    with Scalpel(store.path) as scalpel:
        for number in sorted(store.shelf):
            if number & ~COUNTER_MAX != sequence_base(FRAGMENT.number):
                continue
            key = scalpel.key(FRAGMENT, number)
            if not scalpel.execute("SELECT 1 FROM entry WHERE key = ?", key):
                return number
    raise AssertionError("all messages have left their chunks")


def assert_repaired(store: Filled, lost: set[int]) -> None:
    """After the repair exactly these are missing, the file is sound, and it can be used."""
    outcome = repaired(store.path)

    assert outcome.kept_as == "broker-0.db.damaged-1"
    assert store.path.with_name(outcome.kept_as).exists()
    assert numbers_in(outcome.report.damages) == lost
    expected = {number: kept for number, kept in store.shelf.items() if number not in lost}
    after = checked(store.path)
    assert [damage.what for damage in after.damages] == []
    assert served(store.path) == expected
    assert states(store.path) == store.states
    assert remembered(store.path) == store.ids
    assert (outcome.served, after.messages) == (len(expected), len(expected))
    assert set_aside(store.path) == outcome.set_aside == len(lost)
    goes_on(store.path)


def goes_on(path: Path) -> None:
    live = SqliteStore(path)
    try:
        for fragment in FRAGMENTS:
            before = len(read_all(live, fragment))
            pen = Pen(fragment, live.load(fragment).counters)
            pen.append([b"new"])
            pen.write(live)
            assert len(read_all(live, fragment)) == before + 1
    finally:
        live.close()


@pytest.mark.parametrize("line", [MAIN_LINE, DEAD_LETTER_LINE])
def test_a_damaged_payload_costs_its_message(store: Filled, line: int) -> None:
    """D4."""
    number = in_a_chunk(store) if line == MAIN_LINE else on_the_line(store, line)
    with Scalpel(store.path) as scalpel:
        scalpel.flip_payload(FRAGMENT, number)

    report = checked(store.path)

    [damage] = report.damages
    assert (damage.entity_id, damage.fragment, damage.file) == (*FRAGMENT, "broker-0.db")
    assert numbers_in([damage]) == {number}
    assert damage.is_loss
    assert_repaired(store, {number})


def test_a_damaged_entry_costs_its_message(store: Filled) -> None:
    number = on_the_line(store, DEAD_LETTER_LINE)
    with Scalpel(store.path) as scalpel:
        scalpel.flip_state(FRAGMENT, number)

    assert numbers_in(checked(store.path).damages) == {number}
    assert_repaired(store, {number})


def left_in_chunk(store: Filled, number: int) -> set[int]:
    """What is still in the chunk of a message."""
    with Scalpel(store.path) as scalpel:
        chunk, first = scalpel.chunk_of(FRAGMENT, number)
        sql = (
            "SELECT count FROM place WHERE chunk = ?1 "
            "UNION ALL SELECT count FROM recent WHERE chunk = ?1"
        )
        count = scalpel.number(sql, chunk)
        moved = {row[0] for row in scalpel.execute("SELECT key FROM entry")}
        keys = {first + at for at in range(count)} - moved
    numbers = {sequence_base(FRAGMENT.number) | key & COUNTER_MAX for key in keys}
    return numbers & set(store.shelf)


@pytest.mark.parametrize("how", ["head", "chunk"])
def test_a_damaged_head_or_a_missing_chunk_costs_what_was_left_in_it(
    store: Filled, how: str
) -> None:
    number = in_a_chunk(store)
    lost = left_in_chunk(store, number)
    with Scalpel(store.path) as scalpel:
        if how == "head":
            scalpel.flip_head(FRAGMENT, number, 20)
        else:
            chunk, _ = scalpel.chunk_of(FRAGMENT, number)
            scalpel.execute("DELETE FROM chunk WHERE id = ?", chunk)

    assert numbers_in(checked(store.path).damages) == lost
    assert_repaired(store, lost)


def test_where_it_cannot_be_told_what_left_nothing_comes_back(tmp_path: Path) -> None:
    """A completed message must not return, so all of the chunk is set aside."""
    path = tmp_path / "broker-0.db"
    live = SqliteStore(path)
    live.create(FRAGMENTS)
    pen = Pen(FRAGMENT)
    entries = pen.append([b"a", b"b", b"c"])
    pen.write(live)
    pen.remove(entries[1:2])
    pen.write(live)
    live.close()
    with Scalpel(path) as scalpel:
        scalpel.flip_gap(FRAGMENT, entries[0].sequence_number)

    outcome = repaired(path)

    assert numbers_in(outcome.report.damages) == {entry.sequence_number for entry in entries}
    assert served(path) == {}
    assert [damage.what for damage in checked(path).damages] == []


@pytest.mark.parametrize("how", ["spoilt", "count", "bytes", "last"])
def test_counters_are_counted_anew(store: Filled, how: str) -> None:
    live = SqliteStore(store.path)
    pen = Pen(FRAGMENT, live.load(FRAGMENT).counters)
    last_counter = pen.counters.last_counter
    if how == "count":
        pen.counters.lines[MAIN_LINE].count += 1
    elif how == "bytes":
        pen.counters.lines[DEAD_LETTER_LINE].size_bytes -= 1
    elif how == "last":
        pen.counters.last_counter = 1
    pen.write(live)
    live.close()
    if how == "spoilt":
        with Scalpel(store.path) as scalpel:
            scalpel.execute("UPDATE fragment SET counters = x'00' WHERE number = 1")

    report = checked(store.path)
    [damage] = report.damages
    assert "the counters" in damage.what and not damage.is_loss
    assert_repaired(store, set())

    live = SqliteStore(store.path)
    found = live.load(FRAGMENT).counters.last_counter
    live.close()
    if how == "spoilt":
        assert found > last_counter, "a sequence number must not be given out twice"
        assert found < last_counter + COUNTER_SKIP + 10
    elif how != "last":
        assert found == last_counter + 1


@pytest.mark.parametrize("column", ["count", "size", "due_at"])
def test_a_row_that_describes_its_chunk_wrongly_is_put_right(store: Filled, column: str) -> None:
    value = "due_at + 1000000" if column == "due_at" else f"{column} - 1"
    where = "due_at > 0" if column == "due_at" else "count > 1"
    with Scalpel(store.path) as scalpel:
        first = scalpel.number(f"SELECT min(first) FROM place WHERE {where}")
        scalpel.execute(f"UPDATE place SET {column} = {value} WHERE first = ?", first)

    report = checked(store.path)

    assert report.damages and not any(damage.is_loss for damage in report.damages)
    assert_repaired(store, set())


def test_a_chunk_that_lost_its_row_is_kept_as_evidence(store: Filled) -> None:
    """It may hold what was completed: without another sign of damage it is not served."""
    number = in_a_chunk(store)
    with Scalpel(store.path) as scalpel:
        chunk, first = scalpel.chunk_of(FRAGMENT, number)
        body = scalpel.execute("SELECT body FROM chunk WHERE id = ?", chunk)[0][0]
        scalpel.execute("DELETE FROM place WHERE first = ?", first)
        scalpel.execute("DELETE FROM recent WHERE first = ?", first)

    report = checked(store.path)
    assert any("no row refers to" in damage.what for damage in report.damages)
    repaired(store.path)

    assert [damage.what for damage in checked(store.path).damages] == []
    with Scalpel(store.path) as scalpel:
        assert scalpel.execute("SELECT body FROM evidence WHERE key = ?", first) == [(body,)]


def test_a_message_listed_twice_is_served_once(store: Filled) -> None:
    number = in_a_chunk(store)
    with Scalpel(store.path) as scalpel:
        chunk, first = scalpel.chunk_of(FRAGMENT, number)
        scalpel.execute("DELETE FROM recent WHERE first = ?", first)
        scalpel.execute("DELETE FROM place WHERE first = ?", first)
        scalpel.execute("INSERT INTO place VALUES (?, ?, 1, 1, 0, 0)", first, chunk)
        scalpel.execute("INSERT INTO recent VALUES (?, ?, 1, 1, 0, 0)", 1 << 40, first)

    assert any("chunk before it" in damage.what for damage in checked(store.path).damages)
    repaired(store.path)

    assert [damage.what for damage in checked(store.path).damages] == []
    assert served(store.path) == store.shelf


def test_a_page_that_cannot_be_read_costs_what_was_on_it(tmp_path: Path) -> None:
    """Rows of `place` are lost, but the chunks still say whose messages they hold."""
    store = filled(tmp_path / "broker-0.db", rounds=60)
    with Scalpel(store.path) as scalpel:
        scalpel.execute("INSERT INTO place SELECT first, chunk, count, size, due_at, is_mixed "
                        "FROM recent")  # fmt: skip
        scalpel.execute("DELETE FROM recent")
        scalpel.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = scalpel.number("SELECT rootpage FROM sqlite_schema WHERE name = 'place'")
    content = bytearray(store.path.read_bytes())
    content[(page - 1) * 8192 : (page - 1) * 8192 + 8] = b"\xff" * 8
    store.path.write_bytes(bytes(content))

    report = checked(store.path)
    assert report.is_torn
    outcome = repaired(store.path)

    assert outcome.kept_as
    assert [damage.what for damage in checked(store.path).damages] == []
    assert served(store.path) == store.shelf
    goes_on(store.path)


@pytest.mark.parametrize("content", [b"", b"junk" * 5_000])
def test_a_file_that_is_no_store_is_told_of_and_left(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broker-0.db"
    path.write_bytes(content)

    outcome = repaired(path)

    assert (outcome.kept_as, path.read_bytes()) == ("", content)
    assert [damage.advice for damage in outcome.report.damages] == [
        "restore a copy of the file; a repair cannot read this one"
    ]


def test_whatever_byte_is_flipped_check_sees_it_or_it_does_no_harm(tmp_path: Path) -> None:
    """Any bit of the file: after a repair nothing wrong is served and every loss was reported."""
    store = filled(tmp_path / "sound.db")
    content = store.path.read_bytes()
    dice = random.Random(3)
    outcomes = {"sound": 0, "repaired": 0, "left": 0}
    for attempt in range(60):
        spoilt = bytearray(content)
        spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
        folder = tmp_path / str(attempt)
        folder.mkdir()
        path = folder / "broker-0.db"
        path.write_bytes(bytes(spoilt))
        outcomes[_outcome(store._replace(path=path))] += 1

    assert outcomes["sound"] and outcomes["repaired"]
    assert outcomes["left"] <= 6


def _outcome(store: Filled) -> str:
    outcome = repaired(store.path)
    if outcome.report.is_sound():
        assert served(store.path) == store.shelf
        assert states(store.path) == store.states
        return "sound"
    if not outcome.kept_as:
        return "left"
    found = served(store.path)
    missing = {number for number, kept in store.shelf.items() if found.get(number) != kept}
    assert [damage.what for damage in checked(store.path).damages] == []
    assert set(found) <= set(store.shelf)
    assert states(store.path).items() <= store.states.items()
    assert set(remembered(store.path)) <= set(store.ids)
    if not outcome.report.is_torn:
        assert missing <= numbers_in(outcome.report.damages)
    return "repaired"


def test_a_repair_that_fails_leaves_the_old_file_and_can_be_run_again(
    store: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = in_a_chunk(store)
    with Scalpel(store.path) as scalpel:
        scalpel.flip_payload(FRAGMENT, number)
    before = store.path.read_bytes()

    def fail(path: Path, new: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(repair_module, "put_in_place", fail)
        with pytest.raises(StoreError, match="No space left"):
            repaired(store.path)

    assert store.path.read_bytes() == before
    assert_repaired(store, {number})


def test_a_repair_that_is_killed_leaves_a_whole_file_at_every_moment(tmp_path: Path) -> None:
    """SIGKILL at ten moments: the old file or the new one is there, and the next run finishes."""
    store = filled(tmp_path / "broker-0.db", rounds=30, payload_bytes=20_000)
    number = in_a_chunk(store)
    with Scalpel(store.path) as scalpel:
        scalpel.flip_payload(FRAGMENT, number)
    script = (
        "import sys, pathlib\n"
        "from shardbus.stores.sqlite.examine.repair import repair_store\n"
        "sys.stdout.write('go\\n'); sys.stdout.flush()\n"
        "repair_store(pathlib.Path(sys.argv[1]), lambda _: None)\n"
    )
    for attempt in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(store.path)], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert child.stdout is not None and child.stdout.readline() == b"go\n"
        try:
            child.wait(0.01 * attempt)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        lost = numbers_in(checked(store.path).damages)
        assert lost in (set(), {number})

    repaired(store.path)
    expected = {one: kept for one, kept in store.shelf.items() if one != number}
    assert served(store.path) == expected


def test_numbers_are_told_as_ranges() -> None:
    assert ranges_of([5, 3, 4, 9, 9]) == [(3, 5), (9, 9)]
