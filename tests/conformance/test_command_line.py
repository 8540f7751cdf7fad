"""The `shardbus` command as a client of the server, and what the server shows over HTTP."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import urllib.request

import pytest

from shardbus.amqp.outcomes import Modified
from shardbus.app.cli.sas import Credential
from shardbus.codec.types import Symbol, Timestamp, Value
from shardbus.codec.value import encode
from shardbus.message.sections import encode_data_message
from tests.conformance.conftest import Queues
from tests.support.amqp_client import Address, connected
from tests.support.commands import run
from tests.support.server import Server


def test_a_queue_lives_from_create_to_delete(server: Server, queue_name: str) -> None:
    """R5, R9, R31."""
    created = run(server, "queue", "create", queue_name, "--lock-duration", "30s", "--json")
    again = run(server, "queue", "create", queue_name)
    shown = run(server, "queue", "show", queue_name, "--json")
    listed = run(server, "queue", "list", "--json")
    deleted = run(server, "queue", "delete", queue_name, "--yes")
    gone = run(server, "queue", "show", queue_name)

    assert created[0] == 0, created
    assert again[0] != 0
    assert queue_name in again[1]
    document = json.loads(shown[1])
    assert document == json.loads(created[1])
    assert document["name"] == queue_name
    assert "16" in json.dumps(document)
    assert queue_name in listed[1]
    assert deleted[0] == 0
    assert gone[0] != 0
    assert "there is no queue" in gone[1]


def test_partitioning_can_be_switched_off(server: Server, queue_name: str) -> None:
    """R31."""
    code, output = run(server, "queue", "create", queue_name, "--no-partitioning")
    run(server, "queue", "delete", queue_name, "--yes")

    assert code == 0, output


def test_a_bad_name_is_refused_with_a_reason(server: Server) -> None:
    code, output = run(server, "queue", "create", "not*allowed")

    assert code != 0
    assert "not*allowed" in output or "'*'" in output
    assert "Traceback" not in output


def test_a_connection_string_has_the_port_on_which_the_bus_serves_amqp(server: Server) -> None:
    code, output = run(server, "sas", "connection-string")

    assert code == 0, output
    assert f"Endpoint=sb://{server.host}:{server.amqp_port};" in output


def test_a_missing_access_rule_is_told_like_any_other_missing_thing(server: Server) -> None:
    code, output = run(server, "sas", "rule", "show", "nobody")

    assert code == 4
    assert "nobody" in output and "`shardbus sas rule list`" in output


def test_a_key_of_one_entity_is_enough_for_its_connection_string(server: Server) -> None:
    assert run(server, "queue", "create", "narrow")[0] == 0
    of_queue = ("--entity", "narrow")
    made = run(server, "sas", "rule", "create", "sender", "--rights", "Send", *of_queue)
    shown = run(server, "sas", "rule", "show", "sender", "--json", *of_queue)
    key = json.loads(shown[1])["primary_key"]

    signed = ("--key-name", "sender", "--key", key)
    code, output = run(server, "sas", "connection-string", *of_queue, *signed)

    assert (made[0], code) == (0, 0), output
    assert f"Endpoint=sb://{server.host}:{server.amqp_port};" in output
    assert "EntityPath=narrow" in output
    run(server, "queue", "delete", "narrow", "--yes")


async def test_fragments_tell_what_they_hold_by_state_and_what_they_dropped(
    server: Server,
    address: Address,
    credential: Credential,
    queues: Queues,
    is_partitioned: bool,
) -> None:
    """R13, R29: duplicates are counted where operators look."""
    queue = queues.make(is_partitioned, requires_duplicate_detection=True)
    tomorrow: dict[Value, Value] = {
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(int(time.time() * 1000) + 86_400_000)
    }
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for ident in ("one", "two", "one", "one"):
            await sender.send(encode_data_message(b"x", message_id=ident))
        await sender.send(b"\x00\x53\x72" + encode(tomorrow) + encode_data_message(b"later"))
        receiver = await client.receiver(queue.name, credit=1)
        deferring = Modified(delivery_failed=True, undeliverable_here=True)
        await receiver.settle(await receiver.take_many(1), deferring)
    code, output = await asyncio.to_thread(run, server, "fragments", queue.name, "--json")

    assert code == 0, output
    fragments = json.loads(output)["fragments"]
    assert len(fragments) == queue.fragment_count
    sums = {
        name: sum(fragment[name] for fragment in fragments)
        for name in ("active", "deferred", "scheduled", "duplicates")
    }
    assert sums == {"active": 1, "deferred": 1, "scheduled": 1, "duplicates": 2}


@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("is_shared", [False, True], ids=["own port", "amqp port"])
def test_health_is_told_on_every_port(server: Server, is_secure: bool, is_shared: bool) -> None:
    scheme = "https" if is_secure else "http"
    port = server.amqp_port if is_shared else server.http_port
    context = ssl.create_default_context(cafile=str(server.ca_file)) if is_secure else None

    with urllib.request.urlopen(
        f"{scheme}://{server.host}:{port}/health", timeout=20, context=context
    ) as response:
        assert response.status == 200
        assert json.load(response)["status"] == "healthy"
