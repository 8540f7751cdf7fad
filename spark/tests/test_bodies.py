"""JSON bodies with the types of a schema: what fits, and what is null; without Spark running."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from shardbus_spark.bodies import body_schema, columns_read, value_of, with_json
from shardbus_spark.errors import OptionError
from shardbus_spark.options import read_options
from shardbus_spark.source import ShardbusSource, columns_of

SCHEMA = "id bigint, price double, items array<string>, by struct<name: string>, m map<string,int>"
KIND = body_schema(SCHEMA)


def value(text: str) -> object:
    return value_of(text.encode("utf-8", "surrogatepass"), KIND)


def test_a_body_that_fits_has_the_types_of_the_schema() -> None:
    body = '{"id": 7, "price": 2, "items": ["a", 1, {"b": "é"}], "by": {"name": "n", "x": 1}, '
    assert value(body + '"m": {"k": 1}, "more": 1}') == {
        "id": 7,
        "price": 2.0,
        "items": ["a", "1", '{"b":"é"}'],
        "by": {"name": "n"},
        "m": [("k", 1)],
    }
    assert value("{}") == {"id": None, "price": None, "items": None, "by": None, "m": None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[1]",
        "7",
        "null",
        '{"id": "seven"}',
        '{"id": 7.5}',
        '{"id": true}',
        '{"price": true}',
        '{"price": NaN}',
        '{"id": 9223372036854775808}',
        '{"m": {"k": 2147483648}}',
        '{"price": 1' + "0" * 400 + "}",
        '{"items": "a"}',
        '{"items": ["\\ud800"]}',
        '{"by": []}',
        "{" * 100_000,
        "\ud800",
    ],
)
def test_a_body_that_does_not_fit_is_null(text: str) -> None:
    assert value(text) is None


def test_bytes_that_are_no_text_and_no_body_are_null() -> None:
    assert value_of(b"\xff\xfe", KIND) is None
    assert value_of(None, KIND) is None


def test_the_column_is_added_to_batches_that_need_not_have_the_body() -> None:
    bodies = [b'{"id": 1}', b"x", None]
    batch = pa.RecordBatch.from_pydict(
        {"subject": ["a", "b", "c"], "body": pa.array(bodies, pa.binary())}
    )

    [made] = with_json(iter([batch]), ["json", "subject"], "id bigint")

    assert columns_read(["json", "subject"]) == ["subject", "body"]
    assert columns_read(["json", "body"]) == ["body"]
    assert made.schema.names == ["json", "subject"]
    assert made.column("json").to_pylist() == [{"id": 1}, None, None]
    assert str(made.schema.field("json").type) == "struct<id: int64>"


def test_a_source_has_the_column_with_its_type_also_as_a_table() -> None:
    given = {"entity": "orders", "bodySchema": "id bigint"}
    plain = ShardbusSource(given).schema()
    table = ShardbusSource({f"option.{name}": text for name, text in given.items()} | given)

    kept = StructType.fromJson(json.loads(table.schema().json()))

    assert plain["json"].dataType == body_schema("id bigint")
    assert columns_of(kept, read_options(given))[-1] == "json"
    with pytest.raises(OptionError, match="json"):
        columns_of(kept, read_options({"entity": "orders"}))


@pytest.mark.parametrize("text", ["id", "id bigint,", "a date", "a array<decimal(3,1)>", "a x"])
def test_a_schema_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="bodySchema"):
        body_schema(text)
