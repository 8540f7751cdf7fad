"""Two backfills of one topic at the same time, with drivers and a bus that are killed (P5)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from spark.tests.bus import Bus, running_bus
from spark.tests.test_triage_pipeline import Pipelines

from shardbus.app.cli.failures import CommandError
from shardbus_spark.client import Client, connect

ENTITIES: Final = """
spark-master = "local[1,4]"

[[topic]]
name = "news"
partitioning = true

[[topic.subscription]]
name = "all"
"""
COUNT: Final = 300
KEYS: Final = 7
RATE: Final = 15
FILLED: Final = ("early", "late")


def ids(client: Client, name: str) -> list[int]:
    """The numbers of the messages of a subscription, each key in its order."""
    columns = ["message_id", "partition_key", "sequence_number"]
    rows = client.read(f"news/Subscriptions/{name}", columns=columns).to_pylist()
    rows.sort(key=lambda row: row["sequence_number"])
    numbers = [int(str(row["message_id"])) for row in rows]
    for key in range(KEYS):
        mine = [number for number in numbers if number % KEYS == key]
        assert mine == sorted(mine), f"{name}: key {key} is out of order"
    return sorted(numbers)


def has_sent(found: dict[str, object]) -> bool:
    progress = found["progress"]
    assert isinstance(progress, dict)
    return bool(progress["rows_total"])


def publish(bus: Bus) -> None:
    bus.send(
        "news",
        [
            {
                "message_id": f"{n}",
                "body": "x",
                "partition_key": f"k{n % KEYS}",
                "properties": {"number": n},
            }
            for n in range(COUNT)
        ],
    )


def define(pipelines: Pipelines) -> None:
    """Two backfills of one subscription, and one of another, which takes half of its history."""
    for pipeline, name in (("early", "early"), ("late", "late"), ("again", "early")):
        rule = {"rule": "number % 2 = 0"} if pipeline == "late" else {}
        pipelines.api.put(
            f"pipelines/{pipeline}",
            {
                "kind": "backfill",
                "entity": f"news/Subscriptions/{name}",
                "from_pipeline": "archive",
                "rate_max": RATE,
                **rule,
            },
        )


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_two_subscriptions_are_filled_at_once_and_one_by_one_pipeline_at_a_time(
    tmp_path: Path,
) -> None:
    """P5, P9: each message is in each of them once, by its own rules and those of its backfill."""
    with running_bus(tmp_path, ENTITIES) as bus:
        pipelines = Pipelines(bus)
        publish(bus)
        archive: dict[str, str | bool] = {
            "kind": "capture",
            "path": "archive",
            "keep": True,
            "once": True,
        }
        pipelines.start("archive", entity="news/Subscriptions/all", **archive)
        pipelines.until("archive", lambda found: found["state"] == "finished")
        for name in FILLED:
            bus.run(
                "subscription", "create", "news", name, "--status", "ReceiveDisabled",
                "--sql", "number >= 20",
            )  # fmt: skip

        define(pipelines)
        for name in FILLED:
            pipelines.api.post(f"pipelines/{name}/start", {})
        with pytest.raises(CommandError, match="early"):
            pipelines.api.post("pipelines/again/start", {})
        for name in FILLED:
            pipelines.until(name, lambda found: has_sent(dict(found)))
        for name in FILLED:
            pipelines.kill_driver(name)
        for name in FILLED:
            pipelines.until(name, lambda found: int(str(found["starts"])) > 1)
        bus.server.kill()
        bus.server.start()
        for name in FILLED:
            pipelines.until(name, lambda found: found["state"] == "finished")

        client = connect(bus.url)
        early, late = [*range(20, COUNT)], [*range(20, COUNT, 2)]
        assert (ids(client, "early"), ids(client, "late")) == (early, late)
        pipelines.api.post("pipelines/again/start", {})
        pipelines.until("again", lambda found: found["state"] == "finished")
        assert (ids(client, "early"), ids(client, "late")) == (early, late)
        client.close()
