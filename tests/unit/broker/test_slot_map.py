"""How a gateway learns that a slot has another owner (R41)."""

from __future__ import annotations

import asyncio
import json

import pytest

from shardbus.broker.cluster.slot_map import LOOK_S, LOOK_SOON_S, SILENT_MS_MAX, SlotMap
from shardbus.broker.wire.frames import PROTOCOL_VERSION
from shardbus.core.cluster.terms import LEASE_MS
from shardbus.stores.base.sight import SeenGateway, SeenMember, SeenSlot, Sight
from shardbus.stores.base.store import StoreError

WAIT_S = 10.0


class Scene:
    """A `Lookout` that shows what a test says, and counts how often it was looked at."""

    def __init__(self) -> None:
        self.members: dict[int, int] = {}
        self.owner = 0
        self.looks = 0
        self.is_down = False
        self.about: dict[int, str] = {}
        self.gateways: list[SeenGateway] = []

    def _plain(self, each: int) -> str:
        return json.dumps({"address": f"at {each}"})

    def look(self) -> Sight:
        self.looks += 1
        if self.is_down:
            raise StoreError("away")
        members = [
            SeenMember(f"m{each}", each, False, age_ms, self.about.get(each, self._plain(each)))
            for each, age_ms in self.members.items()
        ]
        slot = SeenSlot(0, 1, 0, "", self.owner, 0, "")
        return Sight(1, 1, members, [slot], self.gateways, 0, 0, 0)

    def report(self, name: str, about: str) -> None:
        """There is nobody to tell."""

    def close(self) -> None:
        """Nothing is open."""


async def _seen(scene: Scene) -> None:
    """Wait for two looks: the first may have begun before."""
    before = scene.looks
    async with asyncio.timeout(WAIT_S):
        while scene.looks < before + 2:  # noqa: ASYNC110 - a thread looks
            await asyncio.sleep(0.005)


async def _moves(*scenes: tuple[dict[int, int], int]) -> list[tuple[int, bool]]:
    scene = Scene()
    slots = SlotMap([scene], loop=asyncio.get_running_loop())
    slots.is_urgent = lambda: True
    moved: list[tuple[int, bool]] = []
    slots.on_moved = lambda slot, was_silent: moved.append((slot, was_silent))
    running = asyncio.create_task(slots.run("door", ""))
    try:
        for scene.members, scene.owner in scenes:
            await _seen(scene)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    silent = sum(was_silent for _, was_silent in moved)
    assert (slots.taken, slots.given) == (silent, len(moved) - silent)
    return moved


SILENT_MS = LEASE_MS + 1


@pytest.mark.parametrize("is_seen_free", [False, True])
def test_a_slot_of_a_silent_owner_has_moved_also_if_it_was_free_in_between(
    is_seen_free: bool,
) -> None:
    """Otherwise a gateway that reaches the former owner waits for it, which knows of nothing."""
    free = [({2: 0}, 1)] if is_seen_free else []
    moved = asyncio.run(_moves(({1: 0, 2: 0}, 1), ({1: SILENT_MS, 2: 0}, 1), *free, ({2: 0}, 2)))

    assert moved == [(0, True)]


def test_an_owner_that_gave_its_slot_away_was_not_silent() -> None:
    moved = asyncio.run(_moves(({1: 0, 2: 0}, 1), ({1: 0, 2: 0}, 2), ({2: 0}, 2)))

    assert moved == [(0, False)]


def test_an_owner_that_comes_back_has_not_moved() -> None:
    assert asyncio.run(_moves(({1: 0}, 1), ({2: 0}, 1), ({1: 0}, 1))) == []


async def _looks_in(seconds: float, age_ms: int) -> int:
    scene = Scene()
    scene.members, scene.owner = {1: age_ms}, 1
    slots = SlotMap([scene], loop=asyncio.get_running_loop())
    running = asyncio.create_task(slots.run("door", ""))
    try:
        await asyncio.sleep(seconds)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return scene.looks


def test_a_silent_owner_is_looked_at_more_often() -> None:
    seconds = LOOK_S + 3 * LOOK_SOON_S
    assert asyncio.run(_looks_in(seconds, 0)) <= 2
    assert asyncio.run(_looks_in(seconds, SILENT_MS)) > 2


def test_nodes_of_an_older_release_are_known_by_name_until_they_are_gone() -> None:
    """R42: what their build cannot read is not recorded while they run."""

    async def story() -> list[str]:
        scene = Scene()
        now = json.dumps({"protocol": PROTOCOL_VERSION})
        before = json.dumps({"protocol": PROTOCOL_VERSION - 1})
        scene.members = {1: 0, 2: 0, 3: SILENT_MS_MAX, 4: 0}
        scene.about = {1: now, 2: "{}", 3: before, 4: before}
        scene.gateways = [SeenGateway("g1", "not json", 0), SeenGateway("g2", now, 0)]
        slots = SlotMap([scene], loop=asyncio.get_running_loop())
        running = asyncio.create_task(slots.run("door", ""))
        slots.is_urgent = lambda: True
        try:
            await _seen(scene)
            return slots.older_nodes()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    assert asyncio.run(story()) == ["g1", "m2", "m4"]
