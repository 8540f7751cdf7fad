"""Sign-in as in the cloud: SDKs with a credential, and tokens of an issuer that nobody may use."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.flight as flight
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient
from cryptography.hazmat.primitives import serialization

from shardbus.codec.types import Int, Value
from shardbus.gateway.listening.tls import development_certificate
from tests.conformance.sdk import texts
from tests.conformance.sdk_programs import make_trust_store, needed_program_of, trusting
from tests.support.amqp_client import Address, Ended, connected
from tests.support.flight_client import flight_client
from tests.support.issuer import (
    OWNER,
    RECEIVER,
    SENDER,
    LocalIssuer,
    TestKey,
    claims_of,
    part,
    rsa_key,
    running_issuer,
)
from tests.support.ports import free_port
from tests.support.queues import create_queue
from tests.support.server import Server, running_server
from tests.support.tools import JS, needed_node

# The Python SDK drops the port of an endpoint when it speaks TLS: the default port, on an address
# of our own.
HOST: Final = "127.0.0.99"
PORT: Final = 5671
TIMEOUT_S: Final = 30
KEY: Final = "a-key-of-the-bus-itself-that-nobody-needs"
GRANTS: Final = (
    f"role:{OWNER}=Manage",
    f"role:{SENDER}=Send",
    f"role:{RECEIVER}=Listen",
    "role:orders-clerk=Manage@orders",
    "scope:bus.send=Send",
    "subject:app-seven=Listen@orders",
)
STRANGER: Final = rsa_key("two")


@dataclass(frozen=True)
class Bus:
    """A bus that takes tokens of an issuer, with the queues `orders` and `invoices`."""

    server: Server
    issuer: LocalIssuer
    authority: Path


class SignedIn:
    """A credential as the identity library has them; it notes what it is asked for."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, **more: object) -> AccessToken:
        self.scopes += scopes
        return AccessToken(self._token, int(time.time()) + 3600)


class AioSignedIn(SignedIn):
    async def get_token(self, *scopes: str, **more: object) -> AccessToken:  # type: ignore[override]  # the same, awaited
        return super().get_token(*scopes, **more)

    async def close(self) -> None:
        """Nothing is open."""

    async def __aenter__(self) -> AioSignedIn:
        return self

    async def __aexit__(self, *args: object) -> None:
        """Nothing is open."""


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    directory = tmp_path_factory.mktemp("sign-in")
    files = development_certificate(
        directory / "tls", now_ms=int(time.time() * 1000), hosts=(HOST, "localhost")
    )
    with running_issuer() as issuer:
        options = [
            "--host", HOST, "--tls-port", str(PORT), "--flight-port", str(free_port()),
            "--flight-tls", "off", "--sas-key", KEY, "--brokers", "1",
            "--tls-cert", str(files.certificate), "--tls-key", str(files.key),
            "--oidc-issuer", issuer.url, "--log-level", "debug",
            *(word for grant in GRANTS for word in ("--oidc-grant", grant)),
        ]  # fmt: skip
        with running_server(directory / "data", *options) as server:
            create_queue(server, "orders")
            create_queue(server, "invoices")
            yield Bus(server, issuer, files.authority)
            assert "Traceback" not in server.output


def client_of(bus: Bus, token: str) -> ServiceBusClient:
    return ServiceBusClient(
        HOST, SignedIn(token), retry_total=0, connection_verify=str(bus.authority)
    )


def administration_of(bus: Bus, token: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient(
        f"{HOST}:{bus.server.http_port}",
        SignedIn(token),
        connection_verify=str(bus.authority),
        retry_total=0,
    )


def ask(bus: Bus, method: str, target: str, token: str) -> tuple[int, str]:
    """As curl would."""
    request = urllib.request.Request(
        f"http://{HOST}:{bus.server.http_port}{target}",
        data=b"body" if method == "POST" else None,
        headers={"Authorization": f"Bearer {token}"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def put_token(bus: Bus, token: str) -> tuple[int, str]:
    """What `$cbs` answers."""
    properties: dict[str, Value] = {
        "operation": "put-token",
        "type": "jwt",
        "name": "sb://h/orders",
    }
    async with connected(Address(HOST, bus.server.amqp_port)) as client:
        answer = await (await client.requests("$cbs")).ask(token, properties)
        with pytest.raises(Ended, match="unauthorized-access"):
            await client.receiver("orders")
    status = answer.application_properties["status-code"]
    assert isinstance(status, Int)
    return status.value, str(answer.application_properties["status-description"])


def test_the_sdk_signs_in_and_sends_and_receives(bus: Bus) -> None:
    """R34, R38: with the built-in roles of the cloud, each for what it is there."""
    sending = SignedIn(bus.issuer.token(SENDER))
    with (
        ServiceBusClient(HOST, sending, connection_verify=str(bus.authority)) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("signed in"))
    with (
        client_of(bus, bus.issuer.token(RECEIVER)) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        messages = receiver.receive_messages(1, TIMEOUT_S)
        receiver.complete_message(messages[0])

    assert texts(messages) == ["signed in"]
    assert sending.scopes == ["https://servicebus.azure.net//.default"]


async def test_the_asynchronous_sdk_signs_in(bus: Bus) -> None:
    """R34, R38."""
    credential = AioSignedIn(bus.issuer.token(OWNER))
    async with (
        AioClient(HOST, credential, connection_verify=str(bus.authority)) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("later"))
        messages = await receiver.receive_messages(1, TIMEOUT_S)
        await receiver.complete_message(messages[0])

        assert texts(messages) == ["later"]


def test_the_administration_client_signs_in(bus: Bus) -> None:
    """R34, R38: and shows a second token for the destination of what it forwards."""
    with administration_of(bus, bus.issuer.token(OWNER)) as administration:
        administration.create_queue("made", forward_to="invoices")
        names = [queue.name for queue in administration.list_queues()]
        administration.delete_queue("made")
    with (
        administration_of(bus, bus.issuer.token(SENDER)) as administration,
        pytest.raises(ClientAuthenticationError, match="claim"),
    ):
        administration.get_queue("orders")

    assert names == ["invoices", "made", "orders"]


def javascript(bus: Bus, token: str) -> subprocess.CompletedProcess[str]:
    node = needed_node()
    return subprocess.run(
        [node, "sign_in.mjs", HOST, f"{HOST}:{bus.server.http_port}", token],
        cwd=JS,
        env={**os.environ, "NODE_EXTRA_CA_CERTS": str(bus.authority)},
        capture_output=True,
        text=True,
        timeout=4 * TIMEOUT_S,
        check=False,
    )


def test_the_javascript_sdk_signs_in(bus: Bus) -> None:
    """R38: over AMQP and with its administration client."""
    good = javascript(bus, bus.issuer.token(OWNER))
    bad = javascript(bus, bus.issuer.token(OWNER, aud="https://vault.azure.net"))

    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout) == {
        "body": "from JavaScript",
        "scopes": ["https://servicebus.azure.net//.default"],
    }
    assert bad.returncode != 0
    assert "InvalidAudience" in bad.stderr


def other_sdk(bus: Bus, name: str, token: str) -> subprocess.CompletedProcess[str]:
    program = needed_program_of(name)
    store = bus.authority.with_name("trust.p12")
    if not store.exists():
        make_trust_store(store, [bus.authority])
    return subprocess.run(
        program.mode("sign-in", HOST, f"{HOST}:{bus.server.http_port}", token),
        env={**os.environ, **trusting(bus.authority, store)},
        capture_output=True,
        text=True,
        timeout=4 * TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "scopes"),
    [
        ("Go", ["https://servicebus.azure.net//.default"]),
        ("Java", ["https://servicebus.azure.net/.default"]),
        ("JMS", []),
        pytest.param(
            *(".NET", ["https://servicebus.azure.net/.default"]), marks=[pytest.mark.release]
        ),
    ],
)
def test_another_sdk_signs_in(bus: Bus, name: str, scopes: list[str]) -> None:
    """R38: over AMQP and with the administration client; JMS, which has no `$cbs`, by PLAIN."""
    good = other_sdk(bus, name, bus.issuer.token(OWNER))

    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout) == {"body": f"from {name}", "scopes": scopes}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Go", "InvalidAudience"),
        ("JMS", "JMSSecuritySaslException"),
        pytest.param(".NET", "InvalidAudience", marks=[pytest.mark.release]),
    ],
)
def test_another_sdk_is_refused_with_the_token_of_somebody_else(
    bus: Bus, name: str, reason: str
) -> None:
    """R38: PLAIN has no words for the reason. Java is not started a second time for this."""
    bad = other_sdk(bus, name, bus.issuer.token(OWNER, aud="https://vault.azure.net"))

    assert bad.returncode != 0
    assert reason in bad.stderr


def test_each_part_over_http_takes_a_bearer(bus: Bus) -> None:
    owner, sender = bus.issuer.token(OWNER), bus.issuer.token(scp="openid bus.send")
    seven = bus.issuer.token(appid="app-seven", oid=None)

    assert ask(bus, "GET", "/orders?api-version=2021-05", owner)[0] == 200
    assert ask(bus, "GET", "/api/v1/namespace", owner)[0] == 200
    assert ask(bus, "POST", "/orders/messages", sender)[0] == 201
    assert ask(bus, "DELETE", "/orders/messages/head?timeout=5", seven) == (200, "body")
    status, told = ask(bus, "GET", "/api/v1/token", seven)
    assert (status, json.loads(told)["entity"]) == (200, "orders")


def test_the_bulk_lane_takes_a_bearer(bus: Bus) -> None:
    ask(bus, "POST", "/orders/messages", bus.issuer.token(SENDER))
    with flight_client(bus.server) as client:
        rows = client.showing(f"Bearer {bus.issuer.token(RECEIVER)}").rows("orders")
        elsewhere = client.showing(f"Bearer {bus.issuer.token('orders-clerk')}")
        with pytest.raises(flight.FlightUnauthenticatedError):
            elsewhere.rows("invoices")
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.showing(f"Bearer {bus.issuer.token(RECEIVER, exp=1)}").rows("orders")
    status, _ = ask(bus, "DELETE", "/orders/messages/head?timeout=5", bus.issuer.token(OWNER))

    assert (len(rows), status) == (1, 200)


def test_a_role_for_one_entity_opens_no_other(bus: Bus) -> None:
    clerk = bus.issuer.token("orders-clerk")
    with client_of(bus, clerk) as client:
        with client.get_queue_receiver("orders") as receiver:
            receiver.peek_messages()
        with (
            pytest.raises(ServiceBusAuthenticationError),
            client.get_queue_receiver("invoices") as receiver,
        ):
            receiver.peek_messages()
    assert ask(bus, "GET", "/orders?api-version=2021-05", clerk)[0] == 200
    status, told = ask(bus, "GET", "/invoices?api-version=2021-05", clerk)
    assert status == 401
    assert "no right on Resource: 'invoices'" in told


def test_a_link_needs_the_right_that_it_uses(bus: Bus) -> None:
    """The token is good, so it is the link that is refused."""
    with (
        client_of(bus, bus.issuer.token(RECEIVER)) as client,
        pytest.raises(ServiceBusError, match="'Send' claim"),
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def signed_with_the_public_key(issuer: LocalIssuer) -> str:
    public = issuer.keys[0].private.public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims(issuer))}"
    return f"{signed}.{part(hmac.new(pem, signed.encode(), hashlib.sha256).digest())}"


def claims(issuer: LocalIssuer) -> dict[str, object]:
    return claims_of(issuer.url, time.time(), OWNER)


Made = Callable[[LocalIssuer], str]
BAD: Final[dict[str, tuple[Made, str]]] = {
    "signed with the public key as a secret": (signed_with_the_public_key, "InvalidSignature"),
    "unsigned": (
        lambda issuer: f"{part({'alg': 'none', 'kid': 'one'})}.{part(claims(issuer))}.",
        "InvalidSignature",
    ),
    "forged": (
        lambda issuer: TestKey("one", STRANGER.private).sign(claims(issuer)), "InvalidSignature"
    ),
    "of an unknown key": (lambda issuer: STRANGER.sign(claims(issuer)), "UnknownKey"),
    "for somebody else": (
        lambda issuer: issuer.token(OWNER, aud="https://vault.azure.net"), "InvalidAudience"
    ),
    "of another issuer": (
        lambda issuer: issuer.token(OWNER, iss="https://login.example/"), "InvalidIssuer"
    ),
    "expired": (lambda issuer: issuer.token(OWNER, exp=int(time.time()) - 61), "ExpiredToken"),
    "not yet valid": (
        lambda issuer: issuer.token(OWNER, nbf=int(time.time()) + 600), "TokenNotYetValid"
    ),
    "without roles": (lambda issuer: issuer.token(), "Unauthorized access"),
    "of another role": (lambda issuer: issuer.token("Reader"), "Unauthorized access"),
    "huge": (lambda issuer: issuer.token(OWNER, more="x" * 9_000), "MalformedToken"),
    "garbage": (lambda issuer: "jwt.jwt.jwt", "MalformedToken"),
}  # fmt: skip


@pytest.mark.parametrize("made", BAD)
def test_a_bad_token_opens_nothing_and_says_why(bus: Bus, made: str) -> None:
    """R34, R38: the Python SDK hides the words of `$cbs`, so they are read beside it."""
    make, reason = BAD[made]
    token = make(bus.issuer)

    with (
        client_of(bus, token) as client,
        pytest.raises(ServiceBusAuthenticationError) as over_amqp,
        client.get_queue_receiver("orders") as receiver,
    ):
        receiver.peek_messages()
    with (
        administration_of(bus, token) as administration,
        pytest.raises(ClientAuthenticationError, match=reason) as over_http,
    ):
        administration.get_queue("orders")
    put = asyncio.run(put_token(bus, token))
    answers = [
        ask(bus, "GET", "/orders?api-version=2021-05", token),
        ask(bus, "POST", "/orders/messages", token),
        ask(bus, "GET", "/api/v1/namespace", token),
    ]

    assert [status for status, _ in answers] == [401] * 3
    assert put[0] == (400 if reason == "MalformedToken" else 401)
    assert reason in put[1]
    told = [str(over_amqp.value), put[1], str(over_http.value), *(text for _, text in answers)]
    for piece in token.split("."):
        assert len(piece) < 8 or not any(piece in text for text in [*told, bus.server.output])


def test_no_good_token_is_in_the_log_either(bus: Bus) -> None:
    token = bus.issuer.token(OWNER)
    ask(bus, "GET", "/orders?api-version=2021-05", token)
    with (
        client_of(bus, token) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        receiver.peek_messages()

    assert not any(piece in bus.server.output for piece in token.split("."))


def test_a_bus_starts_without_its_issuer_and_says_so(tmp_path: Path) -> None:
    """Keys of the bus are good meanwhile, and tokens are answered with a try-again."""
    with running_issuer() as issuer:
        token, url = issuer.token(OWNER), issuer.url
    with running_server(
        tmp_path / "data", "--brokers", "1", "--oidc-issuer", url, "--sas-key", KEY
    ) as server:
        create_queue(server, "q")
        request = urllib.request.Request(
            f"http://{server.host}:{server.http_port}/q?api-version=2021-05",
            headers={"Authorization": f"Bearer {token}"},
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=TIMEOUT_S)
        caught.value.close()

        assert caught.value.code == 503
        assert "the keys of the issuer cannot be fetched" in server.output
