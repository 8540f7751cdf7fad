"""Whoever keeps pipelines, as tests of the JSON API have it."""

from collections.abc import Mapping

from msgspec import UNSET

from shardbus.app.pipelines.definition import KINDS
from shardbus.app.pipelines.report import Report
from shardbus.app.pipelines.task import Task
from shardbus.core.errors import NOT_FOUND, Refused
from shardbus.gateway.http.api.documents import HotKey, PipelineHours
from shardbus.gateway.http.api.letter_report import PipelineReport


class Kept:
    """One pipeline that remembers what was asked of it."""

    kinds: Mapping[str, type[Task]] = KINDS

    def __init__(self) -> None:
        self.asked: list[str] = []

    def all(self) -> list[dict[str, object]]:
        return [self.show("archive")]

    def show(self, name: str) -> dict[str, object]:
        if name != "archive":
            raise Refused(NOT_FOUND, "There is no such pipeline.")
        return {
            "name": name,
            "kind": "capture",
            "entity": "orders",
            "path": "p",
            "format": "parquet",
            "keep": False,
            "once": False,
            "interval_ms": 1,
            "rows_max": 0,
            "compact": True,
            "where": "",
            "rule": "",
            "like_subscription": "",
            "location": "/data/p",
            "state": "running",
            "starts": 1,
            "last_error": "",
            "progress": Report().progress(),
        }

    async def create(self, name: str, wanted: Task) -> dict[str, object]:
        self.asked.append(f"create {name} of {wanted.entity} at {wanted.path}")
        return self.show(name)

    async def start(self, name: str) -> dict[str, object]:
        self.asked.append(f"start {name}")
        return self.show(name)

    async def stop(self, name: str, *, is_finishing: bool = False) -> dict[str, object]:
        self.asked.append(f"stop {name}{' finishing' * is_finishing}")
        return self.show(name)

    async def delete(self, name: str, *, is_abandoned: bool = False) -> None:
        self.asked.append(f"delete {name}{' abandoned' * is_abandoned}")

    async def hours(self, name: str) -> PipelineHours:
        return PipelineHours(
            step_ms=3_600_000,
            first_at="2026-11-18T12:00:00.000Z",
            count=1,
            series={"enqueued": [3, None]},
            keys=[HotKey(key="k", enqueued=3, share=1.0)],
        )

    async def report(self, name: str, *, has_page: bool = False) -> PipelineReport:
        return PipelineReport(
            version=1,
            entities=["orders"],
            made_at="2026-11-18T12:00:00Z",
            letters=3,
            group_count=1,
            first_at="2026-11-18T11:00:00Z",
            last_at="2026-11-18T11:00:01Z",
            step_s=1,
            steps=["2026-11-18T11:00:00Z", "2026-11-18T11:00:01Z"],
            over_time=[2, 1],
            groups=[],
            name="1",
            page="<!DOCTYPE html>" if has_page else UNSET,
        )

    def log(self, name: str) -> list[str]:
        return ["one", "two", "three"]
