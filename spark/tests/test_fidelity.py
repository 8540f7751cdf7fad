"""What Spark captures and replays is the message that was sent, on a real bus (P5)."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark.tests.bus import Bus

from shardbus.codec.encoder import encode_binary
from shardbus.codec.errors import DecodeError
from shardbus.core.message import NEVER_MS
from shardbus.message.sections import encode_batch, scan_message
from shardbus.message.sent import read_message
from shardbus_spark.client import Client
from shardbus_spark.pipelines.capture import start_capture
from shardbus_spark.pipelines.definition import read_definition
from shardbus_spark.pipelines.replay import Replaying
from shardbus_spark.pipelines.streaming import source_options
from tests.support.any_message import Section, as_received, generated

NAMES: Final = ("source", "copied", "again", "dead", "edited")
ENTITIES: Final = "\n".join([f'[[queue]]\nname = "{name}"\npartitioning = false' for name in NAMES])
MESSAGES: Final = 120
DEAD: Final = 8
HOUR_MS: Final = 3_600_000
Shown = tuple[Section, ...]


def messages() -> list[bytes]:
    """Those that neither expire meanwhile nor say two different things of where they belong."""
    found: list[bytes] = []
    for payload in generated(MESSAGES):
        message = read_message(payload, int(time.time() * 1000))
        keys = {message.session_id, message.partition_key} - {None}
        if len(keys) < 2 and not 0 <= message.ttl_ms < HOUR_MS:
            found.append(payload)
    return found


def shown(payload: bytes) -> Shown:
    """What a receiver gets of a message that is sent now."""
    return tuple(as_received(read_message(payload, int(time.time() * 1000)).payload))


def is_scheduled(payload: bytes) -> bool:
    return read_message(payload, int(time.time() * 1000)).scheduled_at_ms != NEVER_MS


def send(bus: Bus, client: Client, entity: str, payloads: Sequence[bytes]) -> None:
    """As they are, in one batch."""
    bus.put(f"{entity}/stages/{entity}?piece=0", encode_batch(list(payloads)))
    stages = [{"stage": entity, "count": len(payloads)}]
    client.act("publish", entity, {"producer": entity, "batch": 1, "stages": stages})


def found_in(client: Client, entity: str, states: Sequence[str] = ("active",)) -> Counter[Shown]:
    """Its messages, as their receivers get them."""
    rows = client.read(entity, columns=["amqp", "body"], states=list(states)).to_pylist()
    return Counter([tuple(as_received(_whole(row["amqp"], row["body"]))) for row in rows])


def _whole(amqp: bytes, body: bytes | None) -> bytes:
    for payload in (amqp, amqp + encode_binary(body)):
        try:
            scan_message(payload)
        except DecodeError:
            continue
        return payload
    raise AssertionError("neither of them is a message")


def capture(spark: SparkSession, bus: Bus, entity: str, path: Path) -> None:
    members = {"name": path.name, "entity": entity, "path": str(path), "once": True}
    definition = read_definition(members)
    options = source_options(definition, {"endpoint": bus.url})
    query = start_capture(spark, definition, options, is_once=True)
    query.awaitTermination()
    assert query.exception() is None


def replay(spark: SparkSession, bus: Bus, entity: str, path: Path, **more: object) -> None:
    definition = read_definition(
        {
            "kind": "replay",
            "name": f"{path.name}-{entity}",
            "entity": entity,
            "path": str(path),
            "work": str(path.with_name(f"_{path.name}-{entity}")),
            **more,
        }
    )
    replaying = Replaying(spark, definition, {"endpoint": bus.url}, threading.Event(), print)
    plan = replaying.prepare()
    assert plan is not None
    assert replaying.send(plan)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_generated_messages_are_captured_and_replayed_as_they_were_sent(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5: rows that are read and written, a Parquet table that is replayed, and dead letters."""
    sent = messages()
    expected = Counter([shown(payload) for payload in sent])
    pending = Counter([shown(payload) for payload in sent if is_scheduled(payload)])
    assert len(sent) > MESSAGES // 2
    assert pending
    send(bus, client, "source", sent)

    both = ["active", "scheduled"]
    read = spark.read.format("shardbus").option("endpoint", bus.url).option("includeAmqp", "true")
    rows = read.option("states", ",".join(both)).load("source")
    rows.write.format("shardbus").option("endpoint", bus.url).mode("append").save("copied")
    tokens = [one["lock_token"] for one in bus.receive("source", DEAD)]
    bus.settle("source", "dead_letter", tokens, reason="why", properties={"tries": 3})
    letters = found_in(client, "source/$DeadLetterQueue")
    rest = found_in(client, "source")
    capture(spark, bus, "source", tmp_path / "alive")
    capture(spark, bus, "source/$DeadLetterQueue", tmp_path / "letters")
    replay(spark, bus, "again", tmp_path / "alive")
    replay(spark, bus, "dead", tmp_path / "letters")

    assert found_in(client, "copied", both) == expected
    assert found_in(client, "copied", ["scheduled"]) == pending
    assert len(tokens) == DEAD
    assert found_in(client, "source", both) == pending
    assert found_in(client, "again") == rest
    assert found_in(client, "dead") == letters
    assert rest + pending < expected
    for row in client.read("dead", columns=["properties", "dead_letter_reason"]).to_pylist():
        assert row["dead_letter_reason"] is None
        assert dict(row["properties"])["tries"] == "3"
        assert "DeadLetterReason" not in dict(row["properties"])


@pytest.mark.timeout(900)
def test_what_is_changed_in_spark_is_changed_in_the_message_and_bad_bytes_are_named(
    spark: SparkSession, bus: Bus, client: Client
) -> None:
    """P5: and a batch with a row that is no message leaves nothing behind."""
    bus.send("edited", [{"body": "b", "message_id": "m", "properties": {"n": 7}, "subject": "old"}])
    read = spark.read.format("shardbus").option("endpoint", bus.url).option("includeAmqp", "true")
    rows = read.load("edited")
    to = {"endpoint": bus.url, "entity": "edited"}

    changed = rows.withColumn("subject", F.lit("new")).withColumn("message_id", F.lit("m2"))
    changed.write.format("shardbus").options(**to).mode("append").save()
    odd = rows.withColumn("amqp", F.lit(b"no message"))
    with pytest.raises(
        PySparkException, match=r"row \d, message_id 'm.?', has bytes in column amqp"
    ):
        rows.union(odd).coalesce(1).write.format("shardbus").options(**to).mode("append").save()

    columns = ["message_id", "subject", "body", "properties_json"]
    found = {row["message_id"]: row for row in client.read("edited", columns=columns).to_pylist()}
    assert set(found) == {"m", "m2"}
    assert found["m2"]["subject"] == "new"
    assert found["m2"]["body"] == b"b"
    assert json.loads(found["m2"]["properties_json"]) == {"n": 7}
