"""A server that cannot start says why, and touches nothing."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.support.server import Server, running_server, serve_and_fail

FREE_PORTS = ("--amqp-port", "0", "--http-port", "0", "--tls-port", "0")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        amqp = serve_and_fail(
            "--amqp-port", port, "--http-port", "0", "--tls-port", "0",
            "--data-dir", str(tmp_path / "one"),
        )  # fmt: skip
        http = serve_and_fail(
            "--amqp-port", "0", "--http-port", port, "--tls-port", "0",
            "--data-dir", str(tmp_path / "two"),
        )  # fmt: skip

    for code, output in (amqp, http):
        assert code != 0
        assert port in output
        assert "in use" in output
        assert "Traceback" not in output
        assert "ready" not in output


def test_a_data_directory_is_served_by_one_process(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        code, output = serve_and_fail(*FREE_PORTS, "--data-dir", str(server.data_dir))

        assert code != 0
        assert "another process" in output
        assert str(server.data_dir) in output
        assert server.is_running
        server.restart()


@pytest.mark.parametrize("is_there", [False, True], ids=["below a file", "the lock is no file"])
def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        directory = tmp_path / "data"
        (directory / "lock").mkdir(parents=True)
    else:
        (tmp_path / "file").write_text("in the way")
        directory = tmp_path / "file" / "data"

    code, output = serve_and_fail(*FREE_PORTS, "--data-dir", str(directory))

    assert code != 0
    assert str(directory) in output
    assert "Traceback" not in output


def test_a_directory_without_write_permission_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(0o500)
    if os.access(directory, os.W_OK):
        # The superuser may write anywhere; what no one may write to is the kernel's own.
        directory = Path("/proc/shardbus")

    code, output = serve_and_fail(*FREE_PORTS, "--data-dir", str(directory))

    assert code != 0
    assert str(directory) in output
    assert "Traceback" not in output


def test_a_store_that_is_not_ours_is_left_untouched(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.start()
    server.stop()
    stores = sorted(path for path in server.data_dir.rglob("*.db"))
    assert stores
    for store in stores:
        store.write_bytes(b"a letter to a friend" * 1000)

    code, output = serve_and_fail(*FREE_PORTS, "--data-dir", str(server.data_dir))

    assert code != 0
    assert "Traceback" not in output
    assert {store.read_bytes() for store in stores} == {b"a letter to a friend" * 1000}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--amqp-port", "70000"), "amqp-port"),
        (("--tier", "gold"), "tier"),
        (("--brokers", "0"), "brokers"),
        (("--host", "0.0.0.0"), "sas-key"),
        (("--config", "missing.toml"), "missing.toml"),
        (("--store", "oracle:"), "store"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    directory = tmp_path / "data"

    code, output = serve_and_fail(*FREE_PORTS, "--data-dir", str(directory), *options)

    assert code != 0
    assert words in output
    assert "Traceback" not in output
    assert not directory.exists()


def test_a_stopped_server_leaves_no_trace_of_an_unclean_end(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        server.restart()
        server.stop()

        assert "Traceback" not in server.output
        assert list(server.data_dir.rglob("*-wal")) == []
        server.start()
