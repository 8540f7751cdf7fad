"""The process of the bulk lane as its server sees it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from shardbus.app.server import flight_child
from shardbus.app.server.flight_child import FlightChild, flight_port, flight_url, is_secure
from shardbus.app.server.settings import Settings, load
from tests.support.ports import free_port

NO_CERTIFICATE = (Path("chain.pem"), Path("key.pem"))


def settings(tmp_path: Path, **flags: str) -> Settings:
    return load({"data_dir": str(tmp_path), **flags}, {}, default_file=tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("host", "tls", "url"),
    [
        ("127.0.0.1", "auto", "grpc://127.0.0.1:5301"),
        ("127.0.0.1", "on", "grpc+tls://127.0.0.1:5301"),
        ("0.0.0.0", "auto", "grpc+tls://0.0.0.0:5301"),
        ("0.0.0.0", "off", "grpc://0.0.0.0:5301"),
        ("::1", "auto", "grpc://[::1]:5301"),
    ],
)
def test_tls_is_as_chosen_and_by_itself_beyond_loopback(
    tmp_path: Path, host: str, tls: str, url: str
) -> None:
    """P1."""
    chosen = settings(tmp_path, host=host, flight_tls=tls, sas_key="a-key-of-our-own-0123456789")

    assert flight_url(chosen, host) == url
    assert is_secure(chosen) == url.startswith("grpc+tls")


def test_without_its_libraries_there_is_no_lane_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P1."""
    monkeypatch.setattr(flight_child, "LIBRARIES", ("no_such_library",))

    with caplog.at_level(logging.WARNING):
        assert flight_port(settings(tmp_path)) == 0
        assert flight_port(settings(tmp_path, flight_port="0")) == 0

    assert [record.getMessage() for record in caplog.records] == [
        "there is no bulk lane: it needs no_such_library, which is not installed"
    ]


def test_a_lane_that_cannot_begin_is_a_problem_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    """P1."""
    chosen = settings(tmp_path, flight_port=str(free_port()), flight_tls="on")
    lane = FlightChild(chosen, 1, (tmp_path / "no.pem", tmp_path / "no.key"))

    async def begin() -> tuple[list[str], list[str]]:
        before = lane.problems()
        running = asyncio.ensure_future(lane.run())
        while not lane.problems():
            # On a busy machine it may take longer than a server waits for it.
            await lane.begun()
        after = lane.problems()
        running.cancel()
        await asyncio.wait([running])
        return before, after

    before, after = asyncio.run(begin())

    assert before == []
    assert len(after) == 1
    assert after[0].startswith("the bulk lane does not run: the bulk lane cannot listen on port")
    assert "no.pem" in after[0]
    assert [reading.value for reading in lane.readings()] == [0]
