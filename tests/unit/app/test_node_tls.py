"""Mutual TLS between nodes: who comes in, what both sides are told, and new files (R42)."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
import uvloop
from click.testing import CliRunner

from shardbus.app.cli.failures import Usage
from shardbus.app.cli.main import main
from shardbus.app.server.node import tls as node_tls
from shardbus.app.server.node.authority import make_authority, read_authority, write_node
from shardbus.app.server.node.links import NodeLinks
from shardbus.app.server.node.name import BROKER, GATEWAY, NodeName, node_names, refusal
from shardbus.app.server.node.tls import NodeServer, NodeTls
from shardbus.broker.clock import SystemClock
from shardbus.broker.wire.codec import FrameBuffer, decode
from shardbus.broker.wire.frames import Reject

DAY = timedelta(days=1)
# libuv keeps two descriptors from its first loop on.
uvloop.run(asyncio.sleep(0))
ENDED = "(ended)"
Runner = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    return asyncio.run if request.param == "asyncio" else uvloop.run


class Cluster:
    """An authority, and directories of nodes."""

    def __init__(self, root: Path, name: str = "prod") -> None:
        self.root = root
        self.ca = root / "ca"
        make_authority(self.ca, name, now_ms=SystemClock().now_ms())
        self.authority = read_authority(self.ca)

    def node(
        self,
        name: str,
        role: str,
        *,
        cluster: str | None = None,
        days: int = 90,
        since: timedelta = -DAY,
    ) -> Path:
        names = [NodeName(cluster or self.authority.cluster, role, name)]
        signed = self.authority.sign(names, [], datetime.now(UTC) + since, days)
        directory = self.root / f"{name}-{role}"
        write_node(directory, self.authority, signed, is_forced=True)
        return directory


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "prod")


class Echo(asyncio.Protocol):
    """A server that greets, and repeats what it hears."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(b"hello ")

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


class Heard(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost = asyncio.Event()
        self.error: Exception | None = None
        self.transport: asyncio.Transport | None = None
        self.came = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.came.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        self.lost.set()

    async def hears(self, expected: bytes) -> None:
        async with asyncio.timeout(10):
            while expected not in self.data:
                self.came.clear()
                await self.came.wait()

    def serial(self) -> object:
        assert self.transport is not None
        return self.transport.get_extra_info("ssl_object").getpeercert()["serialNumber"]


async def listening(directory: Path, role: str = BROKER) -> tuple[NodeServer, int]:
    tls = NodeTls(directory, role, SystemClock())
    server = await tls.listen("127.0.0.1", 0, Echo, roles=(GATEWAY,))
    return server, server.sockets[0].getsockname()[1]


async def dialled(directory: Path, port: int, name: str | None = "broker-0") -> Heard:
    heard = Heard()
    tls = NodeTls(directory, GATEWAY, SystemClock())
    await tls.dial("127.0.0.1", port, lambda: heard, role=BROKER, name=name)
    return heard


def test_nodes_of_a_cluster_talk_with_tls_1_3(cluster: Cluster, run: Runner) -> None:
    """R42"""

    async def scene() -> None:
        server, port = await listening(cluster.node("broker-0", BROKER))
        heard = await dialled(cluster.node("g", GATEWAY), port)
        assert heard.transport is not None
        heard.transport.write(b"world")
        await heard.hears(b"hello world")
        assert heard.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        heard.transport.close()
        await heard.lost.wait()
        server.close()
        await asyncio.sleep(0.1)

    run(scene())


@pytest.mark.parametrize("case", ["cluster", "authority", "expired", "role"])
def test_a_gateway_that_is_none_of_ours_is_refused_and_both_are_told(
    cluster: Cluster, tmp_path: Path, run: Runner, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R42"""
    stranger, server_says, client_says = _refused(case, cluster, tmp_path)

    async def scene() -> None:
        server, port = await listening(cluster.node("broker-0", BROKER))
        told = await _stranger_is_told(stranger, port)
        assert client_says in told
        server.close()

    with caplog.at_level(logging.WARNING):
        run(scene())
    assert server_says in caplog.text and "127.0.0.1:" in caplog.text


def _refused(case: str, cluster: Cluster, tmp_path: Path) -> tuple[ssl.SSLContext, str, str]:
    """Who comes, what the server logs, and what the client hears."""
    if case == "cluster":
        said = "its certificate is for the cluster 'test', not for 'prod'"
        return _unchecked(cluster, "g", GATEWAY, cluster="test"), said, said
    if case == "role":
        said = "its certificate is for the role broker, not for gateway"
        return _unchecked(cluster, "g", BROKER), said, said
    if case == "expired":
        context = _unchecked(cluster, "g", GATEWAY, days=1, since=-3 * DAY)
        return context, "its certificate has expired", ENDED
    context = _trusting(Cluster(tmp_path / "other").node("g", GATEWAY), cluster)
    return context, "not signed by the authority of our cluster", ENDED


def _unchecked(of: Cluster, name: str, role: str, **options: object) -> ssl.SSLContext:
    """What `NodeTls` would not take itself."""
    directory = of.node(name, role, **options)  # type: ignore[arg-type]  # as given above
    return _context(directory)


def _context(directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(directory / "ca.pem")
    context.load_cert_chain(directory / "node.pem", directory / "node-key.pem")
    return context


def _trusting(directory: Path, cluster: Cluster) -> ssl.SSLContext:
    (directory / "ca.pem").write_bytes((cluster.ca / "ca.pem").read_bytes())
    return _context(directory)


async def _stranger_is_told(context: ssl.SSLContext, port: int) -> str:
    """What a gateway hears before the end of its connection, which may come without a word."""
    from shardbus.broker.remote.tls_words import tls_words

    heard = Heard()
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(lambda: heard, "127.0.0.1", port, ssl=context)
    except OSError as error:
        return tls_words(error)
    async with asyncio.timeout(10):
        await heard.lost.wait()
    if heard.error is not None:
        return ENDED if "it ended the connection" in tls_words(heard.error) else "?"
    for piece in FrameBuffer().feed(heard.data):
        frame = decode(piece)
        assert isinstance(frame, Reject)
        return frame.reason
    return ENDED


@pytest.mark.parametrize("case", ["authority", "role", "name", "plain"])
def test_a_broker_that_is_not_the_one_is_not_used(
    cluster: Cluster, tmp_path: Path, run: Runner, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R42: the server hears of it, too."""

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        directory = cluster.node("broker-1" if case == "name" else "broker-0", BROKER)
        if case == "authority":
            directory = Cluster(tmp_path / "other").node("broker-0", BROKER)
        server: asyncio.Server | NodeServer
        if case == "plain":
            server = await loop.create_server(Echo, "127.0.0.1", 0)
        elif case == "role":
            server, _ = await listening(cluster.node("broker-0", GATEWAY), GATEWAY)
        else:
            server, _ = await listening(directory)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionError) as refused:
            await dialled(cluster.node("g", GATEWAY), port)
        said = {
            "authority": "not signed by the authority of our cluster",
            "role": "for the role gateway, not for broker",
            "name": "for the node broker-1, not for broker-0",
            "plain": "does not speak TLS",
        }[case]
        assert said in str(refused.value)
        # The other side notices.
        await asyncio.sleep(0.3)
        server.close()

    with caplog.at_level(logging.WARNING):
        run(scene())
    if case == "authority":
        assert "the peer closed the connection; its log may give the reason" in caplog.text


def test_who_does_not_speak_tls_does_not_come_in(
    cluster: Cluster, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    """R42"""

    async def scene() -> None:
        server, port = await listening(cluster.node("broker-0", BROKER))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 20)
        async with asyncio.timeout(10):
            assert b"hello" not in await reader.read()
        writer.close()
        server.close()

    with caplog.at_level(logging.WARNING):
        run(scene())
    assert ": it does not speak TLS" in caplog.text


def test_a_peer_that_tries_again_and_again_does_not_fill_the_log(
    cluster: Cluster, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        server, port = await listening(cluster.node("broker-0", BROKER))
        stranger = _unchecked(cluster, "g", BROKER)
        for _ in range(5):
            await _stranger_is_told(stranger, port)
        server.close()

    with caplog.at_level(logging.WARNING):
        run(scene())
    assert caplog.text.count("refused a connection") == 1


def test_new_files_are_used_without_a_restart(
    cluster: Cluster, tmp_path: Path, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    """R42: open connections stay; what is invalid changes nothing."""

    async def scene() -> None:
        directory = cluster.node("broker-0", BROKER)
        server, port = await listening(directory)
        gateway = NodeTls(cluster.node("g", GATEWAY), GATEWAY, SystemClock())

        async def connected() -> Heard:
            heard = Heard()
            await gateway.dial("127.0.0.1", port, lambda: heard, role=BROKER)
            await heard.hears(b"hello")
            return heard

        first = await connected()
        cluster.node("broker-0", BROKER)
        second = await connected()
        assert first.serial() != second.serial()

        (directory / "node.pem").write_text("nonsense")
        third = await connected()
        assert third.serial() == second.serial()
        assert "this node continues to use its previous certificate" in caplog.text

        # Another authority: first both are trusted, then all have new certificates.
        later = Cluster(tmp_path / "later")
        both = (cluster.ca / "ca.pem").read_bytes() + (later.ca / "ca.pem").read_bytes()
        for node, role in (("broker-0", BROKER), ("g", GATEWAY)):
            cluster.node(node, role)
            (cluster.root / f"{node}-{role}" / "ca.pem").write_bytes(both)
        between = await connected()
        for node, role in (("broker-0", BROKER), ("g", GATEWAY)):
            made = later.node(node, role)
            for name in ("node-key.pem", "node.pem"):
                content = (made / name).read_bytes()
                (cluster.root / f"{node}-{role}" / name).write_bytes(content)
        fourth = await connected()
        assert fourth.serial() != second.serial()
        for heard in (first, second, third, between, fourth):
            assert heard.transport is not None
            heard.data = b""
            heard.transport.write(b"still here")
            await heard.hears(b"still here")
            heard.transport.close()
            await heard.lost.wait()
        server.close()
        await asyncio.sleep(0.3)

    with caplog.at_level(logging.INFO):
        run(scene())


def test_silent_strangers_are_few_and_soon_gone(
    cluster: Cluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_tls, "HANDSHAKE_S", 1.0)
    monkeypatch.setattr(node_tls, "STRANGERS_MAX", 4)

    async def scene() -> None:
        server, port = await listening(cluster.node("broker-0", BROKER))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        async with asyncio.timeout(20):
            await asyncio.gather(*(_ended(reader) for reader, _ in silent))
        for _, writer in silent:
            writer.close()
        heard = await dialled(cluster.node("g", GATEWAY), port)
        await heard.hears(b"hello")
        assert heard.transport is not None
        heard.transport.abort()
        await heard.lost.wait()
        server.close()

    run(scene())


async def _ended(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionError:
        return


def test_files_that_cannot_be_used_are_refused_by_name(cluster: Cluster, tmp_path: Path) -> None:
    """R42"""
    good = cluster.node("g", GATEWAY)
    expired = cluster.node("old", GATEWAY, days=1, since=-3 * DAY)
    foreign = Cluster(tmp_path / "other").node("g", GATEWAY)
    (foreign / "ca.pem").write_bytes((cluster.ca / "ca.pem").read_bytes())
    mixed = cluster.node("mixed", GATEWAY)
    (mixed / "node-key.pem").write_bytes((good / "node-key.pem").read_bytes())
    for directory, role, why in (
        (tmp_path / "nothing", GATEWAY, "has no ca.pem"),
        (tmp_path / ("x" * 300), GATEWAY, "cannot be read"),
        (good, BROKER, "is for gateway, but this process is a broker"),
        (expired, GATEWAY, "is not valid now"),
        (mixed, GATEWAY, "does not belong to the certificate"),
    ):
        with pytest.raises(Usage, match=why):
            NodeTls(directory, role, SystemClock())


def test_names_of_nodes() -> None:
    own = NodeName("prod", BROKER, "broker-0")
    assert node_names([str(own), "shardbus://prod/king/x", "spiffe://prod/broker/x"]) == [own]
    assert refusal([own], "prod", BROKER, "broker-0") == ""
    assert "does not name a node" in refusal([], "prod", BROKER, None)


def test_the_commands_make_what_nodes_need(tmp_path: Path) -> None:
    """R42"""
    ca, out = tmp_path / "ca", tmp_path / "b0"
    made = CliRunner().invoke(main, ["cluster", "ca", "--cluster", "prod", "--out", str(ca)])
    assert made.exit_code == 0, made.output
    again = CliRunner().invoke(main, ["cluster", "ca", "--cluster", "prod", "--out", str(ca)])
    assert again.exit_code == 2 and "never replaced" in again.stderr
    cert = ["cluster", "cert", "--ca", str(ca), "--name", "broker-0", "--out", str(out)]
    cert += ["--role", "broker", "--role", "gateway", "--host", "10.0.0.1", "--json"]

    done = CliRunner().invoke(main, cert)

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["names"] == [
        "shardbus://prod/broker/broker-0",
        "shardbus://prod/gateway/broker-0",
    ]
    assert NodeTls(out, BROKER, SystemClock()).own == NodeName("prod", BROKER, "broker-0")
    assert NodeTls(out, GATEWAY, SystemClock()).own.role == GATEWAY
    modes = {path.name: path.stat().st_mode & 0o777 for path in (*ca.iterdir(), *out.iterdir())}
    assert set(modes.values()) == {0o600}
    done = CliRunner().invoke(main, cert)
    assert done.exit_code == 2 and "--force" in done.stderr
    assert CliRunner().invoke(main, [*cert, "--force"]).exit_code == 0
    for wrong in (["--name", "a/b"], ["--host", "a b"], ["--ca", str(out)]):
        done = CliRunner().invoke(main, [*cert, "--force", *wrong])
        assert done.exit_code == 2, wrong


def test_a_free_port_is_no_node(cluster: Cluster, run: Runner) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]

    async def scene() -> None:
        with pytest.raises(OSError):
            await dialled(cluster.node("g", GATEWAY), port)

    run(scene())


def test_a_certificate_that_ends_is_told_while_the_node_runs(cluster: Cluster) -> None:
    """R42: all nodes of a cluster were certified on one day, and none is ever started again."""
    clock = SetClock(SystemClock().now_ms())
    directory = cluster.node("b", BROKER, days=397)
    links = NodeLinks(b"", as_broker=NodeTls(directory, BROKER, clock))
    assert links.problems() == []
    clock.ms += 370 * 86_400_000
    (soon,) = links.problems()
    assert "expires on" in soon and str(directory) in soon
    clock.ms += 30 * 86_400_000
    (ended,) = links.problems()
    assert "expired on" in ended and "refuse" in ended
    cluster.node("b", BROKER, days=800)
    assert links.problems() == []


class SetClock:
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def steady_ms(self) -> int:
        return 1
