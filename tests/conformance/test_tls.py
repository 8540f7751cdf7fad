"""AMQP inside TLS: on its own port, on the shared one, and with a certificate of our own."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

from shardbus.app.cli.sas import Credential
from tests.conformance.conftest import Queue
from tests.conformance.sdk import texts
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

# The Python SDK drops the port of an endpoint when it speaks TLS; on an address of our own its
# default port is free whatever else runs on this machine.
HOST: Final = "127.0.0.97"
PORT: Final = 5671
TIMEOUT_S: Final = 30
BODY: Final = "x" * 100_000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for HOST; its key is beside it."""
    directory = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (directory / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path = directory / "certificate.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture(scope="module")
def secure_server(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[Server]:
    options = [
        "--host", HOST, "--tls-port", str(PORT),
        "--tls-cert", str(certificate), "--tls-key", str(certificate.with_name("key.pem")),
    ]  # fmt: skip
    with running_server(tmp_path_factory.mktemp("secure") / "data", *options) as server:
        create_queue(server, "q")
        yield server


@pytest.fixture
def connection_string(secure_server: Server, credential: Credential) -> str:
    return (
        f"Endpoint=sb://{HOST};SharedAccessKeyName={credential.key_name};"
        f"SharedAccessKey={credential.key}"
    )


def test_the_synchronous_sdk_speaks_tls(connection_string: str, certificate: Path) -> None:
    """R32."""
    client = ServiceBusClient.from_connection_string(
        connection_string, connection_verify=str(certificate)
    )
    with (
        client,
        client.get_queue_sender("q") as sender,
        client.get_queue_receiver("q") as receiver,
    ):
        sender.send_messages(ServiceBusMessage(BODY))
        messages = receiver.receive_messages(1, TIMEOUT_S)
        receiver.complete_message(messages[0])

        assert texts(messages) == [BODY]


async def test_the_asynchronous_sdk_speaks_tls(connection_string: str, certificate: Path) -> None:
    """R32."""
    client = AioClient.from_connection_string(connection_string, connection_verify=str(certificate))
    async with (
        client,
        client.get_queue_sender("q") as sender,
        client.get_queue_receiver("q") as receiver,
    ):
        await sender.send_messages(ServiceBusMessage(BODY))
        messages = await receiver.receive_messages(1, TIMEOUT_S)
        await receiver.complete_message(messages[0])

        assert texts(messages) == [BODY]


def test_a_client_that_does_not_know_the_authority_refuses(connection_string: str) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        pytest.raises((ServiceBusError, ssl.SSLError)),
        client.get_queue_sender("q") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.parametrize("is_shared", [False, True], ids=["own port", "shared port"])
def test_proton_speaks_tls_with_the_development_certificate(
    server: Server, credential: Credential, queue: Queue, is_shared: bool
) -> None:
    """R32."""
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(server.ca_file))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    port = server.amqp_port if is_shared else server.tls_port
    connection = BlockingConnection(
        f"amqps://{server.host}:{port}",
        timeout=TIMEOUT_S,
        ssl_domain=domain,
        user=credential.key_name,
        password=credential.key,
        allowed_mechs="PLAIN",
    )

    connection.create_sender(queue.name).send(Message(body=BODY))
    receiver = connection.create_receiver(queue.name, credit=1)
    received = receiver.receive(timeout=TIMEOUT_S)
    receiver.accept()

    assert received.body == BODY
    connection.close()


def test_a_client_may_ask_for_tls_on_the_port_that_begins_without(server: Server) -> None:
    """AMQP 1.0, part 5: the header is answered with the same, and then both speak TLS."""
    header, sasl = b"AMQP\x02\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
    trusting = ssl.create_default_context(cafile=str(server.ca_file))
    with socket.create_connection((server.host, server.amqp_port), TIMEOUT_S) as plain:
        plain.sendall(header)
        assert plain.recv(8, socket.MSG_WAITALL) == header
        with trusting.wrap_socket(plain, server_hostname=server.host) as secure:
            secure.sendall(sasl)
            assert secure.recv(8) == sasl


def test_the_tls_port_speaks_nothing_else(server: Server, credential: Credential) -> None:
    with pytest.raises(ConnectionException):
        BlockingConnection(
            f"amqp://{server.host}:{server.tls_port}",
            timeout=TIMEOUT_S,
            user=credential.key_name,
            password=credential.key,
            reconnect=False,
        ).close()
