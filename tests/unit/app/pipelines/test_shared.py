"""The pipelines of a cluster, at two nodes over one table, with scripts as drivers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from shardbus.app.leased import leases, tenancy
from shardbus.app.pipelines import shared
from shardbus.app.pipelines.backfill import Backfill
from shardbus.app.pipelines.capture import Capture
from shardbus.app.pipelines.definition import Definition
from shardbus.app.pipelines.driver_keeper import Launch
from shardbus.app.pipelines.pipelines import Shown
from shardbus.app.pipelines.shared import SharedPipelines
from shardbus.core.errors import ALREADY_EXISTS, NOT_ALLOWED, NOT_FOUND, Refused
from shardbus.stores.base.leased import LeasedRow
from tests.support.refusals import refusal_of
from tests.unit.app.leased.memory_table import MemoryTable
from tests.unit.app.pipelines.test_pipelines import (
    GOES_ON,
    LONG_MS,
    WAIT_S,
    Entities,
    _rows,
    _wanted,
)
from tests.unit.broker.hosts import InlineWorker

SCRIPT = f"import sys\nif sys.argv[1:] == ['--finish']: sys.exit()\n{GOES_ON}"
LOOK_S = 0.02
FENCE_S = 0.3
DEAD_S = 0.8


class Node:
    """A node that runs pipelines, or only manages them."""

    def __init__(self, name: str, rows: dict[str, LeasedRow], *, is_runner: bool = True) -> None:
        self.table = MemoryTable(rows)
        self.entities = Entities()
        self.launched: list[str] = []
        self.pipelines = SharedPipelines(
            self.entities,
            self.table,
            InlineWorker(),
            name,
            locate=lambda path: f"/captured/{path}",
            forget=lambda definition: None,
            restart_ms=1,
        )
        launcher = self._launch if is_runner else None
        self.running = asyncio.ensure_future(self.pipelines.run(launcher, lambda: ""))

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def until(self, is_so: Callable[[Shown], bool]) -> Shown:
        for _ in range(int(WAIT_S / LOOK_S)):
            shown = self.pipelines.all()
            if shown and is_so(shown[0]):
                return shown[0]
            await asyncio.sleep(LOOK_S)
        raise AssertionError(f"it did not come to that: {self.pipelines.all()}")

    def _launch(self, definition: Definition) -> Launch:
        self.launched.append(definition.name)
        return Launch([sys.executable, "-c", SCRIPT], {}, LONG_MS)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """In less than a second."""
    monkeypatch.setattr(leases, "FENCE_S", FENCE_S)
    monkeypatch.setattr(leases, "DEAD_S", DEAD_S)
    monkeypatch.setattr(leases, "LOOK_S", LOOK_S)
    monkeypatch.setattr(shared, "LOOK_S", LOOK_S)
    monkeypatch.setattr(tenancy, "FENCE_LOOK_S", LOOK_S)


def _play(story: Callable[[Node, Node], object]) -> None:
    async def live() -> None:
        rows: dict[str, LeasedRow] = {}
        gateway, runner = Node("gateway/1", rows, is_runner=False), Node("runner/1", rows)
        try:
            async with asyncio.timeout(WAIT_S):
                told = story(gateway, runner)
                assert asyncio.iscoroutine(told)
                await told
        finally:
            await gateway.end()
            await runner.end()

    asyncio.run(live())


def test_any_gateway_manages_what_one_node_runs() -> None:
    """R41, P9"""

    async def story(gateway: Node, runner: Node) -> None:
        made = await gateway.pipelines.create("archive", _wanted())
        assert made["state"] == "stopped"
        await gateway.pipelines.start("archive")
        shown = await gateway.until(lambda one: one["state"] == "running" and _rows(one) == 20)
        assert (runner.launched, gateway.launched) == (["archive"], [])
        assert shown["starts"] == 1
        # The driver writes it to another pipe than its progress.
        await gateway.until(lambda _: gateway.pipelines.log("archive") == ["a line"])
        with refusal_of(NOT_ALLOWED):
            await gateway.pipelines.delete("archive")

        stopping = await gateway.pipelines.stop("archive")
        assert stopping["state"] == "stopping"
        await gateway.until(lambda one: one["state"] == "stopped")
        await gateway.pipelines.delete("archive")
        with refusal_of(NOT_FOUND):
            await runner.pipelines.start("archive")

    _play(story)


def test_any_gateway_lets_a_node_finish_a_batch_that_was_cut_off() -> None:
    """R41, P4, P9"""

    async def story(gateway: Node, runner: Node) -> None:
        await gateway.pipelines.create("archive", _wanted())
        await gateway.pipelines.stop("archive", is_finishing=True)
        assert runner.table.found["archive"].intent == "rest", "nothing is claimed"

        gateway.entities.claimed = 7
        with refusal_of(NOT_ALLOWED, "7 messages"):
            await gateway.pipelines.delete("archive")
        await gateway.pipelines.stop("archive", is_finishing=True)
        assert gateway.pipelines.show("archive")["state"] == "stopping"
        await gateway.until(lambda one: one["state"] == "stopped")
        assert (runner.launched, runner.table.found["archive"].intent) == (["archive"], "rest")

        gateway.entities.claimed = 0
        await gateway.pipelines.delete("archive")

    _play(story)


def test_a_name_that_another_gateway_gave_meanwhile_is_taken() -> None:
    async def story(gateway: Node, runner: Node) -> None:
        await runner.pipelines.create("archive", _wanted())
        again = await gateway.pipelines.create("archive", _wanted())
        assert again["state"] == "stopped", "the same definition is no other pipeline"
        gateway.table.found["archive"] = replace(
            gateway.table.found["archive"],
            document=gateway.table.found["archive"].document.replace('"p"', '"q"'),
        )
        with refusal_of(ALREADY_EXISTS):
            await gateway.pipelines.create("archive", _wanted())

    _play(story)


def test_the_pipelines_of_a_node_that_is_cut_off_run_at_another_and_no_more_there() -> None:
    """R40, R41"""

    async def story(gateway: Node, runner: Node) -> None:
        await gateway.pipelines.create("archive", _wanted())
        await gateway.pipelines.start("archive")
        await gateway.until(lambda one: one["state"] == "running")
        other = Node("other/1", runner.table.found)
        try:
            runner.table.is_away = True
            while runner.pipelines._keepers:
                assert other.launched == [], "two drivers at once"
                await asyncio.sleep(LOOK_S)
            await other.until(lambda one: one["state"] == "running" and bool(other.launched))
            assert runner.table.found["archive"].owner == "other/1"
            # Back again, it leaves it where it is.
            runner.table.is_away = False
            await runner.until(lambda one: one["state"] == "running")
            assert runner.launched == ["archive"]
        finally:
            await other.end()

    _play(story)


def test_a_node_that_ends_gives_its_pipelines_up_at_once() -> None:
    """R42"""

    async def story(gateway: Node, runner: Node) -> None:
        await gateway.pipelines.create("archive", _wanted())
        await gateway.pipelines.start("archive")
        await gateway.until(lambda one: one["state"] == "running")
        await runner.end()
        assert runner.table.found["archive"].owner == ""
        assert runner.table.found["archive"].intent == "run"

    _play(story)


def _backfill() -> Backfill:
    return Backfill(kind="backfill", entity="news/Subscriptions/late", from_pipeline="archive")


async def _fillable(gateway: Node, runner: Node) -> None:
    """Two backfills into one subscription."""
    for node in (gateway, runner):
        node.entities.knows_all = True
    await gateway.pipelines.create("archive", Capture(entity="news/Subscriptions/all", path="p"))
    for name in ("one", "two"):
        await gateway.pipelines.create(name, _backfill())


def test_two_backfills_do_not_fill_one_subscription_at_once() -> None:
    """P5, R41: on whichever nodes they are started."""

    async def story(gateway: Node, runner: Node) -> None:
        await _fillable(gateway, runner)
        await gateway.pipelines.start("one")
        with refusal_of(NOT_ALLOWED, "one"):
            await runner.pipelines.start("two")
        assert runner.table.found["two"].intent == "rest"

    _play(story)


def test_two_nodes_that_start_them_at_one_moment_do_not_both_succeed() -> None:
    """P5, R41: neither knows of the other's start when it looks."""

    async def story(gateway: Node, runner: Node) -> None:
        await _fillable(gateway, runner)
        done = await asyncio.gather(
            gateway.pipelines.start("one"), runner.pipelines.start("two"), return_exceptions=True
        )
        refused = [one for one in done if isinstance(one, Refused)]
        to_run = [name for name, row in runner.table.found.items() if row.intent == "run"]
        assert len(refused) + len(to_run) == 2 and refused, done

    _play(story)
