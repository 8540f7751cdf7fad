"""`shardbus cert` and the line that says the bus is ready: what they show and what they hide."""

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.main import main
from shardbus.app.server.front import Ports, ready_line
from shardbus.app.server.settings import load


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
