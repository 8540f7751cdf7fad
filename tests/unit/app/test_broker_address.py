"""Addresses of brokers, the list of them, and the secret."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from shardbus.app.cli.failures import Usage
from shardbus.app.server.broker_address import (
    BrokerAddress,
    make_secret,
    parse_broker_address,
    read_broker_list,
    read_secret,
)


def secret_file(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "secret"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "text", ["unix:run/broker-0.sock", "tcp://127.0.0.1:7000", "tcp://[::1]:7000", "tcp://host:1"]
)
def test_an_address_is_read_and_written_alike(text: str) -> None:
    assert str(parse_broker_address(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "unix:", "host:1", "tcp://host", "tcp://host:99999", "tcp://:1", "unix:" + "x" * 200],
)
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(Usage):
        parse_broker_address(text)


def test_a_list_names_brokers_in_order_and_may_hold_comments(tmp_path: Path) -> None:
    path = tmp_path / "brokers.conf"
    path.write_text("# ours\nunix:a.sock\n\ntcp://host:7000  # theirs\n", encoding="utf-8")

    assert [str(address) for address in read_broker_list(path)] == [
        "unix:a.sock",
        "tcp://host:7000",
    ]


@pytest.mark.parametrize("text", ["", "# nobody\n", "somewhere\n"])
def test_a_list_without_addresses_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "brokers.conf"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(Usage):
        read_broker_list(path)


def test_a_secret_is_made_once_and_for_this_user_alone(tmp_path: Path) -> None:
    first = make_secret(tmp_path / "secret")

    assert make_secret(tmp_path / "secret") == first and len(first) >= 32
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="readable by others"):
        read_secret(secret_file(tmp_path, "x" * 32, 0o640))


@pytest.mark.parametrize("text", ["", "short", "x" * 5000])
def test_a_secret_that_is_too_short_or_too_long_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Usage, match="bytes"):
        read_secret(secret_file(tmp_path, text))


def test_a_missing_secret_is_told(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="cannot be read"):
        read_secret(tmp_path / "absent")


def listened(path: Path) -> int:
    """The mode of the socket file while somebody listens there."""

    async def listen() -> None:
        server = await BrokerAddress(socket=path).listen(asyncio.Protocol)
        modes.append(_mode(path))
        server.close()
        await server.wait_closed()

    modes: list[int] = []
    asyncio.run(listen())
    return modes[0]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_this_user_can_open_the_socket(tmp_path: Path) -> None:
    assert listened(tmp_path / "run" / "broker-0.sock") == 0o600
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_a_socket_left_by_a_former_life_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "run" / "broker-0.sock"
    listened(path)

    assert listened(path) == 0o600


def test_a_socket_in_a_directory_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)

    with pytest.raises(Usage, match="accessible to this user alone"):
        listened(shared / "broker-0.sock")


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Usage, match="cannot listen"):
        listened(tmp_path / "file" / "broker-0.sock")


def test_the_mask_for_new_files_is_put_back(tmp_path: Path) -> None:
    before = os.umask(0o022)
    os.umask(before)

    listened(tmp_path / "run" / "broker-0.sock")

    after = os.umask(before)
    assert after == before
