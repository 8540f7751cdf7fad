"""What a gateway keeps for a slot that is not served for a while, and in which order it is done."""

import asyncio
from collections.abc import Callable

import pytest

from shardbus.broker.remote.broker import FAREWELL_S, RemoteBroker
from shardbus.broker.remote.link import Identity
from shardbus.broker.remote.parking import PARKED_TICKS_MAX, ParkingLot
from shardbus.broker.routing.dispatch import ignore
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import RELEASE, Received, Settle
from tests.unit.broker.wires import (
    SECRET,
    World,
    ask,
    payloads,
    receive,
    receive_command,
    run_world,
    running,
    send,
)

LONG_S = PARKED_TICKS_MAX


def patient(world: World) -> RemoteBroker:
    """A broker as a gateway of a cluster sees it."""
    identity = Identity("gateway-0", "broker-0", SECRET)
    dial = world.wire().dial
    return RemoteBroker(
        identity, dial, loop=world.loop, new_nonce=lambda: b"g" * 32, lot=ParkingLot()
    )


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_a_receive_does_not_overtake_the_release_of_an_earlier_message(refused: int) -> None:
    """R20: whether the release was refused while the receive was under way, or is parked."""

    async def story(world: World) -> None:
        remote = patient(world)
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            fragment = remote.runner(world.entity, 0)
            await send(fragment, b"first", b"second")
            first = await receive(fragment, 1)
            assert payloads(first) == [b"first"]

            refusals = [False] * refused
            world.endpoint.may_take = lambda: refusals.pop() if refusals else True
            fragment.submit(Settle(RELEASE, [first.deliveries[0].token]), ignore)
            again = await ask(fragment, receive_command(1))
            assert isinstance(again, Received)
            assert payloads(again) == [b"first"]

    run_world(story)


def test_receives_behind_a_release_that_is_given_up_are_answered() -> None:
    async def story(world: World) -> None:
        remote = patient(world)
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            fragment = remote.runner(world.entity, 0)
            await send(fragment, b"first", b"second")
            first = await receive(fragment, 1)

            world.endpoint.may_take = lambda: False
            fragment.submit(Settle(RELEASE, [first.deliveries[0].token]), ignore)
            waiting = asyncio.ensure_future(ask(fragment, receive_command(1)))
            await asyncio.sleep(LONG_S)
            assert waiting.done()
            world.endpoint.may_take = lambda: True
            assert payloads(await receive(fragment, 1)) == [b"second"]

    run_world(story)


@pytest.mark.parametrize(("was_silent", "waits_s"), [(True, 0.1), (False, FAREWELL_S)])
def test_what_a_silent_broker_was_asked_is_not_waited_for(was_silent: bool, waits_s: float) -> None:
    """R40: a broker that is cut off from its database never answers, and does not know why."""

    async def story(world: World) -> None:
        wire = world.wire()
        identity = Identity("gateway-0", "broker-0", SECRET)
        remote = RemoteBroker(
            identity, wire.dial, loop=world.loop, new_nonce=lambda: b"g" * 32, lot=ParkingLot()
        )
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            began_s = world.loop.time()
            remote.moved(was_silent=was_silent)
            while wire.dialled == 1:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)

            assert waits_s <= world.loop.time() - began_s + 0.1 <= waits_s + 0.3

    run_world(story)


def test_a_greeting_that_comes_before_the_gateway_goes_on_loses_nothing() -> None:
    """On a busy machine the broker answers before the task that has dialled runs again."""

    async def story(world: World) -> None:
        wire = world.wire()

        async def dial(new_protocol: Callable[[], asyncio.Protocol]) -> None:
            await wire.dial(new_protocol)
            await asyncio.sleep(1.0)

        identity = Identity("gateway-0", "broker-0", SECRET)
        remote = RemoteBroker(identity, dial, loop=world.loop, new_nonce=lambda: b"g" * 32)
        fragment = remote.runner(world.entity, 0)
        woken: list[bool] = []
        fragment.watch(MAIN_LINE, lambda: woken.append(True))
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            await send(fragment, b"one")
            await asyncio.sleep(2.0)

            assert woken == [True]

    run_world(story)
