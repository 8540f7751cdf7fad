"""A namespace moves between kinds of stores: all of it, whenever the move is interrupted (R43)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.main import main
from shardbus.app.server.data_directory import data_directory
from shardbus.app.server.store_kinds import stores_of
from shardbus.core.fragment.change import StagePut
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.namespace.access import SEND, AccessRule
from shardbus.core.namespace.entity import Entity, EntitySpec, FragmentHome
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.stores.base.package import Stores
from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import fill
from tests.stores.harness import Pen, Scalpel
from tests.stores.test_postgres_copies import everything
from tests.support.postgres import server
from tests.unit.stores.test_catalogue import entity

MINE = "a" * 32
SHARED = [FragmentId(20, 0), FragmentId(21, 0)]
NAMES = ["broker-0", "broker-1"]


class Interrupted(BaseException):
    """As a kill: nothing after it is done, except what the system does for a dead process."""


def filled_directory(directory: Path) -> Path:
    """Two stores with everything that there can be in one, a catalogue, a pipeline."""
    directory.mkdir()
    stores = stores_of(directory)
    catalogue = stores.open_catalogue(now_ms=5, new_id=MINE)
    catalogue.put(_queue())
    catalogue.begin(entity(2, "unfinished"))
    catalogue.set_rules([AccessRule("send", SEND, "k" * 43 + "=", "s" * 43 + "=")])
    catalogue.close()
    for seed, name in enumerate(NAMES):
        path = directory / f"{name}.db"
        with closing(SqliteStore(path, durability="relaxed", recent_max=5)) as store:
            store.join(MINE)
            fill(store, path, rounds=4, seed=seed, payload_bytes=300)
            _add_shared(store, seed)
    (directory / "pipelines").mkdir()
    (directory / "pipelines" / "archive.json").write_text('{"intent": "run"}', encoding="utf-8")
    return directory


def _queue() -> Entity:
    made = Entity(7, "q", EntitySpec(), 1000)
    made.fragments = [FragmentHome(number, number // 2) for number in range(4)]
    made.hash_starts = even_hash_starts(4)
    return made


def _add_shared(store: SqliteStore, seed: int) -> None:
    store.create(SHARED)
    pens = [Pen(fragment) for fragment in SHARED]
    payloads = [bytes([at + seed]) * 1_000 for at in range(1, 9)]
    for pen in pens:
        pen.append(payloads)
    pens[0].changes.append(StagePut(b"stage", 1, b"data", [b"kept", b"beside"]))
    pens[0].record(3, b"key", b"record")
    store.commit([pen.commit() for pen in pens])
    for number in range(1, 12):
        # Of a journal a piece by itself, one of several blocks, and an open one.
        block = bytes([number + seed]) * (2_000 if number == 1 else 150)
        pens[1].changes.append(StagePut(LIFECYCLE_STAGE, number, block, is_new=True))
        pens[1].write(store)
    # Not in the order of fragments, so that numbers in keys differ from those in a database.
    store.create([FragmentId(30, 0)])
    store.delete([FragmentId(30, 0)])


@pytest.fixture
def database() -> Iterator[str]:
    name = server().new_database()
    yield server().url(name)
    server().drop_database(name)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return filled_directory(tmp_path / "source")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["move", *map(str, arguments)])


def moved(*arguments: str | Path) -> dict[str, object]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: object = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def contents(stores: Stores, names: Sequence[str] = ()) -> dict[str, object]:
    """All that those who serve would see; of some stores, or of all."""
    found: dict[str, object] = {}
    for name in names or stores.names():
        kept = stores.open_store(name)
        kept.join(MINE, is_empty_expected=False)
        found[name] = everything(kept.store)
        kept.store.close()
    with closing(stores.open_catalogue(now_ms=0, new_id="")) as catalogue:
        found["catalogue"] = (
            catalogue.namespace_id(),
            catalogue.created_at_ms(),
            [each.to_json() for each in catalogue.entities()],
            [each.entity.to_json() for each in catalogue.unfinished()],
            [rule.to_document() for rule in catalogue.rules()],
            catalogue.reserve_id(),
        )
    return found


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.db")}


def contents_of_copy(directory: Path, at: Path) -> dict[str, object]:
    shutil.copytree(directory, at)
    return contents(stores_of(at))


def test_a_directory_moves_into_a_database_and_back(
    source: Path, database: str, tmp_path: Path
) -> None:
    """R43: message by message, with everything beside them; the source stays as it was."""
    before, files = contents_of_copy(source, tmp_path / "copy"), bytes_of(source)

    told = moved("--from", f"sqlite:{source}", "--to", database)

    assert bytes_of(source) == files
    assert contents(stores_of(source, database)) == before
    compared = told["compared"]
    assert isinstance(compared, dict)
    assert compared["pieces of stages"] == 10 and compared["records of kind 3"] == 2
    assert {"messages", "dead letters", "session states", "remembered ids"} <= set(compared)

    back = tmp_path / "back"
    moved("--from", database, "--data-dir", source, "--to", f"sqlite:{back}")

    assert contents(stores_of(back)) == before
    assert (back / "pipelines" / "archive.json").read_text() == '{"intent": "run"}'
    check = CliRunner().invoke(main, ["check", str(back)])
    assert check.exit_code == 0, check.output


def test_neither_what_was_moved_nor_what_is_incomplete_is_served(
    source: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43, D17"""
    arguments = ("--from", f"sqlite:{source}", "--to", database)
    _interrupt_at(monkeypatch, 40)
    with pytest.raises(Interrupted):
        CliRunner().invoke(main, ["move", *arguments], catch_exceptions=False)
    monkeypatch.undo()

    _refuses(stores_of(source), "is being moved to")
    _refuses(stores_of(source, database), "is not complete")

    moved(*arguments)

    _refuses(stores_of(source), "was moved to")
    contents(stores_of(source, database))
    # As after a kill of a run that could not say that it had ended.
    again = run(*arguments)
    assert again.exit_code == 0 and "all of them compared" in again.stdout
    elsewhere = run("--from", f"sqlite:{source}", "--to", f"sqlite:{source.parent / 'elsewhere'}")
    assert elsewhere.exit_code == 1 and "was moved to" in elsewhere.stderr

    assert run("--from", f"sqlite:{source}", "--release").exit_code == 0
    contents(stores_of(source))


def _refuses(stores: Stores, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        stores.check_start()
    with pytest.raises(StoreError, match=why):
        stores.open_catalogue(now_ms=0, new_id=MINE)
    with pytest.raises(StoreError, match=why):
        stores.open_store("broker-0").join(MINE, is_empty_expected=False)


def _interrupt_at(monkeypatch: pytest.MonkeyPatch, count: int) -> Callable[[], bool]:
    """Let a process die before its so-many-th statement or renaming; whether it did."""
    calls = 0
    real = {name: getattr(Link, name) for name in ("fetch", "execute")}
    real_replace, real_rename = Path.replace, Path.rename

    def step() -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            raise Interrupted
        assert calls < count, "a dead process does nothing"

    def fetch(link: Link, *arguments: object) -> object:
        step()
        return real["fetch"](link, *arguments)

    def execute(link: Link, script: str) -> object:
        step()
        return real["execute"](link, script)

    def replace(path: Path, target: Path) -> Path:
        step()
        return real_replace(path, target)

    def rename(path: Path, target: Path) -> Path:
        step()
        return real_rename(path, target)

    monkeypatch.setattr(Link, "fetch", fetch)
    monkeypatch.setattr(Link, "execute", execute)
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "rename", rename)
    return lambda: calls >= count


def _interrupted_everywhere(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], stride: int
) -> int:
    """Run a move that dies a few steps later each time, until one is through; how often it died."""
    deaths = 0
    for count in range(1, 100_000, stride):
        _interrupt_at(monkeypatch, count)
        try:
            done = CliRunner().invoke(main, ["move", *arguments], catch_exceptions=False)
        except Interrupted:
            deaths += 1
            continue
        finally:
            monkeypatch.undo()
        assert done.exit_code == 0, done.output
        return deaths
    raise AssertionError("the move never ends")


@pytest.mark.parametrize("stride", [71, pytest.param(5, marks=pytest.mark.release)])
def test_a_move_into_a_database_may_be_interrupted_anywhere(
    source: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    """R43"""
    before, files = contents_of_copy(source, tmp_path / "copy"), bytes_of(source)

    deaths = _interrupted_everywhere(
        monkeypatch, ["--from", f"sqlite:{source}", "--to", database], stride
    )

    assert deaths >= 2
    assert contents(stores_of(source, database)) == before
    assert bytes_of(source) == files


@pytest.mark.parametrize("stride", [151, pytest.param(17, marks=pytest.mark.release)])
def test_a_move_out_of_a_database_may_be_interrupted_anywhere(
    source: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    """R43"""
    before = contents_of_copy(source, tmp_path / "copy")
    moved("--from", f"sqlite:{source}", "--to", database)
    back = tmp_path / "back"

    deaths = _interrupted_everywhere(
        monkeypatch,
        ["--from", database, "--data-dir", str(source), "--to", f"sqlite:{back}"],
        stride,
    )

    assert deaths >= 1
    assert contents(stores_of(back)) == before
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


@pytest.mark.long
def test_a_killed_move_continues(source: Path, database: str, tmp_path: Path) -> None:
    """R43: with a real SIGKILL, at moments that nobody chose."""
    before = contents_of_copy(source, tmp_path / "copy")
    command = [sys.executable, "-m", "shardbus", "move", "--from", f"sqlite:{source}"]
    for attempt in range(40):
        process = subprocess.Popen(
            [*command, "--to", database], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # The first ones die while they start, the later ones further on, however slow the machine.
        deadline = time.monotonic() + 0.4 * 1.15**attempt
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        if process.wait(30) == 0:
            break
    else:
        raise AssertionError("the move never ends")

    assert contents(stores_of(source, database)) == before


def test_what_is_served_is_not_moved(source: Path, database: str, tmp_path: Path) -> None:
    """R43: nothing is changed then."""
    arguments = ("--from", f"sqlite:{source}", "--to", database)
    with data_directory(source):
        done = run(*arguments)
    assert done.exit_code == 3 and "served by another process" in done.stderr
    with closing(SqliteStore(source / "broker-1.db")):
        done = run(*arguments)
    assert done.exit_code == 3 and "broker-1.db: another process serves" in done.stderr
    contents(stores_of(source))

    moved(*arguments)
    address = stores_of(source, database).open_store("broker-1")
    address.join(MINE, is_empty_expected=False)
    back = ("--from", database, "--data-dir", source, "--to", f"sqlite:{tmp_path / 'back'}")
    done = run(*back)
    assert done.exit_code == 3 and "is being served" in done.stderr
    address.store.close()
    moved(*back)


def test_a_target_that_is_not_empty_is_refused(source: Path, database: str, tmp_path: Path) -> None:
    """R43: nothing is changed then, on either side."""
    other = filled_directory(tmp_path / "other")
    moved("--from", f"sqlite:{other}", "--to", database)
    full = contents(stores_of(other, database))

    done = run("--from", f"sqlite:{source}", "--to", database)
    assert done.exit_code == 1
    assert (
        f"belongs to the namespace {MINE}" in done.stderr and "Nothing was changed" in done.stderr
    )
    assert contents(stores_of(other, database)) == full

    done = run("--from", f"sqlite:{source}", "--to", f"sqlite:{other}")
    assert done.exit_code == 2 and "is not empty" in done.stderr
    contents(stores_of(source))


def test_a_database_that_another_move_fills_is_refused(
    source: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = filled_directory(tmp_path / "other")
    _interrupt_at(monkeypatch, 60)
    with pytest.raises(Interrupted):
        CliRunner().invoke(
            main, ["move", "--from", f"sqlite:{other}", "--to", database], catch_exceptions=False
        )
    monkeypatch.undo()

    done = run("--from", f"sqlite:{source}", "--to", database)

    assert done.exit_code == 1 and "partly filled" in done.stderr and str(other) in done.stderr
    contents(stores_of(source))
    # Given up, the source is served again, and a second move begins anew: elsewhere.
    assert run("--from", f"sqlite:{other}", "--release").exit_code == 0
    contents(stores_of(other))
    done = run("--from", f"sqlite:{other}", "--to", database)
    assert done.exit_code == 1 and "by another move" in done.stderr


def test_damage_does_not_move_into_a_database(source: Path, database: str) -> None:
    with Scalpel(source / "broker-0.db") as scalpel:
        [(number,), *_] = scalpel.execute("SELECT id FROM chunk ORDER BY id LIMIT 1")
        assert isinstance(number, int)
        scalpel._flip("chunk", "id", number, "head", 20)

    done = run("--from", f"sqlite:{source}", "--to", database)

    assert done.exit_code == 1
    assert "is damaged" in done.stderr and "check --repair" in done.stderr
    assert not (source / "moved.json").exists()

    assert CliRunner().invoke(main, ["check", str(source), "--repair"]).exit_code == 0
    moved("--from", f"sqlite:{source}", "--to", database)


def test_a_damaged_database_moves_as_it_is(source: Path, database: str, tmp_path: Path) -> None:
    """A database is not repaired in place; a directory can be."""
    moved("--from", f"sqlite:{source}", "--to", database)
    with closing(Link(Address(database), {"search_path": "shardbus"})) as link:
        link.execute("UPDATE chunk SET head = '' WHERE first = (SELECT min(first) FROM chunk)")
    back = tmp_path / "back"

    done = run("--from", database, "--data-dir", source, "--to", f"sqlite:{back}", "--json")

    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout)["damage"] > 0
    assert CliRunner().invoke(main, ["check", str(back), "--repair"]).exit_code == 0


def test_a_difference_is_found(
    source: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43: one lost record of a fragment is enough."""
    real = Link.fetch

    def forgetful(link: Link, sql: str, *arguments: object) -> object:
        found = real(link, sql, *arguments)
        if "INSERT INTO remembered" in sql:
            real(link, "DELETE FROM remembered WHERE key = (SELECT max(key) FROM remembered)")
        return found

    monkeypatch.setattr(Link, "fetch", forgetful)

    done = run("--from", f"sqlite:{source}", "--to", database)

    assert done.exit_code == 1
    assert "remembered ids of fragment 3 of entity 7" in done.stderr
    monkeypatch.undo()
    _refuses(stores_of(source, database), "is not complete")


def test_the_owner_before_writes_nothing_more(source: Path, database: str, tmp_path: Path) -> None:
    """R40: also one that holds no lock, because it is just connecting again."""
    moved("--from", f"sqlite:{source}", "--to", database)
    kept = stores_of(source, database).open_store("broker-0")
    kept.join(MINE, is_empty_expected=False)
    pen = Pen(FragmentId(7, 0), kept.store.load(FragmentId(7, 0)).counters)
    _without_lock(database)
    moved("--from", database, "--data-dir", source, "--to", f"sqlite:{tmp_path / 'back'}")

    pen.append([b"late"])
    with pytest.raises(StoreError):
        pen.write(kept.store)
    kept.store.close()


def _without_lock(database: str) -> None:
    """End all sessions that hold the lock of those who serve."""
    with closing(Link(Address(database), {})) as link:
        link.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            "AND pid <> pg_backend_pid()"
        )
        deadline = time.monotonic() + 10
        sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        while link.fetch(sql)[0][0] and time.monotonic() < deadline:
            time.sleep(0.01)


def test_a_backup_is_restored_into_a_database(
    source: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43: interrupted, it continues; pipelines rest."""
    before = contents_of_copy(source, tmp_path / "copy")
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    done = CliRunner().invoke(main, ["backup", "--offline", str(source), str(backup)])
    assert done.exit_code == 0, done.output
    arguments = ["restore", str(backup), str(restored), "--store", database]
    for count in (30, 90, 150):
        _interrupt_at(monkeypatch, count)
        with pytest.raises(Interrupted):
            CliRunner().invoke(main, arguments, catch_exceptions=False)
        monkeypatch.undo()

    done = CliRunner().invoke(main, arguments)

    assert done.exit_code == 0, done.output
    assert "everything is sound" in done.stdout
    assert sorted(path.name for path in restored.rglob("*")) == ["archive.json", "pipelines"]
    assert json.loads((restored / "pipelines" / "archive.json").read_text())["intent"] == "rest"
    assert contents(stores_of(restored, database)) == before

    again = CliRunner().invoke(
        main, ["restore", str(backup), str(tmp_path / "b"), "--store", database]
    )
    assert again.exit_code == 0, again.output


def test_a_database_is_backed_up_while_nobody_serves_it(
    source: Path, database: str, tmp_path: Path
) -> None:
    """R43"""
    before = contents_of_copy(source, tmp_path / "copy")
    moved("--from", f"sqlite:{source}", "--to", database)
    offline = ["backup", "--offline", str(source), str(tmp_path / "backup"), "--store", database]
    done = CliRunner().invoke(main, offline)
    assert done.exit_code == 0, done.output

    done = CliRunner().invoke(main, ["restore", str(tmp_path / "backup"), str(tmp_path / "back")])

    assert done.exit_code == 0, done.output
    assert contents(stores_of(tmp_path / "back")) == before


def test_a_command_that_makes_no_sense_is_refused(source: Path, database: str) -> None:
    for arguments, why in (
        (["--from", "sqlite:", "--to", database], "names no directory"),
        (["--from", database, "--to", f"sqlite:{source}"], "--data-dir"),
        (["--from", f"sqlite:{source}", "--to", f"sqlite:{source}"], "to itself"),
        (["--from", f"sqlite:{source}"], "either --to STORE or --release"),
        (["--from", f"sqlite:{source}", "--release"], "is not marked"),
        (["--from", "redis:x", "--to", database, "--data-dir", "."], "is not a kind of store"),
        (["--from", f"sqlite:{source / 'nothing'}", "--to", database], "is not a directory"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2 and why in done.stderr, (arguments, done.output)
