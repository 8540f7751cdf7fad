"""What is refused: with the right error, for the one who asked, and without effect on others."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    ServiceBusAdministrationClient,
)

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState, Rejected
from shardbus.app.cli.sas import Credential
from shardbus.broker.access.sas import mint_token
from shardbus.message.sections import encode_data_message
from tests.conformance.conftest import Queue
from tests.conformance.sdk import Sdk, pair, texts
from tests.support.amqp_client import Address, Ended, SaslRefused, connected
from tests.support.messages import seen
from tests.support.server import Server

SIZE_MAX = 262_144


@pytest.fixture
def namespace(server: Server) -> str:
    return f"sb://{server.host}:{server.amqp_port}"


@asynccontextmanager
async def unharmed(address: Address, credential: Credential, queue: str) -> AsyncIterator[None]:
    """A client with open links that must not notice what happens inside."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue)
        receiver = await client.receiver(queue)
        yield
        assert sender.error is None
        assert isinstance(await sender.send(encode_data_message(b"still here")), Accepted)
        receiver.grant(1)
        [delivery] = await receiver.take_many(1)
        assert seen(delivery.payload).body == b"still here"
        await receiver.settle([delivery], ACCEPTED)


async def test_an_unknown_queue_is_an_error_of_the_token_to_the_python_sdk(sdk: Sdk) -> None:
    """It puts every refusal of $cbs, the 404 of an unknown entity too, into one class."""
    with pytest.raises(ServiceBusAuthenticationError):
        async with sdk.sender("nowhere") as sender:
            await sender.send(ServiceBusMessage("x"))
    with pytest.raises(ServiceBusAuthenticationError):
        async with sdk.receiver("nowhere") as receiver:
            await receiver.receive(wait_s=1)


async def test_a_refused_attach_leaves_the_other_links_of_its_connection(
    address: Address, credential: Credential, queue: Queue
) -> None:
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        with pytest.raises(Ended) as refusal:
            await client.receiver("nowhere")

        assert refusal.value.condition == "amqp:not-found"
        assert "The messaging entity 'sb://" in refusal.value.description
        assert "could not be found" in refusal.value.description
        assert isinstance(await sender.send(encode_data_message(b"x")), Accepted)


async def test_a_connection_without_a_token_gets_nothing(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R34."""
    async with unharmed(address, credential, queue.name), connected(address) as client:
        for attach in (client.sender, client.receiver):
            with pytest.raises(Ended) as refusal:
                await attach(queue.name)
            assert refusal.value.condition == "amqp:unauthorized-access"


async def test_a_token_opens_what_it_names_and_nothing_else(
    address: Address, credential: Credential, namespace: str, queue: Queue
) -> None:
    """R34: scope."""
    scope = f"{namespace}/{queue.name}"
    good = mint_token(scope, credential.key_name, credential.key, _in_s(60))
    elsewhere = mint_token(f"{scope}-2", credential.key_name, credential.key, _in_s(60))

    async with connected(address) as client:
        assert await client.put_token(elsewhere, f"{scope}-2") == 404
        with pytest.raises(Ended, match="unauthorized-access"):
            await client.sender(queue.name)
        assert await client.put_token(elsewhere, scope) == 401
        assert await client.put_token(good, scope) in (200, 202)
        sender = await client.sender(queue.name)
        assert isinstance(await sender.send(encode_data_message(b"x")), Accepted)


async def test_forged_expired_and_malformed_tokens_are_refused(
    address: Address, credential: Credential, namespace: str, queue: Queue
) -> None:
    """R34."""
    scope = f"{namespace}/{queue.name}"
    forged = mint_token(scope, credential.key_name, "not the key", _in_s(60))
    unknown = mint_token(scope, "NoSuchRule", credential.key, _in_s(60))
    expired = mint_token(scope, credential.key_name, credential.key, _in_s(-1))
    altered = mint_token(scope, credential.key_name, credential.key, _in_s(60)) + "0"

    async with unharmed(address, credential, queue.name), connected(address) as client:
        for token in (forged, unknown, expired, altered):
            assert await client.put_token(token, scope) == 401
        for token in ("", "SharedAccessSignature", "jwt.jwt.jwt", "x" * 9_000):
            assert await client.put_token(token, scope) in (400, 401)
        with pytest.raises(Ended, match="unauthorized-access"):
            await client.sender(queue.name)


async def test_a_link_ends_when_its_token_does(
    address: Address, credential: Credential, namespace: str, queue: Queue
) -> None:
    """R34: expiry counts for what is open too."""
    scope = f"{namespace}/{queue.name}"
    brief = mint_token(scope, credential.key_name, credential.key, _in_s(2))

    async with connected(address) as client:
        assert await client.put_token(brief, scope) in (200, 202)
        receiver = await client.receiver(queue.name, credit=1)
        with pytest.raises(Ended) as end:
            await receiver.take_some()

        assert end.value.condition == "amqp:unauthorized-access"
        assert not client.ended.done(), "the connection may show a new token"


async def test_a_wrong_key_is_refused_by_sasl_plain(address: Address, queue: Queue) -> None:
    """R34."""
    with pytest.raises((SaslRefused, Ended)):
        async with connected(address, Credential(key="wrong")) as client:
            await client.sender(queue.name)


def test_a_wrong_key_is_an_authentication_error_in_the_sdk(server: Server, queue: Queue) -> None:
    """R34."""
    key = server.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    wrong = server.connection_string.replace(f"SharedAccessKey={key}", "SharedAccessKey=wrong")

    with (
        ServiceBusClient.from_connection_string(wrong, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
        client.get_queue_sender(queue.name) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_a_listener_may_listen_and_neither_send_nor_manage(
    server: Server, administration: ServiceBusAdministrationClient, queue_name: str
) -> None:
    """R34: rights on an entity."""
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        rights=[AccessRights.LISTEN],
        key_name="listener",
        primary_key="bGlzdGVuLW9ubHk=",
        secondary_key="bGlzdGVuLW9ubHktMg==",
    )
    administration.create_queue(queue_name, authorization_rules=[rule])
    endpoint = server.connection_string.partition(";")[0]
    listening = (
        f"{endpoint};SharedAccessKeyName=listener;SharedAccessKey=bGlzdGVuLW9ubHk=;"
        "UseDevelopmentEmulator=true"
    )

    with ServiceBusClient.from_connection_string(listening, retry_total=0) as client:
        with client.get_queue_receiver(queue_name) as receiver:
            assert receiver.peek_messages() == []
        with (
            pytest.raises((ServiceBusAuthorizationError, ServiceBusAuthenticationError)) as refusal,
            client.get_queue_sender(queue_name) as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))
        assert "Send" in str(refusal.value)
    with (
        ServiceBusAdministrationClient.from_connection_string(
            listening, connection_verify=str(server.ca_file), retry_total=0
        ) as listener,
        pytest.raises(HttpResponseError) as denial,
    ):
        listener.delete_queue(queue_name)
    assert denial.value.status_code == 401
    administration.delete_queue(queue_name)


async def test_an_oversized_message_is_refused_and_costs_only_its_link(
    address: Address, credential: Credential, queue: Queue
) -> None:
    async with connected(address, credential) as client:
        bystander = await client.sender(queue.name)
        sender = await client.sender(queue.name)

        condition = await _condition_of(sender.send(encode_data_message(b"x" * SIZE_MAX)))

        assert condition == "amqp:link:message-size-exceeded"
        assert isinstance(await bystander.send(encode_data_message(b"x")), Accepted)


async def test_the_sdk_reports_an_oversized_message(sdk: Sdk, queue: Queue) -> None:
    async with sdk.sender(queue.name) as sender:
        with pytest.raises(MessageSizeExceededError):
            await sender.send(ServiceBusMessage(b"x" * (SIZE_MAX + 1)))
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(ServiceBusMessage(b"y"))
        [message] = await receiver.receive()
        assert texts([message]) == ["y"]


async def test_a_session_id_other_than_the_partition_key_is_refused(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R12."""
    conflicting = encode_data_message(b"x", session_id="one", partition_key="other")
    same = encode_data_message(b"x", session_id="one", partition_key="one")

    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)

        assert await _condition_of(sender.send(conflicting)) == "amqp:not-allowed"
        assert isinstance(await sender.send(same), Accepted)


async def test_what_is_no_message_is_refused_and_the_link_lives(
    address: Address, credential: Credential, queue: Queue
) -> None:
    good = encode_data_message(b"x")
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for payload in (b"", b"\x00", b"garbage", good[:-1], good + b"\x00\x53\x75"):
            assert await _condition_of(sender.send(payload)) == "com.microsoft:argument-error"
        assert isinstance(await sender.send(good), Accepted)


async def test_a_key_that_is_too_long_is_refused(
    address: Address, credential: Credential, queue: Queue
) -> None:
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        refused = encode_data_message(b"x", partition_key="k" * 129)
        accepted = encode_data_message(b"x", partition_key="k" * 128)

        assert await _condition_of(sender.send(refused)) == "com.microsoft:argument-error"
        assert isinstance(await sender.send(accepted), Accepted)


@pytest.mark.parametrize(
    "name", ["a*b", "a@b", "a\\b", "a?b", "a#b", "a//b", "x" * 261, "$cbs", "a b\n"]
)
def test_a_name_with_forbidden_characters_creates_nothing(
    administration: ServiceBusAdministrationClient, name: str
) -> None:
    before = [queue.name for queue in administration.list_queues()]

    with pytest.raises((HttpResponseError, ValueError)) as refusal:
        administration.create_queue(name)

    if isinstance(refusal.value, HttpResponseError):
        assert refusal.value.status_code in (400, 404, 405)
    assert [queue.name for queue in administration.list_queues()] == before


async def test_senders_and_receivers_stay_where_they_belong(
    address: Address, credential: Credential, queue: Queue
) -> None:
    async with connected(address, credential) as client:
        with pytest.raises(Ended) as refusal:
            await client.sender(f"{queue.name}/$DeadLetterQueue")
        assert refusal.value.condition == "amqp:not-allowed"


async def test_settling_with_a_lost_lock_is_refused_by_the_bus(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """The Python SDK refuses by its own clock; this one asks the bus."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(encode_data_message(b"x"))
        receiver = await client.receiver(queue.name, credit=1)
        [first] = await receiver.take_many(1)
        receiver.grant(1)
        [second] = await receiver.take_many(1)
        [lost] = await receiver.settle([first], ACCEPTED)
        [done] = await receiver.settle([second], ACCEPTED)

        assert isinstance(lost, Rejected)
        assert lost.error is not None
        assert lost.error.condition == "com.microsoft:message-lock-lost"
        assert isinstance(done, Accepted)
        assert seen(second.payload).delivery_count == 1


async def _condition_of(sending: Awaitable[DeliveryState | None]) -> str:
    """Why a message was refused, whether it was rejected or its link ended."""
    try:
        state = await sending
    except Ended as end:
        return end.condition
    assert isinstance(state, Rejected), state
    assert state.error is not None
    assert state.error.description
    return state.error.condition


def _in_s(seconds: int) -> int:
    return int(time.time()) + seconds
