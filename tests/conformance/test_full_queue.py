"""A full queue refuses, loses nothing, and takes messages again when there is room (R9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState, Rejected
from shardbus.app.cli.sas import Credential, parse_connection_string
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message
from tests.support.amqp_client import Address, Sender, connected
from tests.support.queues import create_queue, describe_queue
from tests.support.server import Server, running_server

FRAGMENT_MB: Final = 2
FRAGMENT_BYTES: Final = FRAGMENT_MB * 1024 * 1024
BODY: Final = b"x" * 100_000
# One at a time: what arrives together is decided together, and may pass the limit together.
WINDOW: Final = 1


@dataclass(frozen=True)
class Outcomes:
    """How many messages were accepted, and why the others were not."""

    accepted: int
    conditions: set[str]


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for a small disk: every fragment is full at 2 MB, whatever its entity allows."""
    data_dir = tmp_path_factory.mktemp("small") / "data"
    with running_server(data_dir, "--fragment-mb-max", str(FRAGMENT_MB)) as server:
        yield server


@pytest.fixture
def small_address(small_server: Server) -> Address:
    return Address(small_server.host, small_server.amqp_port)


@pytest.fixture
def small_credential(small_server: Server) -> Credential:
    return parse_connection_string(small_server.connection_string).credential


async def fill(sender: Sender, count: int, key: str | None = None) -> Outcomes:
    states: list[DeliveryState | None] = []
    payload = encode_data_message(BODY, partition_key=key)
    await sender.send_all([payload] * count, lambda _, state: states.append(state), 0, WINDOW)
    refused = [state for state in states if isinstance(state, Rejected)]
    accepted = sum(isinstance(state, Accepted) for state in states)
    assert accepted + len(refused) == count
    return Outcomes(accepted, {state.error.condition for state in refused if state.error})


@pytest.mark.parametrize("is_partitioned", [False, True], ids=["conventional", "partitioned"])
async def test_a_full_queue_refuses_and_loses_nothing(
    small_server: Server, small_address: Address, small_credential: Credential, is_partitioned: bool
) -> None:
    """R9."""
    name = f"full-{is_partitioned}".lower()
    create_queue(small_server, name, EnablePartitioning=str(is_partitioned).lower())
    fragments = 16 if is_partitioned else 1
    room = fragments * FRAGMENT_BYTES // len(BODY)

    async with connected(small_address, small_credential) as client:
        sender = await client.sender(name)
        outcomes = await fill(sender, room + 4 * fragments)

        # The message that reaches the limit is still taken.
        assert room - fragments <= outcomes.accepted <= room + fragments
        assert outcomes.conditions == {"amqp:resource-limit-exceeded"}
        assert describe_queue(small_server, name).message_count == outcomes.accepted
        batch = encode_batch([encode_data_message(b"x")] * 3)
        assert isinstance(await sender.send(batch, BATCH_FORMAT), Rejected)
        assert describe_queue(small_server, name).message_count == outcomes.accepted

        receiver = await client.receiver(name, credit=fragments * 4)
        deliveries = await receiver.take_many(fragments * 4)
        await receiver.settle(deliveries, ACCEPTED)
        assert (await fill(sender, fragments)).accepted > 0


async def test_a_full_fragment_refuses_its_keys_and_no_others(
    small_server: Server, small_address: Address, small_credential: Credential
) -> None:
    """R9, R15: a message with a key never goes elsewhere."""
    create_queue(small_server, "keyed", EnablePartitioning="true")

    async with connected(small_address, small_credential) as client:
        sender = await client.sender("keyed")
        full = await fill(sender, FRAGMENT_BYTES // len(BODY) + 10, key="one")
        others = [await fill(sender, 1, key=f"key-{number}") for number in range(32)]

        assert full.conditions == {"amqp:resource-limit-exceeded"}
        assert sum(outcome.accepted for outcome in others) >= 24
        assert (await fill(sender, 1, key="one")).accepted == 0
