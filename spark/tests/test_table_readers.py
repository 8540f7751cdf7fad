"""Tables in the hands of pandas, polars and DuckDB, in three lines each (P4)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest
from spark.tests.apart import Run
from spark.tests.fated_server import environment
from spark.tests.object_steps import make_table
from spark.tests.real_stores import versitygw
from spark.tests.strangers import printed

from shardbus_spark.tables.form import DELTA, FORMS, ICEBERG, PARQUET

COUNT: Final = 7
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

GUIDE: Final = Path(__file__).parents[2] / "docs" / "guides" / "pipelines.md"
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FORM_OF: Final = {"_parquet(": PARQUET, "elta": DELTA, "StaticTable": ICEBERG}
_COUNT: Final = """
if hasattr(orders, "collect"):
    orders = orders.collect()
print(orders.fetchall()[0][0] if hasattr(orders, "fetchall") else len(orders))
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of each form, of two batches, with a third that was never committed."""
    root = tmp_path_factory.mktemp("tables")
    for form in FORMS:
        make_table(str(root / form), form)
    return root


@pytest.mark.parametrize("form", FORMS)
def test_pandas_reads_each_form_in_three_lines(tables: Path, form: str) -> None:
    """P4: each row once, without Spark and without us."""
    assert _rows(sys.executable, tables / form, PANDAS[form]) == COUNT


@pytest.mark.release
@pytest.mark.timeout(900)
@pytest.mark.parametrize("reader", OTHERS)
def test_polars_and_duckdb_read_each_form_in_three_lines(
    tables: Path, strangers: str, reader: str
) -> None:
    """P4"""
    form, program = OTHERS[reader]

    assert _rows(strangers, tables / form, program) == COUNT


@pytest.mark.release
@pytest.mark.timeout(900)
def test_the_lines_of_the_guide_read_tables_in_a_store(
    tmp_path: Path, apart: Run, strangers: str
) -> None:
    """P4: as they are written there, of a server that speaks S3."""
    section = GUIDE.read_text("utf-8").partition("\n### pandas, polars, DuckDB\n")[2]
    blocks = _BLOCK.findall(section.partition("\n### ")[0])
    assert len(blocks) == 6
    with versitygw(tmp_path) as store:
        port = store.upstream.port
        variables = store.upstream.environment(port)
        with environment(variables):
            for form in FORMS:
                apart(make_table, f"{store.upstream.root}/{form}", form)
        for block in blocks:
            [form] = {form for word, form in _FORM_OF.items() if word in block}
            program = block.replace("s3://bucket/captured/archive", f"s3://tables/{form}")
            endpoint = f', {{"s3.endpoint": "http://127.0.0.1:{port}"}})'
            program = program.replace(
                f'_metadata("s3://tables/{form}")', f'_metadata("s3://tables/{form}"{endpoint}'
            )

            found = printed(strangers, program + _COUNT, {**variables, "AWS_ALLOW_HTTP": "true"})

            assert int(found) == COUNT, block


def _rows(python: str, path: Path, program: str) -> int:
    """How many rows a program finds."""
    return int(printed(python, f"path = {str(path)!r}\n{program}\nprint(rows)"))
