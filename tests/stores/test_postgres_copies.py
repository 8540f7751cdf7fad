"""A slot read by others than its broker: in bulk, copied into a file, examined."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shardbus.app.server.store_kinds import stores_of
from shardbus.core.fragment.change import StagePut
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, Journal
from shardbus.core.lifecycle.rows import CONSUME, unpacked
from shardbus.core.limits import LIFECYCLE_MS_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.stores.base.bulk import BulkAsk
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError, UnknownFragment
from shardbus.stores.postgres.bulk import PostgresBulk
from shardbus.stores.postgres.copy import PostgresSnapshot
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import FRAGMENTS, SESSIONFUL, SESSIONS, fill
from tests.stores.harness import Facts, Pen, PostgresCase, page_facts
from tests.stores.test_bulk import ALL_STATES, browsed, ranges, read_in_bulk
from tests.unit.stores.test_catalogue import entity

SHARED = [FragmentId(20, 0), FragmentId(21, 0)]
MINE = "a" * 32


@pytest.fixture
def case(tmp_path: Path) -> Iterator[PostgresCase]:
    """A slot with everything that there can be in one, and a catalogue."""
    opened = PostgresCase()
    opened.store.join(MINE)
    catalogue = stores_of(tmp_path, opened.address.url).open_catalogue(now_ms=5, new_id=MINE)
    catalogue.put(entity(1, "q"))
    catalogue.finish(1)
    catalogue.close()
    fill(opened.store, Path(), rounds=6, payload_bytes=300)
    pens = [Pen(fragment) for fragment in SHARED]
    opened.store.create(SHARED)
    payloads = [bytes([at]) * 1_000 for at in range(1, 9)]
    for pen in pens:
        pen.append(payloads)
    pens[0].changes.append(StagePut(b"stage", 1, b"data", [b"kept", b"beside"]))
    pens[0].record(3, b"key", b"record")
    opened.store.commit([pen.commit() for pen in pens])
    yield opened
    opened.close()


def everything(store: MessageStore) -> dict[str, object]:
    found: dict[str, object] = {"fragments": sorted(store.fragments())}
    for fragment in store.fragments():
        for line in (MAIN_LINE, DEAD_LETTER_LINE):
            page = store.browse(fragment, line, start=0, count_max=10_000, bytes_max=1 << 30)
            shown: tuple[list[Facts], list[int], bool] = page_facts(page)
            found[f"{fragment} {line}"] = shown
        image = store.load(fragment)
        found[f"{fragment} image"] = (
            image.next_due_ms,
            image.records,
            [(one.at_ms, one.digests) for one in image.remembered],
            image.counters.last_counter,
        )
        found[f"{fragment} stage"] = store.read_stage(fragment, b"stage")
        found[f"{fragment} journal"] = store.read_stage(fragment, LIFECYCLE_STAGE)
        page_of_sessions = store.read_sessions(fragment, after=0, count_max=100)
        found[f"{fragment} sessions"] = (
            page_of_sessions.sessions,
            store.list_sessions(fragment, updated_after_ms=-1, skip=0, count_max=100),
        )
    found["states"] = [store.read_state(SESSIONFUL, name) for name in SESSIONS]
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_bulk_read_gives_what_browsing_gives(case: PostgresCase, seed: int) -> None:
    """P1, R39"""
    dice = random.Random(seed)
    with PostgresBulk(case.address, 0) as source:
        for _ in range(20):
            fragment = dice.choice([*FRAGMENTS, *SHARED])
            line = dice.choice([MAIN_LINE, MAIN_LINE, DEAD_LETTER_LINE])
            states = tuple(dice.sample(ALL_STATES, dice.randrange(1, 5)))
            ask = BulkAsk(fragment.number, line, ranges(dice, fragment), states)
            assert read_in_bulk(source, fragment, ask) == browsed(case.store, fragment, ask)
        assert source.first_number(source.local(SHARED[0]), 0, MAIN_LINE) == 1
        assert source.is_current()
        sessionful = source.local(SESSIONFUL)
        kept = [source.state(sessionful, name.upper()) for name in SESSIONS]
        assert kept == [case.store.read_state(SESSIONFUL, name) for name in SESSIONS]
        assert any(kept)
        with pytest.raises(UnknownFragment):
            source.local(FragmentId(99, 0))
    with pytest.raises(StoreError, match="holds no store broker-7 yet"):
        PostgresBulk(case.address, 7)


def test_lifecycle_records_are_read_in_bulk_with_the_oldest_that_is_kept(
    case: PostgresCase,
) -> None:
    """P8, R39"""
    pen = Pen(SHARED[1])
    journal = Journal(None, 1_000, is_on=True)
    for number in range(1, 5):
        journal.at_ms += LIFECYCLE_MS_MAX // 2
        journal.gone(CONSUME, [number])
        pen.changes += journal.take()
    case.store.commit([pen.commit()])

    with PostgresBulk(case.address, 0) as source:
        slab = source.blocks(source.local(SHARED[1]), 0, 100)
        nothing = source.blocks(source.local(SHARED[0]), 0, 100)

    assert slab.first == journal.first > 1
    assert slab.numbers == list(range(journal.first, 5))
    kept = [unpacked(data).numbers for data in slab.blocks if data is not None]
    assert kept == [[number] for number in slab.numbers]
    assert (slab.until, nothing.first, nothing.numbers) == (100, 1, [])


def test_a_bulk_reader_cannot_write(case: PostgresCase) -> None:
    with (
        PostgresBulk(case.address, 0) as source,
        pytest.raises(StoreError, match="read-only transaction"),
    ):
        source._link.execute("DELETE FROM chunk")


def test_a_copy_is_a_file_with_the_same_in_it(case: PostgresCase, tmp_path: Path) -> None:
    """R43"""
    snapshot = PostgresSnapshot(case.address, 0)
    before = everything(case.store)
    pen = Pen(SHARED[1], case.store.load(SHARED[1]).counters)
    pen.append([b"later"])
    pen.write(case.store)
    watched: list[int] = []
    path = tmp_path / "broker-0.db"

    copied = snapshot.copy(path, watched.append)
    snapshot.close()

    assert copied.size_bytes == path.stat().st_size and copied.fragments == 6
    assert watched == sorted(watched) and watched[-1] > 0
    report = check_store(path, lambda _: None)
    assert [damage.what for damage in report.damages] == []
    assert report.namespace_id == MINE and report.pieces == 1
    file = SqliteStore(path)
    assert everything(file) == before
    assert file.highest_entity_id() == case.store.highest_entity_id() == 21
    file.close()
    again = PostgresSnapshot(case.address, 0)
    with closing(again), pytest.raises(StoreError, match="cannot be made"):
        again.copy(path, watched.append)


def test_check_names_what_is_damaged(case: PostgresCase, tmp_path: Path) -> None:
    stores = stores_of(tmp_path, case.address.url)
    with pytest.raises(StoreError, match="is being served"):
        stores.check("broker-0", lambda _: None)
    case.store.close()

    sound = stores.check("broker-0", lambda _: None)
    case.damage(SHARED[0], 3)
    found = stores.check("broker-0", lambda _: None)
    known = stores.check_catalogue()

    assert sound.damages == [] and sound.messages > 100
    ranges_by_entity = {(each.entity_id, *each.ranges) for each in found.damages if each.ranges}
    assert ranges_by_entity == {(20, (3, 3)), (21, (3, 3))}
    assert {each.file for each in found.damages} == {f"broker-0 in {case.address.shown}"}
    assert [each.name for each in known.entities] == ["q"] and known.damages == []
    assert known.namespace_id == MINE
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="cannot be repaired in place: restore a copy"):
        stores.repair("broker-0", lambda _: None)


def test_the_command_examines_a_database(case: PostgresCase, tmp_path: Path) -> None:
    case.store.close()
    case.execute("DELETE FROM entity")
    command = [sys.executable, "-m", "shardbus", "check", str(tmp_path), "--json"]
    command += ["--store", case.address.url]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["damage"], len(document["orphans"])) == ([], 3), document
