"""Batches to a store whose client is killed at each of its requests, in a process for this alone.

The server has threads here, and clients are forks: the libraries below do not outlive a fork, and
delta-rs keeps Python's lock while it waits.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow.parquet as parquet
from spark.tests.captured_rows import made, written
from spark.tests.object_server import (
    ANSWERED,
    BUCKET,
    KILLED,
    LOST,
    REFUSED,
    ObjectServer,
    environment,
)

from shardbus_spark.errors import Unavailable
from shardbus_spark.tables.files import Files, files_at
from shardbus_spark.tables.form import DELTA, PARQUET
from shardbus_spark.tables.layout import HOUR_MS
from shardbus_spark.tables.reading import captured_files

URL: Final = f"s3a://{BUCKET}/captured/orders"
FIRST: Final = range(6)
SECOND: Final = range(6, 12)
APART_MS: Final = HOUR_MS // 4
STEPS_MAX: Final = 200
_SAID_NO: Final = 3


def kill_commits(form: str) -> int:
    """How many requests two batches are; after each kill both are run again, shared out
    otherwise, and every row is there once, also meanwhile.
    """
    store = ObjectServer()
    with store.running(), environment(store.environment()):
        for step in range(STEPS_MAX):
            store.objects.clear()
            if _ended(store, lambda: _write(form, 2), _killed_at(store, step)):
                assert _ended(store, lambda: _check_rows(form))
                return step
            assert _ended(store, lambda: _repeat(form)), f"not once each after step {step}"
            assert form != PARQUET or not store.keys("captured/orders/_shardbus/staged")
    raise AssertionError(f"more than {STEPS_MAX} requests")


def lose_answers(form: str) -> int:
    """How many writes two batches are; the answer to each is lost once, though it was done."""
    store = ObjectServer()
    with store.running(), environment(store.environment()):
        for step in range(STEPS_MAX):
            store.objects.clear()
            writes = 0
            lost = 0

            def fate(method: str, key: str, at: int = step) -> str:
                nonlocal writes, lost
                if method != "PUT":
                    return ANSWERED
                writes += 1
                lost += writes == at + 1
                return LOST if writes == at + 1 else ANSWERED

            def write() -> None:
                try:
                    _write(form, 2)
                except Unavailable:
                    # Spark runs the batch again.
                    _write(form, 3)
                _check_rows(form)

            assert _ended(store, write, fate), f"not once each after loss {step}"
            if not lost:
                return step
    raise AssertionError(f"more than {STEPS_MAX} writes")


def refuse_midway(form: str) -> None:
    """The store fails for longer than clients try; the error is clear, and the next attempt ends
    what was begun.
    """
    store = ObjectServer()
    with store.running(), environment(store.environment()):
        asked = 0

        def fate(method: str, key: str) -> str:
            nonlocal asked
            asked += 1
            return REFUSED if asked > 9 else ANSWERED

        def write() -> None:
            try:
                _write(form, 2)
            except Exception as error:  # noqa: BLE001 - each form has its own
                assert "The store is not well" in str(error) or "InternalError" in str(error), error
                os._exit(_SAID_NO)

        assert _exit_code(store, write, fate) == _SAID_NO
        assert _ended(store, lambda: _repeat(form))


def _killed_at(store: ObjectServer, step: int) -> Callable[[str, str], str]:
    asked = 0

    def fate(method: str, key: str) -> str:
        nonlocal asked
        asked += 1
        return KILLED if asked > step else ANSWERED

    return fate


def _write(form: str, tasks: int) -> None:
    table = made(_files(), form)
    for batch, rows in enumerate((FIRST, SECOND)):
        shares: Sequence[Sequence[int]] = [rows[task::tasks] for task in range(tasks)]
        table.commit("query", batch, written(table, batch, shares, APART_MS))


def _repeat(form: str) -> None:
    assert set(_seen(form).values()) <= {1}, "doubled"
    _write(form, 3)
    _check_rows(form)


def _check_rows(form: str) -> None:
    assert _seen(form) == Counter([*FIRST, *SECOND]), _seen(form)


def _seen(form: str) -> Counter[int]:
    """What readers see; bare files as one sees them who knows nothing of their record."""
    files = _files()
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


def _files() -> Files:
    files = files_at(URL)
    assert files is not None
    return files


def _ended(
    store: ObjectServer,
    act: Callable[[], None],
    fate: Callable[[str, str], str] = lambda method, key: ANSWERED,
) -> bool:
    """Whether it ended by itself; false when it was killed."""
    code = _exit_code(store, act, fate)
    assert code in (0, -signal.SIGKILL), "it failed by itself"
    return code == 0


def _exit_code(
    store: ObjectServer, act: Callable[[], None], fate: Callable[[str, str], str]
) -> int:
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
    _, status = os.waitpid(child, 0)
    store.victim = 0
    return os.waitstatus_to_exitcode(status)


def _exit_after(act: Callable[[], None]) -> None:
    try:
        act()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)
