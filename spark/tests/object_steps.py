"""What tests do to tables in an object store, in a process that has no server in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Final

import pyarrow.parquet as parquet
from spark.tests.captured_rows import LATER_MS, made, written
from spark.tests.object_server import BUCKET

from shardbus_spark.errors import BatchDiffers, OptionError, ShardbusError, Unavailable
from shardbus_spark.tables.compaction import CannotCompact, compact, compactable
from shardbus_spark.tables.files import Files, files_at
from shardbus_spark.tables.form import FORMS, PARQUET
from shardbus_spark.tables.reading import captured_files
from shardbus_spark.triage.driver import REPORT
from shardbus_spark.triage.shelf import Shelf, name_of
from tests.support.ports import free_port

LARGE_BYTES: Final = 11 * 1024 * 1024


def make_table(url: str, form: str) -> None:
    """Of two batches with seven rows, and with a third that was never committed."""
    table = made(_files(url), form)
    table.commit("query", 0, written(table, 0, [[0, 1], [2]], entity="orders"))
    table.commit("query", 1, written(table, 1, [[3, 4, 5, 6]], entity="orders"))
    written(table, 2, [[7]], entity="orders")


def commit_and_compact(url: str, form: str) -> dict[str, object]:
    """What a table says to batches, repeated and other, and its rows before and after the end of
    its hour.
    """
    files = _files(url)
    table = made(files, form)
    batches = [(0, [[0, 7]]), (1, [[1], [8]]), (2, [[2], [], [9]]), (2, [[9, 2]])]
    told: dict[str, object] = {}
    told["taken"] = [
        table.commit("query", batch, written(table, batch, tasks)) for batch, tasks in batches
    ]
    for name, query, batch, numbers, expected in (
        ("differs", "query", 2, [2, 10], BatchDiffers),
        ("owner", "another", 0, [5], OptionError),
    ):
        attempt = written(table, batch, [numbers])
        try:
            table.commit(query, batch, attempt)
        except expected as error:
            told[name] = str(error)
        table.discard(attempt)
    try:
        made(files, next(other for other in FORMS if other != form)).commit("query", 3, [])
    except OptionError as error:
        told["form"] = str(error)
    told = {name: _shortened(value) for name, value in told.items()}
    told["rows"] = rows_in(files, form)
    _compact(url)
    told["files"] = len(captured_files(files, form))
    table.commit("query", 3, written(table, 3, [[33]]))
    return {**told, "after": rows_in(files, form)}


def kept_reports(url: str) -> dict[str, object]:
    """Which reports of a triage there are, after three were made and one was cut off."""
    files = _files(url)
    shelf = Shelf(files)
    before = shelf.newest("mine")
    names = [name_of(datetime(2026, 1, day, tzinfo=UTC)) for day in range(1, 5)]
    for name in names:
        shelf.begin(name)
        files.create(f"{name}/letters/part-0.parquet", b"letters")
        if name != names[-1]:
            files.create(f"{name}/{REPORT}", b'{"selection": "mine"}')
    newest = shelf.newest("mine")
    shelf.clean(2)
    return {
        "before": before,
        "newest": newest == datetime(2026, 1, 3, tzinfo=UTC),
        "other": shelf.newest("other"),
        "kept": sorted({file.name.partition("/")[0] for file in files.names("")}) == names[1:3],
    }


def _shortened(value: object) -> object:
    """The part of an error that says what is wrong."""
    text = str(value)
    for part in (", and these", ": continuing", ", not"):
        text = text.partition(part)[0]
    for start in ("was captured", "in the form"):
        text = text[text.find(start) :] if start in text else text
    return text if isinstance(value, str) else value


def _compact(url: str) -> None:
    try:
        hours = compactable(url)
    except CannotCompact as error:
        assert "bare Parquet files in an object store" in str(error)
        return
    assert hours is not None
    compact(hours, LATER_MS, lambda: False)
    hours.clean()


def two_writers(url: str, form: str) -> list[int]:
    """The rows after two drivers of one query have written the same two batches at once, again
    and again until both are told that they are there.
    """
    both = Barrier(2)

    def write(tasks: list[list[int]]) -> None:
        table = made(_files(url), form)
        for batch in (0, 1):
            shares = [[number + 2 * batch for number in task] for task in tasks]
            both.wait()
            for _attempt in range(10):
                attempt = written(table, batch, shares)
                try:
                    table.commit("query", batch, attempt)
                except Unavailable:
                    table.discard(attempt)
                except ShardbusError as error:
                    assert "must be written again" in str(error)
                else:
                    break

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, tasks) for tasks in ([[1, 2]], [[2], [1]])]:
            done.result()
    return rows_in(_files(url), form)


def write_large(url: str, name: str) -> str:
    """What is said when an object of several parts is written; nothing when it is there."""
    files = _files(url)
    new = files.new(name)
    assert not isinstance(new.sink, Path)
    new.sink.write(os.urandom(LARGE_BYTES))
    try:
        new.finish()
    except ShardbusError as error:
        return str(error)
    found = files.open(name)
    assert not isinstance(found, Path)
    with found:
        assert len(found.read()) == LARGE_BYTES
    return ""


def messages_of_errors(right: Mapping[str, str]) -> dict[str, str]:
    """What is said about a bucket that is not there, a wrong key, and a store that is not."""
    absent = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    cases = {
        "bucket": ("s3a://absent/captured", dict(right)),
        "key": (f"s3a://{BUCKET}/captured", {**right, "AWS_ACCESS_KEY_ID": "SOMEBODY"}),
        "nobody": (f"s3a://{BUCKET}/captured", {**right, **absent}),
    }
    told: dict[str, str] = {}
    for name, (url, variables) in cases.items():
        os.environ.update(variables)
        try:
            _files(url).read("_shardbus/state.json")
        except ShardbusError as error:
            told[name] = f"{type(error).__name__}: {error}"
    return told


def rows_in(files: Files, form: str) -> list[int]:
    """The numbers of the rows, as bare files or through the table."""
    if form == PARQUET:
        names = [file.name for file in files.names("") if file.name.endswith(".parquet")]
    else:
        names = [files.named(path) for path in captured_files(files, form)]
    found: list[int] = []
    for name in names:
        rows = parquet.read_table(files.open(name))["sequence_number"].to_pylist()
        found += [row for row in rows if row is not None]
    return sorted(found)


def _files(url: str) -> Files:
    files = files_at(url)
    assert files is not None
    return files
