"""Who may administer what, and what the Python clients are told when they may not."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import timedelta
from http.client import HTTPConnection
from typing import Final

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
)

from shardbus.app.cli.sas import Credential
from tests.conformance.administration import (
    Administration,
    Administrator,
    done,
    each_administrator,
    each_name,
)
from tests.conformance.rest import token_for
from tests.conformance.sdk import WAIT_S
from tests.conformance.variants import Each
from tests.support.server import Server

Call = Callable[[Administration, str], object | Awaitable[object]]

TOO_LONG: Final = timedelta(minutes=6)


@pytest.fixture
def administrator(server: Server) -> Each[Administrator]:
    return each_administrator(server)


@pytest.fixture
def name(administration: ServiceBusAdministrationClient) -> Iterator[Each[str]]:
    with each_name(administration) as made:
        yield made


def access_rule(
    name: str, *rights: AccessRights, primary_key: str | None = None
) -> AuthorizationRule:
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=list(rights),
        key_name=name,
        primary_key=primary_key,
    )


def connection_string(server: Server, key_name: str, key: str | None) -> str:
    assert key is not None
    endpoint = server.connection_string.partition(";")[0]
    return (
        f"{endpoint};SharedAccessKeyName={key_name};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )


def only(rules: list[AuthorizationRule] | None) -> AuthorizationRule:
    assert rules is not None
    [rule] = rules
    return rule


def send(server: Server, key_name: str, key: str | None, queue: str) -> int:
    """Send over HTTP with a key; the status."""
    authority = f"{server.host}:{server.http_port}"
    credential = Credential(key_name, key or "")
    token = credential.token_for(f"http://{authority}", expires_at_s=int(time.time()) + 600)
    connection = HTTPConnection(authority, timeout=WAIT_S)
    with closing(connection):
        connection.request("POST", f"/{queue}/messages", b"x", {"Authorization": token})
        return connection.getresponse().status


async def test_access_rules_get_keys_that_open_what_they_say(
    server: Server, administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """R34, R35: made without keys, read back, used, replaced; queues and topics alike."""
    async with administrator.open() as client:
        made = await done(
            client.create_queue(
                name,
                enable_partitioning=is_partitioned,
                authorization_rules=[access_rule("worker", AccessRights.SEND)],
            )
        )
        topic = await done(
            client.create_topic(
                f"{name}-topic",
                enable_partitioning=is_partitioned,
                authorization_rules=[access_rule("worker", AccessRights.MANAGE)],
            )
        )
        rule = only((await done(client.get_queue(name))).authorization_rules)
        of_topic = only((await done(client.get_topic(topic.name))).authorization_rules)
        keys = [rule.primary_key, rule.secondary_key, of_topic.primary_key, of_topic.secondary_key]
        assert rule.rights == [AccessRights.SEND]
        assert of_topic.rights == [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN]
        assert only(made.authorization_rules).primary_key == rule.primary_key
        assert len({*keys}) == 4
        assert {len(b64decode(key or "")) for key in keys} == {32}
        assert rule.created_at_utc is not None

        for key in keys[:2]:
            assert send(server, "worker", key, name) == 201
        async with administrator.open(connection_string(server, "worker", keys[2])) as manager:
            await done(manager.create_subscription(topic.name, "s"))
            with pytest.raises(ClientAuthenticationError):
                await done(manager.get_queue(name))
        async with administrator.open(connection_string(server, "worker", keys[0])) as worker:
            with pytest.raises(ClientAuthenticationError):
                await done(worker.get_queue(name))

        made.authorization_rules = [
            access_rule("other", AccessRights.SEND, AccessRights.LISTEN, primary_key="mine")
        ]
        await done(client.update_queue(made))
        other = only((await done(client.get_queue(name))).authorization_rules)
        assert (other.key_name, other.primary_key, other.secondary_key) == ("other", "mine", None)
        assert send(server, "other", "mine", name) == 201
        assert send(server, "worker", keys[0], name) == 401


async def test_forwarding_needs_the_right_to_send_to_the_destination(
    server: Server, administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """R27: the client shows a second token, made with the key that it has."""
    target = f"{name}-queue"
    manager = access_rule("manager", AccessRights.MANAGE, primary_key="k")
    async with administrator.open() as client:
        await done(client.create_queue(target, enable_partitioning=is_partitioned))
        source = await done(
            client.create_queue(
                name, enable_partitioning=is_partitioned, authorization_rules=[manager]
            )
        )
        async with administrator.open(connection_string(server, "manager", "k")) as narrow:
            source.forward_to = source.forward_dead_lettered_messages_to = target
            with pytest.raises(ClientAuthenticationError):
                await done(narrow.update_queue(source))
            found = await done(client.get_queue(target))
            found.authorization_rules = [access_rule("manager", AccessRights.SEND, primary_key="k")]
            await done(client.update_queue(found))
            await done(narrow.update_queue(source))
        shown = await done(client.get_queue(name))
        host = server.connection_string.partition("//")[2].partition(";")[0].rstrip("/")
        assert shown.forward_to == f"sb://{host}/{target}"
        assert shown.forward_dead_lettered_messages_to == f"sb://{host}/{target}"
        shown.forward_to = shown.forward_dead_lettered_messages_to = None
        await done(client.update_queue(shown))
        cleared = await done(client.get_queue(name))
        assert (cleared.forward_to, cleared.forward_dead_lettered_messages_to) == (None, None)

        topic = f"{name}-topic"
        await done(client.create_topic(topic, enable_partitioning=is_partitioned))
        await done(client.create_subscription(topic, "s", forward_to=target))
        below = await done(client.get_subscription(topic, "s"))
        assert below.forward_to == f"sb://{host}/{target}"


CONFLICTS: Final[dict[str, Call]] = {
    "queue": lambda client, name: client.create_queue(name),
    "queue of a topic's name": lambda client, name: client.create_queue(f"{name}-topic"),
    "topic": lambda client, name: client.create_topic(f"{name}-TOPIC"),
    "topic of a queue's name": lambda client, name: client.create_topic(name),
    "subscription": lambda client, name: client.create_subscription(f"{name}-topic", "S"),
    "rule": lambda client, name: client.create_rule(f"{name}-topic", "s", "$DEFAULT"),
}
MISSING: Final[dict[str, Call]] = {
    "queue": lambda client, _: client.get_queue("missing"),
    "queue counted": lambda client, _: client.get_queue_runtime_properties("missing"),
    "queue deleted": lambda client, _: client.delete_queue("missing"),
    "topic": lambda client, _: client.get_topic("missing"),
    "topic counted": lambda client, _: client.get_topic_runtime_properties("missing"),
    "topic deleted": lambda client, _: client.delete_topic("missing"),
    "subscription": lambda client, name: client.get_subscription(f"{name}-topic", "missing"),
    "subscription of no topic": lambda client, _: client.create_subscription("missing", "s"),
    "subscription of a queue": lambda client, name: client.create_subscription(name, "s"),
    "subscription deleted": lambda client, name: client.delete_subscription(f"{name}-topic", "m"),
    "rule": lambda client, name: client.get_rule(f"{name}-topic", "s", "missing"),
    "rule of no subscription": lambda client, name: client.create_rule(f"{name}-topic", "m", "r"),
    "rule deleted": lambda client, name: client.delete_rule(f"{name}-topic", "s", "missing"),
    "destination": lambda client, name: client.create_queue(f"{name}-x", forward_to="missing"),
}
INVALID: Final[dict[str, Call]] = {
    "contains ' '": lambda client, _: client.create_queue("a b"),
    "at most 260": lambda client, _: client.create_queue("q" * 261),
    "LockDuration": lambda client, _: client.create_queue("new", lock_duration=TOO_LONG),
    "MaxSizeInMegabytes": lambda client, _: client.create_queue("new", max_size_in_megabytes=1000),
    "MaxDeliveryCount": lambda client, _: client.create_queue("new", max_delivery_count=2001),
    "UserMetadata": lambda client, _: client.create_topic("new", user_metadata="x" * 1025),
    "MaxMessageSizeInKilobytes": lambda client, _: client.create_queue(
        "new", max_message_size_in_kilobytes=2048
    ),
    "EnableExpress and RequiresDuplicateDetection": lambda client, _: client.create_queue(
        "new", enable_express=True, requires_duplicate_detection=True
    ),
    "1 to 50 characters": lambda client, name: client.create_subscription(
        f"{name}-topic", "s" * 51
    ),
    "line 1": lambda client, name: client.create_rule(
        f"{name}-topic", "s", "r", filter=SqlRuleFilter("a >")
    ),
}


async def filled(client: Administration, name: str) -> None:
    await done(client.create_queue(name, enable_partitioning=False))
    await done(client.create_topic(f"{name}-topic", enable_partitioning=False))
    await done(client.create_subscription(f"{name}-topic", "s"))


async def told(call: Call, client: Administration, name: str) -> HttpResponseError:
    with pytest.raises(HttpResponseError) as refusal:
        await done(call(client, name))
    return refusal.value


async def test_refusals_are_the_exceptions_that_users_catch(
    administrator: Administrator, name: str
) -> None:
    """With the codes and sub-codes of the service, and nothing has changed."""
    async with administrator.open() as client:
        await filled(client, name)
        for what, call in CONFLICTS.items():
            error = await told(call, client, name)
            assert isinstance(error, ResourceExistsError), what
            assert "SubCode=40900" in str(error), what
        for what, call in MISSING.items():
            error = await told(call, client, name)
            assert isinstance(error, ResourceNotFoundError), what
            assert "SubCode=40400" in str(error), what
        for what, call in INVALID.items():
            error = await told(call, client, name)
            assert error.status_code == 400, what
            assert "SubCode=40000" in str(error)
            assert what in str(error)
        for unmade in ("new", f"{name}-x"):
            with pytest.raises(ResourceNotFoundError):
                await done(client.get_queue(unmade))


async def test_what_was_deleted_meanwhile_is_not_updated(
    administrator: Administrator, name: str
) -> None:
    async with administrator.open() as client:
        await filled(client, name)
        queue = await done(client.get_queue(name))
        topic = await done(client.get_topic(f"{name}-topic"))
        subscription = await done(client.get_subscription(topic.name, "s"))
        rule = await done(client.get_rule(topic.name, "s", "$Default"))
        await done(client.delete_queue(name))
        await done(client.delete_topic(topic.name))
        with pytest.raises(ResourceNotFoundError):
            await done(client.update_queue(queue))
        with pytest.raises(ResourceNotFoundError):
            await done(client.update_topic(topic))
        with pytest.raises(ResourceNotFoundError):
            await done(client.update_subscription(topic.name, subscription))
        with pytest.raises(ResourceNotFoundError):
            await done(client.update_rule(topic.name, "s", rule))


async def test_a_wrong_key_is_not_let_in(server: Server, administrator: Administrator) -> None:
    """R34."""
    wrong = connection_string(server, "RootManageSharedAccessKey", "wrong")
    async with administrator.open(wrong) as client:
        with pytest.raises(ClientAuthenticationError, match="InvalidSignature"):
            await done(client.get_namespace_properties())


async def test_a_token_may_stand_in_the_connection_string(
    server: Server, credential: Credential, administrator: Administrator, name: str
) -> None:
    """R34: the client passes it on, as a bearer's."""
    endpoint = server.connection_string.partition(";")[0]
    token = token_for(server, credential, name)
    async with administrator.open(f"{endpoint};SharedAccessSignature={token}") as client:
        assert (await done(client.create_queue(name, enable_partitioning=False))).name == name
        with pytest.raises(ClientAuthenticationError, match="InvalidAudience"):
            await done(client.get_namespace_properties())
