"""Turns at the catalogue over connections that break, fall silent and come back."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from shardbus.broker.remote.broker import RemoteBroker
from shardbus.broker.remote.catalogue import RemoteCatalogue, SharedTurns
from shardbus.broker.remote.catalogue_answerer import TURN_MS_MAX, CatalogueAnswerer
from shardbus.core.errors import Unavailable
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.unit.broker.hosts import InlineWorker
from tests.unit.broker.wires import Wire, World, run_world, running

SOON_S = 3.0
assert SOON_S < TURN_MS_MAX / 1000

Story = Callable[["Crossing"], Coroutine[object, object, None]]


class Crossing:
    """The broker that keeps the catalogue, and two gateways."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wires: list[Wire] = [world.wire(), world.wire()]
        self.remotes: list[RemoteBroker] = [world.remote(wire) for wire in self.wires]
        self.turns = [
            SharedTurns(remote, RemoteCatalogue(remote, world.loop)) for remote in self.remotes
        ]

    async def manage(self, gateway: int, seconds: float = 0.0) -> None:
        async with self.turns[gateway].take("q"):
            await asyncio.sleep(seconds)

    async def soon(self, gateway: int) -> None:
        """The turn comes, and long before that of somebody lost would have ended by itself."""
        async with asyncio.timeout(SOON_S):
            await self.manage(gateway)


def crossing(story: Story) -> None:
    async def tell(world: World) -> None:
        answerer = CatalogueAnswerer(
            MemoryCatalogue(created_at_ms=42),
            InlineWorker(),
            loop=world.loop,
            version=1_000,
            on_change=world.endpoint.publish_catalogue,
        )
        world.endpoint.keep_turns(answerer)
        both = Crossing(world)
        async with running(both.remotes[0]), running(both.remotes[1]):
            for remote in both.remotes:
                assert await remote.wait_until_up(1_000)
            await story(both)
        answerer.close()

    run_world(tell)


def test_a_gateway_that_dies_in_its_turn_blocks_nobody() -> None:
    async def story(both: Crossing) -> None:
        work = asyncio.ensure_future(both.manage(0, 1_000))
        await asyncio.sleep(0.1)

        both.wires[0].cut()

        await both.soon(1)
        work.cancel()

    crossing(story)


@pytest.mark.parametrize("gateway", [0, 1])
@pytest.mark.parametrize("seconds", [0.5, 1.3])
@pytest.mark.parametrize("stood_still_s", [0.0, 1.4])
def test_a_turn_that_ended_while_the_broker_stood_still_is_given_back(
    gateway: int, seconds: float, stood_still_s: float
) -> None:
    """To the one who had it and to everybody else, whether it knew that the broker is out."""

    async def story(both: Crossing) -> None:
        work = asyncio.ensure_future(both.manage(0, seconds))
        await asyncio.sleep(0.1)
        for wire in both.wires:
            wire.hold()
        await asyncio.sleep(1.5)
        assert work.done() and not both.remotes[0].is_up
        both.world.stood_still_s = stood_still_s
        for wire in both.wires:
            wire.release()
        await asyncio.sleep(0.5)

        await both.soon(gateway)

    crossing(story)


@pytest.mark.parametrize("gateway", [0, 1])
def test_a_turn_that_comes_when_nobody_waits_for_it_any_more_is_given_back(gateway: int) -> None:
    """It was asked for, and the broker stood still; nothing tells it so."""

    async def story(both: Crossing) -> None:
        for wire in both.wires:
            wire.hold()
        with pytest.raises(Unavailable):
            await both.manage(0)
        for wire in both.wires:
            wire.release()
        await asyncio.sleep(0.5)

        await both.soon(gateway)

    crossing(story)


@pytest.mark.parametrize("gateway", [0, 1])
def test_a_client_that_stops_waiting_for_a_turn_leaves_none_behind(gateway: int) -> None:
    async def story(both: Crossing) -> None:
        first = asyncio.ensure_future(both.manage(1, 1.0))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await both.manage(0)
        await first

        await both.soon(gateway)

    crossing(story)


def test_a_question_that_was_given_up_is_not_acted_on_afterwards() -> None:
    """A broker that stood still asks what was given up meanwhile, and leaves that."""

    async def story(both: Crossing) -> None:
        for wire in both.wires:
            wire.hold()
        with pytest.raises(Unavailable):
            await both.remotes[0].delete_fragments(7, [0, 1])
        both.world.stood_still_s = 5.0
        for wire in both.wires:
            wire.release()
        await asyncio.sleep(1)

        assert len(await both.remotes[1].fragment_ids()) == 4

    crossing(story)
