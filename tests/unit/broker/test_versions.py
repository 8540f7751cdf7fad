"""Gateways and brokers of two builds: the greeting is frozen, and a version both speak is chosen.

A rolling upgrade replaces processes one after another, in any order (R42).
"""

from __future__ import annotations

import re

import pytest

from shardbus.broker.remote.broker import RemoteBroker
from shardbus.broker.remote.link import Identity
from shardbus.broker.wire.codec import decode, encode
from shardbus.broker.wire.fields import WireError
from shardbus.broker.wire.frames import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    Answered,
    Frame,
    Hello,
    Prove,
    Reject,
    Request,
    Versions,
    Welcome,
)
from shardbus.core.errors import REPARTITIONING, SERVER_BUSY, Refused, Unavailable
from shardbus.core.lifecycle.command import ReadLifecycle
from shardbus.core.message import Message
from shardbus.core.messages.command import COMPLETE, Receive, Send, Settle
from shardbus.core.sealing.command import Seal
from shardbus.core.sessions.command import SHARED, AcceptSession
from shardbus.stores.base.store import FragmentId
from tests.unit.broker.wires import SECRET, Wire, World, payloads, receive, run_world, running, send

OLD = Versions(11, 11)
NEW = Versions(11, 12)
NEWER = Versions(12, 13)

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
    [(OLD, OLD, 11), (OLD, NEW, 11), (NEW, OLD, 11), (NEW, NEW, 12), (NEW, NEWER, 12)],
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
        (NEWER, OLD, "speaks version 11 of the protocol at most.*versions 12 to 13: upgrade"),
        (OLD, NEWER, "the broker speaks versions 12 to 13, not 11"),
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


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (ReadLifecycle(0, 1), "ReadLifecycle"),
        (Seal(1), "Seal"),
        (AcceptSession("s", b"12345678", SHARED), "AcceptSession with sharing"),
        (Send([Message(b"m", subscription_id=7)]), "Message with subscription_id"),
        (Send([Message(b"m", subscription_id=7, past_number=3)]), "Message with subscription_id"),
    ],
)
def test_what_an_older_broker_does_not_know_may_be_tried_after_its_upgrade(
    command: ReadLifecycle | Seal | Send | AcceptSession, needed: str
) -> None:
    """R42: nothing is sent, the connection stays, and the error names what to upgrade."""

    async def story(world: World) -> None:
        world.endpoint.versions = OLD
        remote = _remote(world, world.wire(), NEW)
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            fragment = remote.runner(world.entity, 0)
            answers: list[object] = []
            remote.submit_now(fragment, command, answers.append)
            [answer] = answers
            assert isinstance(answer, Unavailable) and not answer.is_unknown
            for word in ("broker-0", "version 11", f"{needed} needs version 12", "Upgrade"):
                assert word in answer.message
            await send(fragment, b"after")
            assert payloads(await receive(fragment, is_locking=False)) == [b"after"]

    run_world(story)


def test_a_name_that_decides_nothing_is_not_told_to_an_older_broker() -> None:
    """R42: and the command still has it, for another broker."""
    named = Receive(0, 1, is_locking=True, token_seed=b"s" * 8, receiver="worker")
    plain = Receive(0, 1, is_locking=True, token_seed=b"s" * 8)

    told, bare = (encode(Request(1, FragmentId(1, 0), each), 11) for each in (named, plain))
    assert told == bare == encode(Request(1, FragmentId(1, 0), plain))
    assert named.receiver == "worker"
    decoded = decode(encode(Request(1, FragmentId(1, 0), named))[4:])
    assert isinstance(decoded, Request) and isinstance(decoded.command, Receive)
    assert decoded.command.receiver == "worker"
    # What a gateway of version 11 sends for it, as the release before this one wrote it.
    assert bare.hex() == RECEIVE_11


RECEIVE_11 = "000000260700000000000000010000000000000001000002010000000001737373737373737300000000"


def test_an_older_broker_settles_without_the_token_of_a_session() -> None:
    """R42: it has no shared sessions, the only ones for which the token is checked."""
    of_session = Settle(COMPLETE, [b"x" * 16], session=b"s" * 16)
    plain = Settle(COMPLETE, [b"x" * 16])

    told, bare = (encode(Request(1, FragmentId(1, 0), each), 11) for each in (of_session, plain))
    assert told == bare
    decoded = decode(encode(Request(1, FragmentId(1, 0), of_session))[4:])
    assert isinstance(decoded, Request) and isinstance(decoded.command, Settle)
    assert decoded.command.session == b"s" * 16


def test_an_older_gateway_learns_that_a_sealed_fragment_is_busy() -> None:
    """R42: it does not know the kind of this refusal."""
    refused = Answered(1, Refused(REPARTITIONING, "sealed"))

    for version, kind in ((11, SERVER_BUSY), (12, REPARTITIONING)):
        decoded = decode(encode(refused, version)[4:], version)
        assert isinstance(decoded, Answered) and isinstance(decoded.answer, Refused)
        assert decoded.answer.kind is kind


def test_a_command_of_a_later_version_is_unknown_on_a_connection_with_an_earlier_one() -> None:
    """R42"""
    asked = encode(Request(1, FragmentId(1, 0), ReadLifecycle(0, 1)))[4:]

    with pytest.raises(WireError):
        decode(asked, 11)


def _remote(world: World, wire: Wire, versions: Versions) -> RemoteBroker:
    identity = Identity("gateway-0", "broker-0", SECRET, versions)
    return RemoteBroker(identity, wire.dial, loop=world.loop, new_nonce=lambda: b"g" * 32)
