"""Tokens of every bad kind, over every way they can be shown: nothing opens (R34)."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import pytest

from shardbus.app.cli.sas import Credential
from shardbus.broker.access.sas import mint_token
from tests.conformance.conftest import LOCK_SHORT_S
from tests.support.amqp_client import Address, AmqpClient, Ended, SaslRefused, connected
from tests.support.server import Server
from tests.support.websocket_client import connected_over_websocket

LISTENER: Final = ("ear", "bGlzdGVuLW9ubHk=")
SENDER: Final = ("mouth", "c2VuZC1vbmx5")
MANAGER: Final = ("boss", "bWFuYWdl")
SPACED: Final = ("a rule+1", "c3BhY2Vk")
TOPIC: Final = ("paper", "dG9waWM=")

LISTEN, SEND, MANAGE = "Listen", "Send", "Manage"


@dataclass(frozen=True)
class Place:
    """The entities of these tests, and how they are reached."""

    address: Address
    http_port: int
    root: Credential

    def ask(self, method: str, path: str, body: bytes = b"", token: str = "") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.address.host, self.http_port, timeout=20)
        try:
            headers = {"Authorization": token} if token else {}
            connection.request(method, path, body=body or None, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def root_token(self) -> str:
        return token_of((self.root.key_name, self.root.key), "sb://h/")

    def give(self, path: str, rule: tuple[str, str], *rights: str) -> None:
        body = json.dumps({"rights": rights, "primary_key": rule[1]}).encode()
        where = f"/api/v1/{path}access-rules/{quote(rule[0], safe='')}"
        status, answer = self.ask("PUT", where, body, self.root_token())
        assert status == 200, answer


def token_of(rule: tuple[str, str], resource: str, lasts_s: int = 3600) -> str:
    return mint_token(resource, *rule, int(time.time()) + lasts_s)


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[Place]:
    """The queues `door` and `door-2` and the topic `sheet` with `s`, rules on some of them."""
    key = server.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    found = Place(
        Address(server.host, server.amqp_port),
        server.http_port,
        Credential("RootManageSharedAccessKey", key),
    )
    for name in ("door", "door-2", "sheet", "sheet/Subscriptions/s"):
        kind = {"sheet": "Topic", "sheet/Subscriptions/s": "Subscription"}.get(name, "Queue")
        lock = f"<LockDuration>PT{LOCK_SHORT_S}S</LockDuration>" if kind != "Topic" else ""
        entry = (
            '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
            f'<{kind}Description xmlns="http://schemas.microsoft.com/netservices/2010/10/'
            f'servicebus/connect">{lock}</{kind}Description></content></entry>'
        )
        status, answer = found.ask(
            "PUT", f"/{name}?api-version=2021-05", entry.encode(), found.root_token()
        )
        assert status == 201, answer
    found.give("entities/door/", LISTENER, LISTEN)
    found.give("entities/door/", SENDER, SEND)
    found.give("entities/door/", MANAGER, MANAGE)
    found.give("entities/door/", SPACED, LISTEN, SEND)
    found.give("entities/sheet/", TOPIC, LISTEN, SEND)
    yield found
    for name in ("door", "door-2", "sheet"):
        found.ask("DELETE", f"/{name}?api-version=2021-05", token=found.root_token())


class Way:
    """One way to show a token for an entity; each call needs one right."""

    rights: tuple[str, ...] = ()

    async def opens(self, place: Place, token: str, entity: str, right: str) -> bool:
        raise NotImplementedError


class Cbs(Way):
    """$cbs, then a link."""

    rights = (LISTEN, SEND)

    @asynccontextmanager
    async def client(self, place: Place) -> AsyncIterator[AmqpClient]:
        async with connected(place.address) as client:
            yield client

    async def opens(self, place: Place, token: str, entity: str, right: str) -> bool:
        async with self.client(place) as client:
            status = await client.put_token(token, f"sb://h/{entity}")
            assert status in (202, 400, 401)
            try:
                await (client.sender if right == SEND else client.receiver)(entity)
            except Ended as end:
                assert end.condition == "amqp:unauthorized-access"
                return False
            assert status == 202
            return True


class OverWebSocket(Cbs):
    """The same inside a WebSocket."""

    @asynccontextmanager
    async def client(self, place: Place) -> AsyncIterator[AmqpClient]:
        async with connected_over_websocket(place.address) as client:
            yield client


class Http(Way):
    """An Authorization header; `requests` has what to ask for each right."""

    def __init__(self, requests: dict[str, tuple[str, str]]) -> None:
        self.requests = requests
        self.rights = tuple(requests)

    async def opens(self, place: Place, token: str, entity: str, right: str) -> bool:
        method, path = self.requests[right]
        at = path.format(entity=entity)
        status, body = await asyncio.to_thread(place.ask, method, at, b"", token)
        assert status < 300 or status == 401, (status, body)
        signature = token.partition("sig=")[2].partition("&")[0]
        assert not signature or signature not in body.decode()
        return status < 300


WAYS: Final[dict[str, Way]] = {
    "cbs": Cbs(),
    "websocket": OverWebSocket(),
    "atom": Http({MANAGE: ("GET", "/{entity}?api-version=2021-05")}),
    "rest": Http(
        {
            SEND: ("POST", "/{entity}/messages"),
            LISTEN: ("DELETE", "/{entity}/messages/head?timeout=0"),
        }
    ),
    "json": Http({MANAGE: ("GET", "/api/v1/entities/{entity}/access-rules")}),
}

Make = Callable[[tuple[str, str]], str]


def _altered(part: str, value: str) -> Make:
    """A token of which one field is another than was signed."""

    def make(rule: tuple[str, str]) -> str:
        token = token_of(rule, "sb://h/door")
        before, _, rest = token.partition(f"{part}=")
        _, separator, after = rest.partition("&")
        return f"{before}{part}={value}{separator}{after}"

    return make


def _cut(characters: int) -> Make:
    return lambda rule: token_of(rule, "sb://h/door")[:characters]


BAD: Final[dict[str, Make]] = {
    "forged": lambda rule: token_of((rule[0], "guess"), "sb://h/door"),
    "of an unknown rule": lambda rule: token_of(("nobody", rule[1]), "sb://h/door"),
    "of a rule in another case": lambda rule: token_of((rule[0].upper() + "X", rule[1]), "sb://h/"),
    "expired": lambda rule: token_of(rule, "sb://h/door", -1),
    "for another queue": lambda rule: token_of(rule, "sb://h/door-2"),
    "for what starts alike": lambda rule: token_of(rule, "sb://h/doo"),
    "for a part of the queue": lambda rule: token_of(rule, "sb://h/door/eu"),
    "with a later expiry than was signed": _altered("se", "4000000000"),
    "with a wider resource than was signed": _altered("sr", quote("sb://h/", safe="")),
    "with another signature": _altered("sig", quote("A" * 43 + "=", safe="")),
    "with an empty signature": _altered("sig", ""),
    "with no number as expiry": _altered("se", "soon"),
    "with a negative expiry": _altered("se", "-1"),
    "cut in the signature": _cut(60),
    "cut after the scheme": _cut(22),
    "with a field twice": lambda rule: token_of(rule, "sb://h/door") + "&se=4000000000",
    "of another scheme": lambda rule: "Bearer eyJhbGciOiJub25lIn0.e30.",
    "empty": lambda rule: "",
    "very long": lambda rule: token_of(rule, "sb://h/door") + "&x=" + "y" * 9000,
}


def _rule_for(place: Place, right: str) -> tuple[str, str]:
    return {LISTEN: LISTENER, SEND: SENDER, MANAGE: MANAGER}[right]


@pytest.mark.parametrize("way", WAYS)
async def test_no_bad_token_opens_anything(place: Place, way: str) -> None:
    """R34: and the same token without its fault does, so each fault is the reason."""
    shown = WAYS[way]
    for right in shown.rights:
        rule = _rule_for(place, right)
        good = token_of(rule, "sb://h/door")
        assert await shown.opens(place, good, "door", right)
        opened = [
            name
            for name, make in BAD.items()
            if await shown.opens(place, make(rule), "door", right)
        ]
        assert opened == [], f"{way} {right}"


@pytest.mark.parametrize("way", WAYS)
async def test_a_right_is_what_its_rule_gives_and_manage_is_all(place: Place, way: str) -> None:
    """R34."""
    shown = WAYS[way]
    given = {LISTENER: {LISTEN}, SENDER: {SEND}, MANAGER: {LISTEN, SEND, MANAGE}}
    for right in shown.rights:
        for rule, rights in given.items():
            opened = await shown.opens(place, token_of(rule, "sb://h/door"), "door", right)
            assert opened == (right in rights), (rule[0], right)


@pytest.mark.parametrize("way", WAYS)
async def test_a_queues_rule_opens_no_other_queue(place: Place, way: str) -> None:
    """R34: whatever its token claims to be for; and the namespace's rule opens all."""
    shown = WAYS[way]
    root = (place.root.key_name, place.root.key)
    for right in shown.rights:
        rule = _rule_for(place, right)
        for resource in ("sb://h/door-2", "sb://h/"):
            assert not await shown.opens(place, token_of(rule, resource), "door-2", right)
        assert await shown.opens(place, token_of(rule, "sb://h/"), "door", right)
        assert await shown.opens(place, token_of(root, "sb://h/"), "door-2", right)


@pytest.mark.parametrize("way", ["cbs", "websocket"])
async def test_a_topics_token_reaches_its_subscriptions(place: Place, way: str) -> None:
    """R34."""
    shown = WAYS[way]
    token = token_of(TOPIC, "sb://h/sheet")

    assert await shown.opens(place, token, "sheet/Subscriptions/s", LISTEN)
    assert await shown.opens(place, token, "sheet", SEND)
    assert not await shown.opens(place, token, "door", LISTEN)


@pytest.mark.parametrize("way", ["cbs", "websocket", "rest"])
async def test_names_may_be_encoded_in_every_way_that_sdks_do(place: Place, way: str) -> None:
    """R34: a rule's name twice, escapes in lower case, the resource in capitals."""
    shown = WAYS[way]
    twice = (quote(SPACED[0], safe=""), SPACED[1])
    tokens = [
        token_of(SPACED, "sb://h/door"),
        token_of(twice, "sb://h/door"),
        token_of(SPACED, "HTTPS://Host:443/DOOR/"),
        token_of(SPACED, "sb://h/%64oor"),
    ]
    thrice = token_of((quote(twice[0], safe=""), SPACED[1]), "sb://h/door")
    more = token_of((quote(quote(twice[0], safe=""), safe=""), SPACED[1]), "sb://h/door")

    for token in (*tokens, thrice):
        assert await shown.opens(place, token, "door", SEND), token
    assert not await shown.opens(place, more, "door", SEND)


@pytest.mark.parametrize(
    "credential",
    [
        Credential("RootManageSharedAccessKey", "wrong"),
        Credential("RootManageSharedAccessKey", "sas_key_value"),
        Credential("RootManageSharedAccessKey", "SAS_KEY_VALU"),
        Credential("RootManageSharedAccessKey", "SAS_KEY_VALUE "),
        Credential("rootmanagesharedaccesskey", "SAS_KEY_VALUE"),
        Credential(*LISTENER),
    ],
    ids=["wrong", "other case", "cut", "longer", "name in another case", "rule of a queue"],
)
async def test_sasl_plain_takes_no_other_key(place: Place, credential: Credential) -> None:
    """R34: PLAIN shows a key of the namespace; those of entities sign tokens."""
    with pytest.raises((SaslRefused, Ended)):
        async with connected(place.address, credential) as client:
            await client.sender("door")


@pytest.mark.parametrize("way", ["cbs", "websocket"])
async def test_links_end_with_their_token(place: Place, way: str) -> None:
    """R34: over TCP and over WebSocket."""
    shown = WAYS[way]
    assert isinstance(shown, Cbs)
    async with shown.client(place) as client:
        token = token_of(TOPIC, "sb://h/sheet", 2)
        assert await client.put_token(token, "sb://h/sheet/Subscriptions/s") == 202
        receiver = await client.receiver("sheet/Subscriptions/s", credit=1)
        with pytest.raises(Ended) as end:
            await receiver.take_some()

        assert end.value.condition == "amqp:unauthorized-access"
        assert not client.ended.done(), "the connection may show a new token"
