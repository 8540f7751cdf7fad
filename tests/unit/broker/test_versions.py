"""Gateways and brokers of two builds: the greeting is frozen, and a version both speak is chosen.

A rolling upgrade replaces processes one after another, in any order (R42).
"""

from __future__ import annotations

import re

import pytest

from shardbus.broker.remote.broker import RemoteBroker
from shardbus.broker.remote.link import Identity
from shardbus.broker.wire.codec import decode, encode
from shardbus.broker.wire.frames import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    Frame,
    Hello,
    Prove,
    Reject,
    Versions,
    Welcome,
)
from tests.unit.broker.wires import SECRET, Wire, World, payloads, receive, run_world, running, send

OLD = Versions(10, 10)
NEW = Versions(10, 11)
NEWER = Versions(11, 12)

# What every build since version 10 sends, byte by byte. Never change a line: add one.
FROZEN: list[tuple[Frame, str]] = [
    (
        Hello(10, "broker-0", b"n" * 32, "id"),
        "0000003501000a0000000862726f6b65722d30" + "6e" * 32 + "000000026964",
    ),
    (
        Prove(10, "g", b"m" * 32, b"p" * 32),
        "0000004802000a0000000167" + "6d" * 32 + "70" * 32,
    ),
    (Welcome(b"p" * 32), "0000002103" + "70" * 32),
    (Reject("no"), "0000000704000000026e6f"),
]


@pytest.mark.parametrize("at", range(len(FROZEN)))
def test_the_greeting_is_the_same_in_all_versions(at: int) -> None:
    """R42: otherwise nobody could say that versions differ."""
    frame, frozen = FROZEN[at]

    assert encode(frame).hex() == frozen
    assert encode(decode(bytes.fromhex(frozen)[4:])).hex() == frozen


def test_the_release_before_this_one_is_still_spoken() -> None:
    assert PROTOCOL_VERSION - 1 <= PROTOCOL_VERSION_MIN <= PROTOCOL_VERSION
    assert Versions().has(PROTOCOL_VERSION) and Versions().has(PROTOCOL_VERSION_MIN)


@pytest.mark.parametrize(
    ("gateway", "broker", "spoken"),
    [(OLD, OLD, 10), (OLD, NEW, 10), (NEW, OLD, 10), (NEW, NEW, 11), (NEW, NEWER, 11)],
)
def test_two_builds_speak_the_latest_version_that_both_know(
    gateway: Versions, broker: Versions, spoken: int
) -> None:
    """R42"""

    async def story(world: World) -> None:
        world.endpoint.versions = broker
        wire = world.wire()
        remote = _remote(world, wire, gateway)
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            assert remote._link is not None and remote._link.version == spoken

    run_world(story)


@pytest.mark.parametrize(
    ("gateway", "broker", "why"),
    [
        (NEWER, OLD, "speaks version 10 of the protocol at most.*versions 11 to 12: upgrade"),
        (OLD, NEWER, "the broker speaks versions 11 to 12, not 10"),
    ],
)
def test_builds_that_are_too_far_apart_say_so(
    gateway: Versions, broker: Versions, why: str
) -> None:
    """R42"""

    async def story(world: World) -> str:
        world.endpoint.versions = broker
        remote = _remote(world, world.wire(), gateway)
        async with running(remote):
            assert not await remote.wait_until_up(1_000)
            return remote.reason

    reason = run_world(story)
    assert re.search(why, reason), reason


def test_a_rolling_upgrade_loses_nothing() -> None:
    """R42: gateway first or broker first, back and forth; messages flow in each step."""

    async def story(world: World) -> None:
        sent: list[bytes] = []
        for step, (gateway, broker) in enumerate(
            [(OLD, OLD), (NEW, OLD), (NEW, NEW), (OLD, NEW), (OLD, OLD)]
        ):
            world.endpoint.versions = broker
            remote = _remote(world, world.wire(), gateway)
            async with running(remote):
                assert await remote.wait_until_up(1_000)
                fragment = remote.runner(world.entity, 0)
                sent.append(b"%d" % step)
                await send(fragment, sent[-1])
        remote = _remote(world, world.wire(), NEW)
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            found = await receive(remote.runner(world.entity, 0), is_locking=False)
            assert payloads(found) == sent

    run_world(story)


def _remote(world: World, wire: Wire, versions: Versions) -> RemoteBroker:
    identity = Identity("gateway-0", "broker-0", SECRET, versions)
    return RemoteBroker(identity, wire.dial, loop=world.loop, new_nonce=lambda: b"g" * 32)
