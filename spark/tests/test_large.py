"""Messages of the premium tier through the bulk lane, both ways, on a real bus (P3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pytest
from spark.tests.bus import Bus, running_bus

from shardbus.codec.encoder import encode, encode_text
from shardbus_spark.client import Client, connect
from shardbus_spark.errors import OptionError

ENTITIES: Final = """
[[queue]]
name = "large"
max-message-kb = 102400

[[queue]]
name = "small"
"""
MB: Final = 1024 * 1024
VALUE: Final = b"\x00\x53\x77"
_TYPES: Final[dict[str, pa.DataType]] = {
    "message_id": pa.string(),
    "body": pa.binary(),
    "amqp": pa.binary(),
}
SCHEMA: Final = pa.schema(_TYPES)


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    with running_bus(tmp_path_factory.mktemp("bus"), ENTITIES, "--tier", "premium") as bus:
        yield bus


@pytest.fixture
def client(bus: Bus) -> Iterator[Client]:
    client = connect(bus.url)
    yield client
    client.close()


def put(client: Client, entity: str, stage: str, *rows: Mapping[str, object]) -> int:
    batches = [pa.RecordBatch.from_pylist([dict(row)], SCHEMA) for row in rows]
    return client.stage(entity, stage, batches).rows


@pytest.mark.timeout(300)
def test_messages_of_20_mb_are_written_and_read(bus: Bus, client: Client) -> None:
    """P3: data, and a value that is captured as a whole; those between them keep their order."""
    text = "é" * (10 * MB)
    rows: list[dict[str, object]] = [
        {"message_id": "first", "body": b"1"},
        {"message_id": "data", "body": bytes(range(256)) * (20 * MB // 256)},
        {"message_id": "between", "body": b"2"},
        {"body": text.encode(), "amqp": VALUE + encode_text(text)},
        {"message_id": "last", "body": b"3"},
    ]

    assert put(client, "large", "s", *rows) == 5
    stages = [{"stage": "s", "count": 5}]
    client.act("publish", "large", {"producer": "p", "batch": 1, "stages": stages})

    columns = ["sequence_number", "message_id", "body", "body_kind", "amqp"]
    found = client.read("large", columns=columns).sort_by("sequence_number").to_pylist()
    assert [row["message_id"] for row in found] == ["first", "data", "between", None, "last"]
    assert [row["body_kind"] for row in found] == ["data", "data", "data", "value", "data"]
    assert [row["body"] for row in found] == [row["body"] for row in rows]
    assert found[3]["amqp"] == VALUE + encode(text)


@pytest.mark.timeout(300)
def test_a_message_that_the_entity_does_not_take_is_named_and_leaves_nothing(
    bus: Bus, client: Client
) -> None:
    """P3."""
    small, large = {"message_id": "a", "body": b"x"}, {"message_id": "b", "body": bytes(2 * MB)}

    with pytest.raises(OptionError, match=r"Row 1 makes a message of \d+ bytes. The entity allows"):
        put(client, "small", "s", small, large)

    assert client.read("small", columns=["body"]).num_rows == 0
