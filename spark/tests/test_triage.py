"""Dead letters of a real bus in Spark: groups, counts, samples and the numbers of a group."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark.tests.bus import Bus

from shardbus.app.cli.triage.analysis import filters_of, numbers_of
from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.events import error_text
from shardbus_spark.triage.grouping import letters_of
from shardbus_spark.triage.job import Job
from shardbus_spark.triage.report import Report, report_of

ENTITIES: Final = """
[[queue]]
name = "orders"

[[queue]]
name = "empty"

[[topic]]
name = "events"

[[topic.subscription]]
name = "audit"

[[topic.subscription]]
name = "mail"
"""
PAID: Final = "json $.order:number $.paid:boolean"
UNPAID: Final = "json $.order:number $.paid:null"


def _dead_letter(bus: Bus, entity: str, count: int, reason: str, description: str) -> None:
    """Dead-letter the next messages; `{}` in a description is the number of the letter."""
    tokens = [each["lock_token"] for each in bus.receive(entity, count)]
    assert len(tokens) == count
    for number, token in enumerate(tokens):
        told = description.format(number + 1000)
        done = bus.settle(entity, "dead_letter", [token], reason=reason, description=told)
        assert done == 1


def job(*entities: str, where: str = "", filters: str = "") -> Job:
    return Job(entities, "out", where, filters)


def _report(letters: DataFrame, *entities: str) -> Report:
    return report_of(letters, entities, datetime.now(UTC))


@pytest.fixture(scope="module")
def filled(bus: Bus) -> Bus:
    for body, count in (('{{"order": {}, "paid": true}}', 5), ('{{"paid": null, "order": {}}}', 3)):
        bodies = [body.format(number) for number in range(count)]
        bus.send("orders", [{"body": each, "subject": "order"} for each in bodies])
        _dead_letter(bus, "orders", count, "Invalid", "order {} is wrong")
    bus.send("orders", [{"body": "<script>alert(17)</script>", "message_id": "the-text"}])
    _dead_letter(bus, "orders", 1, "", "")
    bus.send("events", [{"body": "{}"}])
    _dead_letter(bus, "events/Subscriptions/audit", 1, "A", "")
    return bus


def test_dead_letters_are_grouped_by_reason_and_shape(
    filled: Bus, spark: SparkSession, tmp_path: Path
) -> None:
    """P7"""
    letters = letters_of(spark, {"endpoint": filled.url}, job("orders")).persist()

    report = _report(letters, "orders")
    groups = report["groups"]
    letters.write.parquet(str(tmp_path / "letters"))
    numbers = list(numbers_of(tmp_path / "letters", groups[1]["id"]))

    assert report["letters"] == 9
    assert report["group_count"] == 3
    assert [(group["count"], group["shape"]) for group in groups] == [
        (5, PAID),
        (3, UNPAID),
        (1, "text <script>alert(<n>)</script>"),
    ]
    assert groups[0]["reason"] == "Invalid"
    assert groups[0]["description"] == "order <n> is wrong"
    assert groups[0]["subject"] == "order"
    assert groups[2]["samples"][0]["message_id"] == "the-text"
    assert groups[2]["samples"][0]["excerpt"] == "<script>alert(17)</script>"
    assert 1 <= len(groups[0]["samples"]) <= 3
    assert sum(report["over_time"]) == 9
    assert sum(groups[0]["over_time"]) == 5
    assert len(numbers) == len(set(numbers)) == 3
    assert set(numbers) >= {sample["sequence_number"] for sample in groups[1]["samples"]}


def test_the_subscriptions_of_a_topic_are_read_together_and_nothing_is_an_empty_report(
    filled: Bus, spark: SparkSession
) -> None:
    """P7"""
    access = {"endpoint": filled.url}
    names = [f"events/Subscriptions/{name}" for name in ("audit", "mail")]

    topic = _report(letters_of(spark, access, job(*names)), *names)
    nothing = _report(letters_of(spark, access, job("empty")), "empty")

    assert [group["entity"] for group in topic["groups"]] == names[:1]
    assert nothing["letters"] == 0
    assert not nothing["groups"]
    assert not nothing["steps"]


def test_a_rule_selects_letters_as_it_would_for_a_subscription(
    filled: Bus, spark: SparkSession
) -> None:
    """P7, P5: typed properties and system properties."""
    filters = filters_of("sys.Label = 'order' AND DeadLetterReason = 'Invalid'")
    nothing = filters_of("no_such_property = 1")
    access = {"endpoint": filled.url}

    assert (
        _report(letters_of(spark, access, job("orders", filters=filters)), "orders")["letters"] == 8
    )
    assert (
        _report(letters_of(spark, access, job("orders", filters=nothing)), "orders")["letters"] == 0
    )


def test_a_condition_selects_letters_by_their_columns(filled: Bus, spark: SparkSession) -> None:
    """P7: beside a rule, and only what meets both."""
    access = {"endpoint": filled.url}
    where = "get_json_object(string(body), '$.paid') IS NULL"
    both = job("orders", where=where, filters=filters_of("sys.Label = 'order'"))

    assert _report(letters_of(spark, access, job("orders", where=where)), "orders")["letters"] == 4
    assert _report(letters_of(spark, access, both), "orders")["letters"] == 3
    with pytest.raises(OptionError, match="'colour'"):
        letters_of(spark, access, job("orders", where="colour = 1"))


def test_an_entity_that_is_not_there_is_told(filled: Bus, spark: SparkSession) -> None:
    """P7"""
    with pytest.raises(PySparkException) as failure:
        letters_of(spark, {"endpoint": filled.url}, job("nowhere")).count()

    assert "nowhere" in error_text(failure.value)
