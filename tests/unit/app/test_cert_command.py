"""`shardbus cert` and the line that says the bus is ready: what they show and what they hide."""

import json
import os
import shlex
import ssl
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.main import main
from shardbus.app.server.front import ready_line
from shardbus.app.server.settings import TABLE, load
from shardbus.gateway.http.api.operations.system import Ports
from shardbus.gateway.listening.tls import server_context


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cert(*words: str) -> Result:
    return CliRunner().invoke(main, ["cert", *words], catch_exceptions=False)


def test_the_authority_is_made_once_and_written_for_all_to_read(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "ca.pem"

    first = json.loads(cert("--data-dir", str(data), "--out", str(out), "--json").stdout)
    again = json.loads(cert("--data-dir", str(data), "--json").stdout)

    assert first["certificate"] == again["certificate"] == out.read_text()
    assert (first["path"], again["path"]) == (str(out), str(data / "tls" / "ca.pem"))
    assert first["hosts"] == ["localhost", "127.0.0.1", "::1"]
    assert out.stat().st_mode & stat.S_IROTH
    assert {"Python, AMQP", "Python, HTTP", "Java", "Go", "curl"} <= set(first["how"])
    assert "PRIVATE" not in str(first)


def test_people_are_told_how_each_sdk_trusts_it(tmp_path: Path) -> None:
    shown = cert("--data-dir", str(tmp_path / "data")).stdout

    assert "connection_verify" in shown
    assert "NODE_EXTRA_CA_CERTS" in shown


def test_with_a_certificate_of_ones_own_there_is_nothing_to_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, variable in (("c.pem", "SHARDBUS_TLS_CERT"), ("k.pem", "SHARDBUS_TLS_KEY")):
        (tmp_path / name).touch()
        monkeypatch.setenv(variable, str(tmp_path / name))

    result = cert("--data-dir", str(tmp_path / "data"))

    assert (result.exit_code, "your own certificate" in result.stderr) == (2, True)
    assert not (tmp_path / "data").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    result = cert("--data-dir", str(tmp_path / "data"), "--out", str(tmp_path / "no" / "ca.pem"))

    assert (result.exit_code, "ca.pem cannot be written" in result.stderr) == (2, True)
    (tmp_path / "file").touch()
    assert cert("--data-dir", str(tmp_path / "file" / "data")).exit_code == 1


def test_a_key_that_is_kept_in_a_file_is_not_in_the_ready_line(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("my-secret-key")
    ports = Ports(amqp=1, http=2, tls=3, flight=0)

    hidden = ready_line(load({"sas_key_file": str(file)}, {}), ports)
    told = ready_line(load({"sas_key": "my-secret-key"}, {}), ports)

    assert "my-secret-key" not in hidden
    assert "SharedAccessKey=my-secret-key;" in told


NAMES = ("contoso.servicebus.windows.net", "*.example.com", "10.0.0.5", "::1", "x" * 60 + ".long")


def named(*words: str) -> list[str]:
    return [word for name in words for word in ("--name", name)]


def handshake(directory: Path, host: str) -> None:
    """TLS between a server with the files and a client that trusts the authority and no other."""
    server_side = server_context(directory / "server.pem", directory / "server-key.pem")
    client_side = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert client.version() == "TLSv1.3"


def test_a_certificate_is_made_for_any_names_and_trusted_by_them(tmp_path: Path) -> None:
    """R37."""
    out = tmp_path / "tls"

    told = json.loads(cert(*named(*NAMES), "--out", str(out), "--json").stdout)

    assert told["hosts"] == list(NAMES)
    for host in (NAMES[0], "any.example.com", "10.0.0.5", "::1", NAMES[4]):
        handshake(out, host)
    for stranger in ("other.servicebus.windows.net", "10.0.0.6", "a.b.example.com"):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(out, stranger)


def test_other_users_can_trust_the_authority_and_cannot_read_the_key(tmp_path: Path) -> None:
    """R37: on port 443 root serves, and applications are not root."""
    out = tmp_path / "tls"
    umask = os.umask(0o022)
    try:
        cert(*named(*NAMES), "--out", str(out))
    finally:
        os.umask(umask)

    assert {path.name: path.stat().st_mode & 0o777 for path in out.iterdir()} == {
        "ca.pem": 0o644,
        "server.pem": 0o644,
        "server-key.pem": 0o600,
    }
    assert out.stat().st_mode & 0o777 == 0o755


def test_what_comes_next_is_told_to_people_and_to_programs(tmp_path: Path) -> None:
    """R37."""
    shown = cert(*named(*NAMES)).stdout
    told = json.loads(cert(*named(*NAMES), "--out", str(tmp_path / "two"), "--json").stdout)

    authority = tmp_path / "shardbus-tls" / "ca.pem"
    assert f"127.0.0.1 {NAMES[0]} {NAMES[4]}\n" in shown
    assert f"connection_verify='{authority}'" in shown
    assert "PRIVATE" not in shown + json.dumps(told)
    assert told["authority"] == str(tmp_path / "two" / "ca.pem")
    assert told["hosts_entry"] == f"127.0.0.1 {NAMES[0]} {NAMES[4]}"
    flags = [word for word in shlex.split(told["serve"]) if word.startswith("--")]
    assert flags == ["--tls-port", "--http-port", "--tls-cert", "--tls-key", "--sas-key-file"]
    assert set(flags) <= {row.flag for row in TABLE}
    settings = load({"tls_cert": told["certificate"], "tls_key": told["key"]}, {})
    assert settings.tls_cert == tmp_path / "two" / "server.pem"


def test_addresses_alone_need_no_entry(tmp_path: Path) -> None:
    told = json.loads(cert("--name", "10.0.0.5", "--json").stdout)
    shown = cert("--name", "10.0.0.5", "--force").stdout

    assert told["hosts_entry"] == ""
    assert "/etc/hosts" not in shown
    assert "2. Where clients run, trust" in shown


@pytest.mark.parametrize("name", ["ca.pem", "server.pem", "server-key.pem"])
def test_nothing_is_replaced_that_was_not_meant_to_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "shardbus-tls").mkdir()
    (tmp_path / "shardbus-tls" / name).write_text("mine")

    refused = cert("--name", "a")
    kept = {path.name: path.read_text() for path in (tmp_path / "shardbus-tls").iterdir()}
    forced = cert("--name", "a", "--force")

    assert (refused.exit_code, kept) == (2, {name: "mine"})
    assert f"{name} exists" in refused.stderr
    assert "--force" in refused.stderr
    assert forced.exit_code == 0
    handshake(tmp_path / "shardbus-tls", "a")


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a..b", ".a", "a.", "-a", "a-", "*", "*.", "a.*.b", "a/b", "bücher.example",
     "x" * 64, "a." * 127 + "b" + "x" * 30, "fe80::1%eth0", "a:5671", "https://a"],
)  # fmt: skip
def test_what_is_no_host_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    result = cert("--name", "good.example", "--name", name)

    assert (result.exit_code, "neither the name of a host" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--name", "a", "--data-dir", "d"], "--data-dir"),
        (["--name", "a", "--config", "c"], "--config"),
        (["--force"], "--force is for"),
        (named(*(f"h{number}" for number in range(101))), "at most 100 names"),
        (["--name", "a", "--out", "/dev/null/x"], "cannot be written"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, words: list[str], reason: str
) -> None:
    result = cert(*words)

    assert (result.exit_code, reason in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
