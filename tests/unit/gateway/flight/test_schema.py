"""The columns of the bulk lane are those that the reference page shows, of types Spark takes."""

import re
from pathlib import Path

import pyarrow as pa

from shardbus.gateway.flight.reading.schema import COLUMNS, EXTRA_COLUMNS, schema_of

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "flight.md"


def documented() -> dict[str, str]:
    """Columns of the page and their types, as Arrow writes them."""
    rows = re.search(r"## Columns\n(.*?)\n## ", PAGE.read_text("utf-8"), re.DOTALL)
    assert rows is not None
    found: dict[str, str] = {}
    for line in rows[1].splitlines():
        if line.startswith("| `"):
            names, kind = line.split("|")[1:3]
            found |= dict.fromkeys(re.findall(r"`(\w+)`", names), kind.strip())
    return found


def test_the_reference_page_shows_every_column_with_its_type() -> None:
    """P1."""
    shown = {name: str(kind) for name, kind in (COLUMNS | EXTRA_COLUMNS).items()}
    page = documented()

    assert list(page) == list(shown)
    assert page == {
        name: kind.replace("tz=", "").replace("int32 not null", "int32")
        for name, kind in shown.items()
    }


def test_every_column_may_be_null_as_spark_expects() -> None:
    """P1."""
    schema = schema_of(list(COLUMNS))

    assert all(field.nullable for field in schema)
    assert schema.field("enqueued_time").type == pa.timestamp("us", "UTC")
    assert schema.field("properties").type == pa.map_(pa.string(), pa.string())
