"""The management client over a namespace that is a dictionary: requests out, failures back."""

import socket
import threading

import pytest

from shardbus.app.cli.client import Answer, HttpTransport, Management
from shardbus.app.cli.entities.atom import (
    QUEUE,
)
from shardbus.app.cli.failures import CommandError, NotFound, Refused, ServerUnavailable, Usage
from shardbus.app.cli.sas import Credential
from shardbus.broker.access.sas import mint_token
from shardbus.gateway.http.atom.entries import ATOM
from tests.unit.app.namespace import Namespace

ENDPOINT = "http://127.0.0.1:5300"
QUEUES = "$Resources/queues"


def management(namespace: Namespace) -> Management:
    return Management(namespace, ENDPOINT, Credential(), clock=lambda: 1000.0)


def test_a_created_queue_can_be_shown_listed_updated_and_deleted() -> None:
    namespace = Namespace()
    bus = management(namespace)

    bus.create(QUEUE, "orders/eu", {"LockDuration": "PT30S", "MaxDeliveryCount": "5"})
    assert bus.entity(QUEUE, "orders/eu").elements["LockDuration"] == "PT30S"
    assert [queue.name for queue in bus.entities(QUEUE, QUEUES)] == ["orders/eu"]

    bus.update(QUEUE, "orders/eu", {"MaxDeliveryCount": "7"})
    assert namespace.queues["orders/eu"] == {"LockDuration": "PT30S", "MaxDeliveryCount": "7"}

    bus.delete("orders/eu")
    assert namespace.queues == {}


def test_every_request_carries_a_token_for_the_whole_endpoint() -> None:
    """R34"""
    namespace = Namespace()

    management(namespace).entities(QUEUE, QUEUES)

    expected = mint_token(ENDPOINT, Credential().key_name, Credential().key, 1300)
    assert [headers["Authorization"] for headers in namespace.headers] == [expected]


def test_a_list_is_read_page_by_page_to_its_end() -> None:
    namespace = Namespace()
    namespace.queues = {f"queue-{number:03}": {} for number in range(250)}

    assert len(management(namespace).entities(QUEUE, QUEUES)) == 250
    assert len(namespace.headers) == 3


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, Refused, "^Bad$"),
        (401, Refused, "signed by RootManageSharedAccessKey"),
        (403, Refused, "^Bad$"),
        (404, NotFound, "there is no queue q"),
        (409, Refused, "already"),
        (500, ServerUnavailable, "try again"),
        (503, ServerUnavailable, "try again"),
    ],
)
def test_a_bad_answer_becomes_a_failure_that_says_why(
    status: int, kind: type[CommandError], words: str
) -> None:
    namespace = Namespace()
    namespace.next_answer = Answer(status, b"<Error><Detail>SubCode=40000. Bad</Detail></Error>")

    with pytest.raises(kind, match=words):
        management(namespace).entity(QUEUE, "q")


def test_an_answer_that_describes_no_queue_means_that_there_is_none() -> None:
    namespace = Namespace()
    namespace.next_answer = Answer(200, f'<feed xmlns="{ATOM}"/>'.encode())

    with pytest.raises(NotFound, match="there is no queue q"):
        management(namespace).entity(QUEUE, "q")


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:5300", "ftp://host", "http://"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(Usage, match="http://host:port"):
        HttpTransport(endpoint)


def test_nobody_at_the_endpoint_is_told_with_what_to_do() -> None:
    # Port 1 is privileged and unassigned on loopback.
    transport = HttpTransport("http://127.0.0.1:1")

    with pytest.raises(ServerUnavailable, match="shardbus serve"):
        transport.ask("GET", "/", {}, None)


def hear_and_hang_up(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(65_536)


@pytest.mark.parametrize(
    ("method", "told"), [("POST", "may have done it"), ("GET", "shardbus serve")]
)
def test_who_gets_no_answer_to_a_change_is_told_that_it_may_have_been_made(
    method: str, told: str
) -> None:
    """R22: whoever sends again because nobody answered would double a message."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        bus = threading.Thread(target=hear_and_hang_up, args=(listening,))
        bus.start()
        transport = HttpTransport(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(ServerUnavailable, match=told):
            transport.ask(method, "/", {}, None)
        bus.join()
