"""What a gateway keeps for a slot that is not served for a while, and in which order it is done."""

import asyncio

import pytest

from shardbus.broker.remote.broker import RemoteBroker
from shardbus.broker.remote.link import Identity
from shardbus.broker.remote.parking import PARKED_TICKS_MAX, ParkingLot
from shardbus.broker.routing.dispatch import ignore
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
