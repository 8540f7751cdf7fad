"""The lines of spark/README.md for programs that take Arrow, run as they are written (P1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
import pyarrow as pa
import pytest
from spark.tests.bus import Bus
from spark.tests.strangers import printed

README: Final = Path(__file__).parents[1] / "README.md"
ADDRESS: Final = "grpc://localhost:5301"
ENTITIES: Final = '[[queue]]\nname = "orders"\npartitioning = true\n'
SUBJECTS: Final = ("paid", "sent", None)
COUNT: Final = 60
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW: Final = re.compile(r"^\| (\w+) \| `(.+)` \|$", re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def orders(bus: Bus) -> None:
    bus.send(
        "orders",
        [
            {"body": f"{at}", "partition_key": f"{at % 7}", "subject": SUBJECTS[at % 3]}
            if SUBJECTS[at % 3]
            else {"body": f"{at}", "partition_key": f"{at % 7}"}
            for at in range(COUNT)
        ],
    )


def section() -> str:
    return README.read_text("utf-8").partition("## A table in three lines")[2].partition("\n## ")[0]


def run(bus: Bus, *sources: str) -> dict[str, object]:
    """The names that code of the page has set, and `shown`, the value of its last line."""
    names: dict[str, object] = {"pyarrow": pa}
    *code, last = "\n".join(sources).replace(ADDRESS, bus.url).strip().splitlines()
    exec(compile("\n".join(code), str(README), "exec"), names)
    names["shown"] = eval(last, names)
    return names


def line_of(program: str) -> str:
    lines: dict[str, str] = dict(_ROW.findall(section()))
    return lines[program]


def reader_of(bus: Bus, program: str) -> dict[str, object]:
    table, reader = _BLOCK.findall(section())
    first = table.splitlines()[0]
    return run(bus, first, reader.partition("for batch")[0], line_of(program))


def bodies(found: Iterable[bytes | None]) -> list[int]:
    return sorted(int(body or b"-1") for body in found)


def test_three_lines_are_a_pandas_frame(bus: Bus) -> None:
    """P1"""
    frame = run(bus, _BLOCK.findall(section())[0])["shown"]

    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["sequence_number", "body"]
    assert bodies(frame["body"].to_list()) == list(range(COUNT))


def test_pandas_takes_a_reader(bus: Bus) -> None:
    """P1: absent values are null."""
    frame = reader_of(bus, "pandas")["shown"]

    assert isinstance(frame, pd.DataFrame)
    assert Counter(frame["subject"].to_list()) == dict.fromkeys(SUBJECTS, COUNT // 3)
    assert bodies(frame["body"].to_list()) == list(range(COUNT))


def test_pyarrow_takes_a_reader_by_the_interface_that_polars_and_duckdb_use(bus: Bus) -> None:
    """P1"""
    names = reader_of(bus, "pyarrow")
    table, reader = names["shown"], names["reader"]

    assert isinstance(table, pa.Table)
    assert hasattr(reader, "__arrow_c_stream__")
    assert table.schema.names == ["subject", "body"]
    assert bodies(table["body"].to_pylist()) == list(range(COUNT))


@pytest.mark.release
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("program", "count"), [("polars", "shown.height"), ("DuckDB", "sum(shown.fetchnumpy()['n'])")]
)
def test_polars_and_duckdb_take_a_reader(
    bus: Bus, strangers: str, program: str, count: str
) -> None:
    """P1: in a Python of their own, which has Arrow and this client, and no Spark."""
    table, reader = _BLOCK.findall(section())
    source = "\n".join(
        [
            f"import {program.lower()}",
            table.splitlines()[0],
            reader.partition("for batch")[0].replace(ADDRESS, bus.url),
            f"shown = {line_of(program)}".replace("count(*)", "count(*) AS n"),
            f"print(int({count}))",
        ]
    )

    found = printed(strangers, source, {"PYTHONPATH": str(README.parent / "src")})

    assert int(found) == COUNT


def test_a_reader_gives_its_batches_one_by_one(bus: Bus) -> None:
    """P1"""
    table, reader = _BLOCK.findall(section())
    names = run(bus, table.splitlines()[0], reader.partition("for batch")[0], "reader")
    found = names["reader"]

    assert isinstance(found, pa.RecordBatchReader)
    batches = [batch.column("body").to_pylist() for batch in found]
    assert bodies(body for batch in batches for body in batch) == list(range(COUNT))
