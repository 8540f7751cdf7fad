"""What all connections may have together: beyond it they are told to wait, and nothing is lost."""

from dataclasses import replace

import pytest

from shardbus.amqp.events import LinkOpened
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, Declared, Rejected, TransactionalState
from shardbus.amqp.termini import Coordinator
from shardbus.codec.types import Int, Symbol
from shardbus.gateway.amqp.connection import totals
from shardbus.gateway.amqp.links.outbound import WAITING_BYTES_MAX
from shardbus.message.sections import encode_data_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client, plain

LOCK_S = 61
BUSY = "com.microsoft:server-busy"
DECLARE = b"\x00\x53\x77\x00\x53\x31\x45"


def declare(bench: Bench, client: Client, link: Link) -> bytes:
    """A new transaction of the client; b"" when it was refused as busy."""
    [delivery_id] = client.send_raw(link, DECLARE)
    bench.pass_s()
    outcome = client.outcomes(link)[delivery_id]
    if isinstance(outcome, Declared):
        return outcome.transaction_id
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == BUSY
    return b""


def assert_all_given_back(bench: Bench) -> None:
    kept = bench.server.totals
    assert kept.links == kept.requests == kept.transactions == 0
    assert kept.transaction_bytes == kept.pending_bytes == 0


def test_links_of_all_connections_are_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "LINKS_MAX", 3)
    clients = [bench.client() for _ in range(2)]
    links = [client.sender("q", name) for client in clients for name in ("one", "two")]
    bench.pass_s()

    assert [link.is_attached for link in links] == [True, True, True, False]
    assert clients[1].detach_error(links[3]).condition == BUSY
    clients[0].transport.close()
    bench.pass_s()
    assert client_works(bench, clients[1])
    bench.leave(clients[1])
    assert_all_given_back(bench)


def client_works(bench: Bench, client: Client) -> bool:
    link = client.sender("q", "again")
    bench.pass_s()
    return link.is_attached


def test_transactions_of_all_connections_are_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "TRANSACTIONS_MAX", 1)
    first, second = bench.client(), bench.client()
    links = [client.sender(Coordinator(), "coordinator") for client in (first, second)]
    bench.pass_s()

    assert declare(bench, first, links[0])
    assert not declare(bench, second, links[1])
    first.transport.close()
    bench.pass_s()
    assert declare(bench, second, links[1])
    bench.leave(second)
    assert_all_given_back(bench)


def test_what_waits_in_transactions_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "TRANSACTION_BYTES_MAX", 1_000)
    client = bench.client()
    coordinator, link = client.sender(Coordinator(), "coordinator"), client.sender("q", "sender")
    bench.pass_s()
    state = TransactionalState(declare(bench, client, coordinator))
    ids = [client_send(client, link, encode_data_message(bytes(600)), state) for _ in range(2)]
    bench.pass_s()

    outcomes = client.outcomes(link)
    assert isinstance(outcomes[ids[0]], TransactionalState)
    refused = outcomes[ids[1]]
    assert isinstance(refused, Rejected)
    assert refused.error is not None
    assert refused.error.condition == BUSY
    bench.leave(client)
    assert_all_given_back(bench)


def client_send(client: Client, link: Link, payload: bytes, state: TransactionalState) -> int:
    delivery_id = link.send(b"tag", payload, False, 0, state)
    client.flush()
    return delivery_id


def test_a_connection_is_not_read_while_all_of_them_wait_for_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "PENDING_BYTES_MAX", 1_000)
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    bench.latency_s = 1
    client.send(link, bytes(2_000))
    bench.pass_s(0.1)
    was_read = client.is_read()

    bench.pass_s(5)

    assert (was_read, client.is_read()) == (False, True)
    assert list(client.outcomes(link).values()) == [ACCEPTED]
    bench.leave(client)
    assert_all_given_back(bench)


def test_requests_under_way_are_bounded_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One too many is told to come back, and everything else of its connection goes on."""
    monkeypatch.setattr(totals, "REQUESTS_MAX", 1)
    client = bench.client()
    requests = client.sender("q/$management", "requests")
    responses = client.receiver("q/$management", 10, name="responses")
    bench.pass_s()
    bench.latency_s = 1
    body = {"from-sequence-number": 1, "message-count": 1}
    for _ in range(2):
        client.ask(requests, body, {"operation": "com.microsoft:peek-message"})
    bench.pass_s(5)

    answers = [answer.application_properties for answer in client.answers(responses)]
    assert [said["statusCode"] for said in answers] == [Int(503), Int(204)]
    assert answers[0]["errorCondition"] == Symbol("com.microsoft:server-busy")
    assert not client.is_closed()
    bench.leave(client)
    bench.pass_s(5)
    assert_all_given_back(bench)


def test_a_request_of_a_transaction_that_is_one_too_many_ends_the_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may commit what was not looked at."""
    client = bench.client()
    requests = client.sender("q/$management", "requests")
    client.receiver("q/$management", 10, name="responses")
    coordinator = client.sender(Coordinator(), "coordinator")
    bench.pass_s()
    monkeypatch.setattr(totals, "REQUESTS_MAX", 0)
    transaction_id = declare(bench, client, coordinator)
    client.ask(
        requests,
        {"sequence-numbers": [1]},
        {"operation": "com.microsoft:cancel-scheduled-message"},
        state=TransactionalState(transaction_id, None),
    )
    bench.pass_s()

    assert client.close_error().condition == "amqp:connection:forced"


def half_sent(client: Client, link: Link, size_bytes: int) -> bytes:
    """Send the first half of a message; the other half."""
    client.flush()
    link.send(b"0", encode_data_message(bytes(size_bytes)), False)
    output = client.connection.take_output()
    client.transport.feed(output[: len(output) // 2])
    return output[len(output) // 2 :]


def test_messages_that_are_not_whole_are_bounded_over_all_connections(bench: Bench) -> None:
    """Whoever holds the most for the longest time lets go, and who sends gets through."""
    bench.server.totals.unfinished.bytes_max = 510_000
    holders = [bench.client() for _ in range(4)]
    links = [client.sender("q", "s") for client in holders]
    honest = bench.client()
    link = honest.sender("q", "s")
    bench.pass_s()
    for client, held in zip(holders, links, strict=True):
        half_sent(client, held, 250_000)
        bench.pass_s(1)
    assert not any(client.is_closed() for client in holders)
    assert bench.server.totals.unfinished.total_bytes > 490_000

    rest = half_sent(honest, link, 200_000)
    bench.pass_s()
    honest.transport.feed(rest)
    bench.pass_s()

    assert [client.is_closed() for client in holders] == [True, False, False, False]
    assert holders[0].close_error().condition == "amqp:connection:forced"
    assert list(honest.outcomes(link).values()) == [ACCEPTED]
    for client in holders[1:]:
        client.transport.close()
    bench.leave(honest)
    assert_all_given_back(bench)
    assert bench.server.totals.unfinished.total_bytes == 0


def test_frames_that_are_not_whole_count_too(bench: Bench) -> None:
    bench.server.totals.unfinished.bytes_max = 150_000
    clients = [bench.client() for _ in range(2)]
    links = [client.sender("q", "s") for client in clients]
    bench.pass_s()

    for client, link in zip(clients, links, strict=True):
        half_sent(client, link, 200_000)
        bench.pass_s(1)

    assert [client.is_closed() for client in clients] == [True, False]


def deaf(bench: Bench, sessions: int, entity: str = "q") -> Client:
    """A client that asks in many sessions, takes one frame in each, and reads nothing."""
    config = replace(plain(), incoming_window=1)
    client = bench.client(config)
    for number in range(sessions):
        session = client.connection.begin_session()
        client.receiver(entity, name=f"r{number}", session=session)
    bench.pass_s()
    client.transport.stall()
    return client


def ask_all(client: Client) -> None:
    """Give credit on all links."""
    for link in [event.link for event in client.events if isinstance(event, LinkOpened)]:
        client.grant(link, 1)


def test_what_waits_for_windows_is_bounded_over_the_sessions_of_a_connection(bench: Bench) -> None:
    """Each session may have a message for which its window has no room."""
    messages = [b"%d" % number + bytes(200_000) for number in range(20)]
    bench.fill("q", *messages)
    client = deaf(bench, len(messages))

    ask_all(client)
    bench.pass_s()

    waiting_bytes = bench.server.totals.unread.total_bytes
    assert WAITING_BYTES_MAX <= waiting_bytes < WAITING_BYTES_MAX + 250_000

    # Who opens its windows gets everything, in all sessions.
    client.transport.flow()
    bench.pass_s(1)
    links = [event.link for event in client.events if isinstance(event, LinkOpened)]
    got = [delivery for link in links for delivery in client.received(link)]
    assert len(got) == len(messages)
    assert bench.server.totals.unread.total_bytes == 0


def test_what_nobody_reads_is_bounded_over_all_connections(bench: Bench) -> None:
    """Whoever is behind the most for the longest time goes; what it had is received by others."""
    bench.server.totals.unread.bytes_max = 500_000
    bench.fill("q", *[b"%d" % number + bytes(200_000) for number in range(4)])
    clients = []
    for _ in range(4):
        client = deaf(bench, 1)
        ask_all(client)
        bench.pass_s(1)
        clients.append(client)

    assert bench.server.totals.unread.total_bytes <= 500_000
    gone = [client.transport.is_aborted for client in clients]
    assert gone[0] and not gone[-1]
    for client in clients:
        client.transport.abort()
    bench.pass_s(LOCK_S)
    assert len(bench.left("q")) == 4
    assert bench.server.totals.unread.total_bytes == 0
