"""The life of a pipeline's query, with a Spark that only counts."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shardbus_spark.pipelines import streaming
from shardbus_spark.pipelines.definition import read_definition
from shardbus_spark.pipelines.driver import Run, Stopping
from shardbus_spark.pipelines.streaming import run_stream

WHOLE = {"name": "a", "entity": "orders", "path": "/data/orders"}


class Query:
    """One that has ended, or that runs until it is stopped."""

    status: Mapping[str, bool] = {"isTriggerActive": False}

    def __init__(self, is_over: bool) -> None:
        self.is_over = is_over

    def awaitTermination(self, timeout: float | None = None) -> bool:
        return self.is_over

    def stop(self) -> None:
        self.is_over = True


def lived(
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_told: bool,
    is_over: bool,
    is_cut: bool = False,
    **members: object,
) -> tuple[bool, list[tuple[bool, bool]]]:
    """Whether it is done, and of each query: whether it only finishes, and ends by itself."""
    monkeypatch.setattr(streaming, "LAST_WORD_S", 0.0)
    stopping, started = Stopping(), list[tuple[bool, bool]]()
    listening = SimpleNamespace(addListener=lambda listener: None)
    spark = cast(SparkSession, SimpleNamespace(streams=listening, stop=lambda: None))
    monkeypatch.setattr(Run, "session", lambda run: spark)

    def start(session: SparkSession, options: Mapping[str, str], is_once: bool) -> StreamingQuery:
        started.append((options.get("finishOnly") == "true", is_once))
        if is_told:
            stopping.told.set()
            stopping.is_cut = is_cut
        return cast(StreamingQuery, Query(is_over))

    run = Run(read_definition({**WHOLE, **members}), {"endpoint": "grpc://bus:1"}, stopping)
    return run_stream(run, start, has_begun=True), started


def test_a_query_that_ends_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lived(monkeypatch, is_told=False, is_over=True, once=True) == (True, [(False, True)])


def test_a_query_that_is_stopped_is_followed_by_one_that_only_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that no message stays claimed."""
    done = lived(monkeypatch, is_told=True, is_over=False)

    assert done == (False, [(False, False), (True, True)])


def test_a_query_that_browses_has_nothing_to_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    done = lived(monkeypatch, is_told=True, is_over=False, keep=True)

    assert done == (False, [(False, False)])


def test_a_query_that_is_cut_off_leaves_its_batch_to_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P9, R31"""
    monkeypatch.setattr(Query, "status", {"isTriggerActive": True})

    done = lived(monkeypatch, is_told=True, is_over=False, is_cut=True)

    assert done == (False, [(False, False)])
