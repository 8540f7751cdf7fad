"""Keys of a real process: rotated while it runs, hard to guess, and told to nobody (R34)."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardbus.app.cli.sas import Credential
from shardbus.broker.access.sas import mint_token
from shardbus.broker.access.slowdown import FREE_FAILURES, WAITING_OF_PEER_MAX
from shardbus.gateway.listening.tls import development_certificate
from tests.support.amqp_client import Address, Ended, SaslRefused, connected
from tests.support.queues import create_queue
from tests.support.server import Server, serve_and_fail

KEY: Final = "b3duLWtleS10aGF0LW5vYm9keS1rbm93cy0xMjM0NTY3ODk="
ROOT: Final = "RootManageSharedAccessKey"
NO_HEADERS: Final[dict[str, str]] = {}
COMMAND: Final = str(Path(sys.executable).with_name("shardbus"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a key of its own that is in no command line, and that logs all it can."""
    directory = tmp_path_factory.mktemp("guarded")
    out = directory / "exported.pem"
    command = [COMMAND, "cert", "--data-dir", str(directory / "data"), "--out", str(out), "--json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert told["certificate"] == out.read_text()
    server = Server(
        directory / "data", "--log-level", "debug", environment={"SHARDBUS_SAS_KEY": KEY}
    )
    mask = os.umask(0)
    try:
        server.start()
    finally:
        os.umask(mask)
    try:
        create_queue(server, "q")
        yield server
        assert "Traceback" not in server.output
    finally:
        server.close()


def token_of(rule: str, key: str, resource: str = "sb://h/", lasts_s: int = 3600) -> str:
    return mint_token(resource, rule, key, int(time.time()) + lasts_s)


def ask(
    server: Server,
    method: str,
    path: str,
    token: str,
    body: bytes = b"",
    headers: dict[str, str] = NO_HEADERS,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.host, server.http_port, timeout=30)
    try:
        given = {"Authorization": token, **headers} if token else headers
        connection.request(method, path, body=body or None, headers=given)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def sas(server: Server, *words: str) -> dict[str, object]:
    """The `sas` command, with the key where nobody sees it."""
    at = f"http://{server.host}:{server.http_port}"
    done = subprocess.run(
        [COMMAND, "sas", *words, "--endpoint", at, "--json"],
        check=True,
        capture_output=True,
        env={**os.environ, "SHARDBUS_KEY": KEY},
    )
    document: dict[str, object] = json.loads(done.stdout)
    return document


async def test_a_key_is_rotated_while_it_is_used(guarded: Server) -> None:
    """R34: the new key works at once, the other goes on, and what the old one opened ends."""
    made = sas(guarded, "rule", "create", "worker", "--rights", "Listen,Send")
    address = Address(guarded.host, guarded.amqp_port)
    old, other = (Credential("worker", str(made[key])) for key in ("primary_key", "secondary_key"))
    async with connected(address, old) as leaving, connected(address, other) as staying:
        ending = await leaving.receiver("q", credit=1)
        stays = await staying.receiver("q", credit=1)

        rotated = await asyncio.to_thread(sas, guarded, "rule", "rotate", "worker", "primary")

        with pytest.raises(Ended) as end:
            await ending.take_some()
        assert end.value.condition == "amqp:unauthorized-access"
        async with connected(address, Credential("worker", str(rotated["primary_key"]))) as fresh:
            await fresh.sender("q")
        with pytest.raises((SaslRefused, Ended)):
            async with connected(address, old) as again:
                await again.sender("q")
        assert stays.error is None
    sas(guarded, "rule", "delete", "worker", "--yes")


def test_secrets_are_told_to_nobody(guarded: Server) -> None:
    """R34: not by the log at its most talkative, not by errors, not by the list of processes."""
    forged = token_of(ROOT, "a guess")
    shown = [
        forged,
        token_of(ROOT, KEY, "sb://h/other"),
        token_of(ROOT, KEY, lasts_s=-5),
        token_of(ROOT, KEY)[:-30],
        f"SharedAccessSignature sr=x&sig={KEY}&se=1&skn=x",
        f"Bearer {KEY}",
        token_of(ROOT, KEY),
    ]
    position = len(guarded.output)
    answers = b""
    for token in shown:
        for path in ("/q?api-version=2021-05", "/q/messages/head?timeout=0", "/api/v1/queues"):
            answers += ask(guarded, "GET", path, token)[2]
    bad_body = json.dumps({"rights": ["Own"], "primary_key": KEY}).encode()
    good = token_of(ROOT, KEY)
    answers += ask(guarded, "PUT", "/api/v1/access-rules/x", good, bad_body)[2]

    async def over_amqp() -> None:
        address = Address(guarded.host, guarded.amqp_port)
        async with connected(address) as client:
            for token in shown:
                await client.put_token(token, "sb://h/q")
        with pytest.raises((SaslRefused, Ended)):
            async with connected(address, Credential(ROOT, KEY + "x")):
                pass

    asyncio.run(over_amqp())

    signatures = [token.partition("sig=")[2].partition("&")[0] for token in shown[:4]]
    for text in (guarded.output[position:], answers.decode()):
        for secret in (KEY, "a guess", *signatures):
            assert secret not in text
    assert "401 Unauthorized" in guarded.output[position:], "failures are told"
    seen = Path(f"/proc/{guarded.pid}/cmdline").read_bytes()
    assert KEY.encode() not in seen


def test_only_the_owner_can_read_what_is_kept(guarded: Server) -> None:
    """R34: whatever the umask."""
    found = {
        str(path.relative_to(guarded.data_dir)): stat.S_IMODE(path.stat().st_mode)
        for path in guarded.data_dir.rglob("*")
    }
    databases = {name for name in found if ".db" in name}

    assert stat.S_IMODE(guarded.data_dir.stat().st_mode) == 0o700
    assert {"catalogue.db", "catalogue.db-wal", "broker-0.db"} <= databases
    assert {name for name in databases if found[name] != 0o600} == set()
    assert found["tls/server-key.pem"] == 0o600
    assert found["tls"] == 0o700


def test_the_exported_authority_is_trusted_and_a_new_certificate_needs_no_restart(
    guarded: Server, tmp_path: Path
) -> None:
    exported = guarded.data_dir.with_name("exported.pem")
    assert _https_status(guarded, exported) == 200

    other = development_certificate(tmp_path / "tls", now_ms=int(time.time() * 1000))
    for path in (other.authority, other.certificate, other.key):
        beside = guarded.data_dir / "tls" / f"{path.name}.tmp"
        beside.write_bytes(path.read_bytes())
        beside.replace(guarded.data_dir / "tls" / path.name)
    os.kill(guarded.pid, signal.SIGHUP)

    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        try:
            assert _https_status(guarded, other.authority) == 200
            break
        except ssl.SSLCertVerificationError:
            continue
    with pytest.raises(ssl.SSLCertVerificationError):
        _https_status(guarded, exported)


def _https_status(server: Server, authority: Path) -> int:
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection(
        "localhost", server.http_port, timeout=20, context=context
    )
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_bus_with_the_public_key_does_not_answer_to_a_web_sites_name(
    server: Server, guarded: Server
) -> None:
    """R34: DNS rebinding. Where the key is secret a page of any name has nothing to show."""
    token = token_of(ROOT, "SAS_KEY_VALUE")
    for host in ("evil.example", "evil.example:5300", "127.0.0.1.evil.example", "a b", "[::1"):
        for path in ("/$Resources/queues", "/health", "/metrics", "/api/v1/queues", "/"):
            assert ask(server, "GET", path, token, headers={"Host": host})[0] == 421, (host, path)
        assert ask(server, "PUT", "/q?api-version=2021-05", token, headers={"Host": host})[0] == 421
    for host in ("localhost", "127.0.0.1:80", "[::1]:1", "10.0.0.7", "bus", "bus.localhost"):
        assert ask(server, "GET", "/api/v1/queues", token, headers={"Host": host})[0] == 200, host
    assert (
        ask(guarded, "GET", "/api/v1/queues", token_of(ROOT, KEY), headers={"Host": "bus.example"})[
            0
        ]
        == 200
    )
    assert ask(guarded, "GET", "/metrics", "", headers={"Host": "evil.example"})[0] == 401


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_a_page_of_another_site_gets_no_leave_to_ask(server: Server, method: str) -> None:
    """R34: browsers ask before they send an Authorization header, and hear nothing of it."""
    asking = {"Origin": "https://evil.example", "Access-Control-Request-Headers": "authorization"}
    status, headers, _ = ask(server, method, "/api/v1/queues", "", headers=asking)

    assert status in (401, 405)
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    "options",
    [
        ("--host", "::"),
        ("--host", "bus.example.org", "--broker-processes"),
        ("--host", "0.0.0.0", "--sas-key", "SAS_KEY_VALUE"),
        ("--host", "0.0.0.0", "--config", "shardbus.toml"),
    ],
)
def test_the_public_key_is_not_served_to_others(tmp_path: Path, options: tuple[str, ...]) -> None:
    """R34: however it is asked for."""
    file = tmp_path / "shardbus.toml"
    file.write_text('sas-key = "SAS_KEY_VALUE"\n')
    given = [str(file) if word == "shardbus.toml" else word for word in options]

    code, output = serve_and_fail("--data-dir", str(tmp_path / "data"), *given)

    assert code == 2
    assert "the development key is public" in output
    assert not (tmp_path / "data").exists()


def test_a_gateway_does_not_serve_the_public_key_to_others_either(tmp_path: Path) -> None:
    """R34."""
    done = subprocess.run(
        [COMMAND, "gateway", "--host", "0.0.0.0", "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        check=False,
    )

    assert done.returncode == 2
    assert b"the development key is public" in done.stderr


async def test_guesses_wait_while_a_right_key_is_answered(guarded: Server) -> None:
    """R34: more guesses than are held back are hung up on, and nobody else waits."""
    forged, good = token_of(ROOT, "a guess"), token_of(ROOT, KEY)
    count = FREE_FAILURES + WAITING_OF_PEER_MAX + 20
    guesses = [asyncio.create_task(_guess_over_wire(guarded, forged)) for _ in range(count)]
    for answered in asyncio.as_completed(guesses):
        answer = await answered
        assert answer.startswith("HTTP/1.1 401")
        if "connection: close" in answer.lower():
            break
    else:
        pytest.fail("no guesser was hung up on")

    status, _, _ = await asyncio.to_thread(ask, guarded, "GET", "/api/v1/queues", good)

    assert status == 200
    assert not all(guess.done() for guess in guesses), "others still wait for their no"
    for guess in guesses:
        guess.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)
    assert "wrong keys from 127.0.0.1" in guarded.output


async def _guess_over_wire(server: Server, token: str) -> str:
    """One request on a connection of its own: the head of its answer."""
    reader, writer = await asyncio.open_connection(server.host, server.http_port)
    try:
        head = f"GET /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n"
        writer.write(head.encode())
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    finally:
        writer.close()
