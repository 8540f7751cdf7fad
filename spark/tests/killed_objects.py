"""Batches to a store whose client is killed or stopped at its requests, in a process of its own.

The server has threads here, and clients are forks: the libraries below do not outlive a fork, and
delta-rs keeps Python's lock while it waits.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import pyarrow.parquet as parquet
from spark.tests.captured_rows import LATER_MS, made, written
from spark.tests.fated_server import (
    ANSWERED,
    KILLED,
    LOST,
    PAUSE_S_MAX,
    PAUSED,
    REFUSED,
    environment,
)
from spark.tests.object_server import ObjectServer
from spark.tests.relay import Relay, Upstream

from shardbus_spark.errors import ShardbusError, Unauthorized, Unavailable
from shardbus_spark.tables.bare import STAGED
from shardbus_spark.tables.compaction import compact, compactable
from shardbus_spark.tables.files import Files, files_at
from shardbus_spark.tables.form import DELTA, ICEBERG, PARQUET
from shardbus_spark.tables.layout import HOUR_MS
from shardbus_spark.tables.reading import captured_files

BATCHES: Final = (range(6), range(6, 12))
LATER: Final = (*BATCHES, range(12, 15), range(15, 17), range(17, 20))
APART_MS: Final = HOUR_MS // 4
# In one hour, so that there are few files.
TOGETHER_MS: Final = 1
STEPS_MAX: Final = 200
_SAID_NO: Final = 3

# What a fork would otherwise import again and again; used, they do not outlive one.
PRELOADED: Final = (
    *("obstore.store", "deltalake.transaction", "pyiceberg.catalog.noop", "pyiceberg.io.pyarrow"),
    *("pyiceberg.table.update", "pyiceberg.table.name_mapping", "pyiceberg.transforms"),
)

AnyStore = ObjectServer | Relay


@contextmanager
def _running(upstream: Upstream | None) -> Iterator[AnyStore]:
    """A store of ours, or a real one behind a relay."""
    for name in PRELOADED:
        importlib.import_module(name)
    store: AnyStore = ObjectServer() if upstream is None else Relay(upstream)
    with store.running(), environment(store.environment()):
        yield store


def _url(store: AnyStore, what: str, form: str, step: int) -> str:
    return f"{store.root}/{what}/{form}-{step}"


def kill_commits(form: str, upstream: Upstream | None = None, every: int = 1) -> int:
    """How many requests two batches are; after each kill both are run again, shared out
    otherwise, and every row is there once, also meanwhile. Of so many requests one is tried.
    """
    with _running(upstream) as store:
        for step in range(0, STEPS_MAX, every):
            url = _url(store, "killed", form, step)
            asked = len(store.requests)
            if _ended(store, partial(_write, url, form, 2), _killed_at(store, step)):
                asked = len(store.requests) - asked
                assert _ended(store, partial(_check_rows, url, form))
                return asked
            assert _ended(store, partial(_repeat, url, form)), f"not once after step {step}"
    raise AssertionError(f"more than {STEPS_MAX} requests")


def lose_answers(form: str, upstream: Upstream | None = None) -> int:
    """How many writes two batches are; the answer to each is lost once, though it was done."""
    with _running(upstream) as store:
        for step in range(STEPS_MAX):
            url = _url(store, "lost", form, step)
            at = _Nth("PUT", step, LOST)

            def write(url: str = url) -> None:
                try:
                    _write(url, form, 2)
                except Unavailable:
                    # Spark runs the batch again.
                    _write(url, form, 3)
                _check_rows(url, form)

            assert _ended(store, write, at), f"not once each after loss {step}"
            if at.count <= step:
                return step
    raise AssertionError(f"more than {STEPS_MAX} writes")


def refuse_midway(form: str, fate: str) -> None:
    """The store fails for longer than clients try, or takes its permission back; the error is
    clear, and the next attempt ends what was begun.
    """
    with _running(None) as store:
        url = _url(store, fate, form, 0)
        asked = 0

        def refused(method: str, key: str) -> str:
            nonlocal asked
            asked += 1
            return fate if asked > 9 else ANSWERED

        def write() -> None:
            try:
                _write(url, form, 2)
            except ShardbusError as error:
                wanted = Unavailable if fate == REFUSED else Unauthorized
                assert isinstance(error, wanted), error
                told = "The store is not well" if fate == REFUSED else "not allowed any more"
                assert told in str(error), error
                os._exit(_SAID_NO)

        assert _exit_code(store, write, refused) == _SAID_NO
        assert _ended(store, lambda: _repeat(url, form))


def pause_drivers(form: str, upstream: Upstream | None = None) -> int:
    """How many writes two batches and a compaction are. A driver is stopped at each, while another
    one writes the same batches, further ones, and compacts; then the first goes on, its request
    first of all. Every row is there once, and the table takes batches.
    """
    with _running(upstream) as store:
        for step in range(STEPS_MAX):
            url = _url(store, "paused", form, step)
            at = _Nth("PUT DELETE POST", step, PAUSED)
            old = _started(store, partial(_write_or_refuse, url, form), at)
            store.victim = old
            if not _is_stopped(store, old):
                return step
            assert _exit_code(store, partial(_overtake, url, form), at) == 0, step
            store.victim = old
            store.go_on()
            assert os.waitstatus_to_exitcode(os.waitpid(old, 0)[1]) in (0, _SAID_NO), step
            assert _ended(store, partial(_continue, url, form)), f"step {step}"
    raise AssertionError(f"more than {STEPS_MAX} writes")


def _write_or_refuse(url: str, form: str) -> None:
    try:
        _write(url, form, 2, BATCHES, TOGETHER_MS)
        _compact(url, form)
    except ShardbusError as error:
        sys.stderr.write(f"{error}\n")
        os._exit(_SAID_NO)


def _overtake(url: str, form: str) -> None:
    _write(url, form, 3, BATCHES, TOGETHER_MS)
    if form == ICEBERG:
        # Of old versions of the metadata few are kept, as after hundreds of batches.
        change = _iceberg(url).transaction()
        change.set_properties({"write.metadata.previous-versions-max": "1"})
        change.commit_transaction()
    _write(url, form, 1, LATER, TOGETHER_MS)
    _compact(url, form)
    _check_rows(url, form, LATER)


def _compact(url: str, form: str) -> None:
    if form != PARQUET:
        hours = compactable(url)
        assert hours is not None
        compact(hours, LATER_MS, lambda: False)


def _iceberg(url: str):  # type: ignore[no-untyped-def]  # its library must not be imported before a fork
    from shardbus_spark.tables.iceberg_metadata import open_iceberg

    return open_iceberg(_files(url))


def _continue(url: str, form: str) -> None:
    _check_rows(url, form, LATER)
    table = made(_files(url), form)
    batch = len(LATER)
    table.commit("query", batch, written(table, batch, [[33]]))
    _check_rows(url, form, (*LATER, [33]))
    if form == PARQUET:
        assert not list(_files(url).names(STAGED))


class _Nth:
    """This happens to one of the requests with such methods."""

    def __init__(self, methods: str, at: int, fate: str) -> None:
        self._methods, self._at, self._fate = methods.split(), at, fate
        self.count = 0

    def __call__(self, method: str, key: str) -> str:
        if method not in self._methods:
            return ANSWERED
        self.count += 1
        return self._fate if self.count == self._at + 1 else ANSWERED


def _killed_at(store: AnyStore, step: int) -> Callable[[str, str], str]:
    asked = 0

    def fate(method: str, key: str) -> str:
        nonlocal asked
        asked += 1
        return KILLED if asked > step else ANSWERED

    return fate


def _write(
    url: str,
    form: str,
    tasks: int,
    batches: Sequence[Sequence[int]] = BATCHES,
    apart_ms: int = APART_MS,
) -> None:
    table = made(_files(url), form)
    for batch, rows in enumerate(batches):
        shares: Sequence[Sequence[int]] = [rows[task::tasks] for task in range(tasks)]
        table.commit("query", batch, written(table, batch, shares, apart_ms))


def _repeat(url: str, form: str) -> None:
    assert set(_seen(url, form).values()) <= {1}, "doubled"
    _write(url, form, 3)
    _check_rows(url, form)
    if form == PARQUET:
        assert not list(_files(url).names(STAGED))


def _check_rows(url: str, form: str, batches: Sequence[Sequence[int]] = BATCHES) -> None:
    seen = _seen(url, form)
    assert seen == Counter(row for rows in batches for row in rows), seen


def _seen(url: str, form: str) -> Counter[int]:
    """What readers see; bare files as one sees them who knows nothing of their record."""
    files = _files(url)
    if form == PARQUET:
        names = [file.name for file in files.names("") if file.name.endswith(".parquet")]
    elif form == DELTA and not files.has_directory("_delta_log"):
        return Counter()
    else:
        names = [files.named(path) for path in captured_files(files, form)]
    found: Counter[int] = Counter()
    for name in names:
        rows = parquet.read_table(files.open(name))["sequence_number"].to_pylist()
        found.update(row for row in rows if row is not None)
    return found


def _files(url: str) -> Files:
    files = files_at(url)
    assert files is not None
    return files


def _ended(
    store: AnyStore,
    act: Callable[[], None],
    fate: Callable[[str, str], str] = lambda method, key: ANSWERED,
) -> bool:
    """Whether it ended by itself; false when it was killed."""
    code = _exit_code(store, act, fate)
    assert code in (0, -signal.SIGKILL), "it failed by itself"
    return code == 0


def _exit_code(store: AnyStore, act: Callable[[], None], fate: Callable[[str, str], str]) -> int:
    child = _started(store, act, fate)
    _, status = os.waitpid(child, 0)
    store.victim = 0
    return os.waitstatus_to_exitcode(status)


def _started(store: AnyStore, act: Callable[[], None], fate: Callable[[str, str], str]) -> int:
    """A process that does it, whose requests have this fate."""
    started, go = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(started, 1)
        _exit_after(act)
    store.fate, store.victim = fate, child
    os.close(started)
    os.write(go, b".")
    os.close(go)
    return child


def _is_stopped(store: AnyStore, child: int) -> bool:
    """Whether it was stopped, and did not end before."""
    _, status = os.waitpid(child, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        assert os.waitstatus_to_exitcode(status) == 0
        return False
    assert store.is_paused.wait(PAUSE_S_MAX)
    return True


def _exit_after(act: Callable[[], None]) -> None:
    try:
        act()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)
