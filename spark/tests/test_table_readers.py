"""Tables in the hands of pandas, polars and DuckDB, in three lines each (P4)."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest
from spark.tests.captured_rows import made, written

from shardbus_spark.tables.form import DELTA, FORMS, ICEBERG, PARQUET

COUNT: Final = 7
INSTALL: Final = (
    "deltalake>=1.6,<2",
    "duckdb",
    "pandas<3",
    "polars",
    "pyarrow",
    "pyiceberg>=0.12,<0.13",
)
INSTALL_S: Final = 600.0
PANDAS: Final = {
    PARQUET: """
import pandas as pd
rows = len(pd.read_parquet(f"{path}/entity=orders"))
""",
    DELTA: """
from deltalake import DeltaTable
rows = len(DeltaTable(path).to_pandas())
""",
    ICEBERG: """
from pyiceberg.table import StaticTable
rows = len(StaticTable.from_metadata(path).scan().to_pandas())
""",
}
OTHERS: Final = {
    "polars of parquet": (
        PARQUET,
        """
import polars as pl
rows = pl.scan_parquet(f"{path}/entity=*/**/*.parquet").collect().height
""",
    ),
    "polars of delta": (
        DELTA,
        """
import polars as pl
rows = pl.scan_delta(path).collect().height
""",
    ),
    "polars of iceberg": (
        ICEBERG,
        """
import polars as pl
from pyiceberg.table import StaticTable
rows = pl.scan_iceberg(StaticTable.from_metadata(path)).collect().height
""",
    ),
    "DuckDB of parquet": (
        PARQUET,
        """
import duckdb
found = duckdb.sql(f"SELECT count(*) FROM read_parquet('{path}/entity=*/**/*.parquet')")
[(rows,)] = found.fetchall()
""",
    ),
    "DuckDB of delta": (
        DELTA,
        """
import duckdb
from deltalake import DeltaTable
orders = DeltaTable(path).to_pyarrow_dataset()
[(rows,)] = duckdb.sql("SELECT count(*) FROM orders").fetchall()
""",
    ),
    "DuckDB of iceberg": (
        ICEBERG,
        """
from pyiceberg.table import StaticTable
orders = StaticTable.from_metadata(path).scan().to_duckdb("orders")
[(rows,)] = orders.sql("SELECT count(*) FROM orders").fetchall()
""",
    ),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of each form, of two batches, with a third that was never committed."""
    root = tmp_path_factory.mktemp("tables")
    for form in FORMS:
        table = made(root / form, form)
        table.commit("query", 0, written(table, 0, [[0, 1], [2]], entity="orders"))
        table.commit("query", 1, written(table, 1, [[3, 4, 5, 6]], entity="orders"))
        written(table, 2, [[7]], entity="orders")
    return root


@pytest.mark.parametrize("form", FORMS)
def test_pandas_reads_each_form_in_three_lines(tables: Path, form: str) -> None:
    """P4: each row once, without Spark and without us."""
    assert _rows(sys.executable, tables / form, PANDAS[form]) == COUNT


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with the newest readers, and without us."""
    place = tmp_path_factory.mktemp("readers") / "venv"
    venv.create(place, with_pip=True)
    program = str(place / "bin" / "python")
    subprocess.run(
        [program, "-m", "pip", "install", "--quiet", *INSTALL], check=True, timeout=INSTALL_S
    )
    return program


@pytest.mark.release
@pytest.mark.timeout(900)
@pytest.mark.parametrize("reader", OTHERS)
def test_polars_and_duckdb_read_each_form_in_three_lines(
    tables: Path, python: str, reader: str
) -> None:
    """P4"""
    form, program = OTHERS[reader]

    assert _rows(python, tables / form, program) == COUNT


def _rows(python: str, path: Path, program: str) -> int:
    """How many rows a program finds."""
    done = subprocess.run(
        [python, "-c", f"path = {str(path)!r}\n{program}\nprint(rows)"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
