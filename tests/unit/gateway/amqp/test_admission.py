"""Who may stay when there are many, and what strangers can make us hold."""

import asyncio
from collections.abc import Iterator

import pytest

from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.performatives import Flow
from shardbus.amqp.termini import Coordinator
from shardbus.gateway.admission import amqp as door
from shardbus.gateway.admission.admission import TURNED_AWAY_MAX
from shardbus.gateway.amqp.connection import protocol
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client, anonymous, plain
from tests.unit.gateway.amqp.transport import SlowTransport

QUOTA = "amqp:resource-limit-exceeded"


@pytest.fixture
def small() -> Iterator[Bench]:
    bench = Bench(connections_max=3)
    yield bench
    bench.close()


class FarTransport(SlowTransport):
    """Comes from another address."""

    host = ""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self.host, 1) if name == "peername" else super().get_extra_info(name, default)


def stranger(bench: Bench, host: str = "") -> Client:
    """A client that has opened and shows no token."""
    client = Client(bench.server.new_protocol(), anonymous(), bench.loop)
    far = FarTransport(bench.loop, client.transport._reader)
    far.host = host
    client.transport = far
    bench.loop.call_soon(client.connect)
    bench.pass_s()
    return client


def test_strangers_make_room_for_newcomers_and_are_told_why(small: Bench) -> None:
    known = small.client()
    strangers = [stranger(small) for _ in range(3)]

    assert [client.is_closed() for client in strangers] == [True, False, False]
    error = strangers[0].close_error()
    assert error.condition == QUOTA
    assert error.description.startswith("ConnectionsQuotaExceeded for namespace: ")
    assert known.connection.is_open
    assert small.server.connections == 3


def test_the_noisiest_peer_makes_room_first(small: Bench) -> None:
    quiet = stranger(small, "192.0.2.1")
    noisy = [stranger(small, "192.0.2.2") for _ in range(6)]

    assert quiet.connection.is_open
    assert [client.is_closed() for client in noisy] == [True] * 4 + [False] * 2


def test_clients_with_a_token_are_never_made_to_go(small: Bench) -> None:
    known = [small.client() for _ in range(3)]

    flood = [stranger(small) for _ in range(10)]
    late = small.client()

    assert [client.connection.is_open for client in known] == [True] * 3
    assert [client.close_error().condition for client in flood] == [QUOTA] * 10
    assert late.close_error().condition == QUOTA
    known[0].transport.close()
    small.pass_s()
    assert small.client().connection.is_open


def test_a_flood_of_silent_connections_does_not_hide_why_there_is_no_place(small: Bench) -> None:
    for _ in range(3):
        small.client()
    for _ in range(TURNED_AWAY_MAX + 10):
        silent = Client(small.server.new_protocol(), anonymous(), small.loop)
        small.loop.call_soon(silent.transport.connect, silent.protocol)
        small.pass_s(0.001)

    assert small.client().close_error().condition == QUOTA
    assert small.server.connections <= 3 + TURNED_AWAY_MAX
    small.pass_s(22)
    assert small.server.connections == 3


def test_one_that_made_room_and_does_not_read_is_cut_off_soon(small: Bench) -> None:
    stuck = stranger(small)
    stuck.transport.stall()
    for _ in range(3):
        stranger(small)
    assert small.server.connections == 4

    small.pass_s(1.6)

    assert stuck.transport.is_aborted
    assert small.server.connections == 3


def test_only_so_many_may_linger(small: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LEAVING_MAX", 2)
    for _ in range(10):
        stranger(small).transport.stall()

    assert small.server.connections == 5


def test_what_one_stranger_sends_is_bounded(bench: Bench) -> None:
    client = stranger(bench)
    heartbeat = bytes.fromhex("0000000802000000")
    for _ in range(9):
        client.transport.feed(heartbeat * 1_024)
        bench.pass_s()

    error = client.close_error()
    assert error.condition == "amqp:connection:forced"
    assert "65536" in error.description


def test_a_client_with_a_token_may_send_on(bench: Bench) -> None:
    client = bench.client()
    for _ in range(9):
        client.transport.feed(bytes.fromhex("0000000802000000") * 1_024)
        bench.pass_s()

    assert client.connection.is_open


def test_what_all_strangers_send_is_bounded_and_the_noisiest_pays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "STRANGERS_BYTES_MAX", 50_000)
    quiet = stranger(bench, "192.0.2.1")
    noisy = [stranger(bench, "192.0.2.2") for _ in range(4)]
    for client in noisy:
        client.transport.feed(bytes.fromhex("0000000802000000") * 2_000)
        bench.pass_s()

    assert quiet.connection.is_open
    assert [client.is_closed() for client in noisy] == [True, False, False, False]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_stranger_has_few_sessions(bench: Bench, is_known: bool) -> None:
    client = bench.client() if is_known else stranger(bench)
    for _ in range(protocol.STRANGER_SESSIONS_MAX + 1):
        client.connection.begin_session()
    client.flush()
    bench.pass_s()

    assert client.is_closed() is not is_known


@pytest.mark.parametrize("is_known", [False, True])
def test_a_stranger_has_few_links(bench: Bench, is_known: bool) -> None:
    client = bench.client() if is_known else stranger(bench)
    for number in range(2 * protocol.STRANGER_LINKS_MAX + 1):
        client.receiver("$cbs", name=f"link {number}")
    bench.pass_s()

    assert client.is_closed() is not is_known


def test_a_stranger_has_few_open_transactions(bench: Bench) -> None:
    """.NET opens its coordinator before it shows a token: a few must be possible."""
    client = stranger(bench)
    link = client.sender(Coordinator())
    bench.pass_s()
    declare = b"\x00\x53\x77\x00\x53\x31\x45"
    client.send_raw(link, *[declare] * 6)
    bench.pass_s()

    kinds = [type(outcome).__name__ for outcome in client.outcomes(link).values()]
    assert kinds == ["Declared"] * 4 + ["Rejected"] * 2


def test_a_stranger_that_asks_and_never_reads_is_not_read_for_long(bench: Bench) -> None:
    client = stranger(bench)
    client.receiver("$cbs", 1)
    bench.pass_s()
    client.transport.stall()
    ask = Flow()
    ask.next_incoming_id = 0
    ask.incoming_window = 10
    ask.echo = True
    frame = amqp_frame(0, ask.encode())
    for _ in range(60):
        client.transport.feed(frame * 30)
        bench.pass_s(0.01)

    assert not client.is_read()
    assert client.transport.get_write_buffer_size() < 2 * protocol.STRANGER_WRITE_BYTES_MAX


def test_nothing_is_left_of_connections_that_are_gone(bench: Bench) -> None:
    for _ in range(3):
        bench.leave(bench.client())
    for _ in range(3):
        stranger(bench).transport.close()
    bench.pass_s(1)

    assert bench.server.connections == 0
    assert bench.server.admission.strangers == 0
    assert len(bench.server.admission.wheel) == 0
    assert bench.server.admission._heard_bytes == 0
    assert asyncio.all_tasks(bench.loop) == set()


def test_showing_a_wrong_key_leaves_a_stranger(small: Bench) -> None:
    wrong = small.client(plain(b"\0RootManageSharedAccessKey\0wrong"))

    assert wrong.is_closed() or not wrong.connection.is_open
    assert [small.client().connection.is_open for _ in range(3)] == [True] * 3
