"""What `/health` says while brokers go, one by one and then all."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Final

from tests.chaos.processes import BROKERS, ProcessServer, process_server

RESTART_MS: Final = 600_000
"""Longer than the test: nobody comes back."""
NOTICED_S: Final = 20.0


def ask(server: ProcessServer, method: str = "GET") -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(server.host, server.http_port, timeout=NOTICED_S)
    try:
        connection.request(method, "/api/v1/health")
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body else {}
    finally:
        connection.close()


def until(server: ProcessServer, wanted: str) -> tuple[int, dict[str, object]]:
    """The first answer with this status in it."""
    deadline = time.monotonic() + NOTICED_S
    status, document = ask(server)
    while document["status"] != wanted:
        assert time.monotonic() < deadline, f"the bus is not {wanted}: {document}"
        time.sleep(0.05)
        status, document = ask(server)
    return status, document


def states(document: dict[str, object]) -> list[str]:
    brokers = document["brokers"]
    assert isinstance(brokers, list)
    return [broker["state"] for broker in brokers]


def test_health_names_the_broker_that_is_gone_and_fails_only_when_all_are(tmp_path: Path) -> None:
    """R3."""
    with process_server(tmp_path / "data", restart_ms=RESTART_MS) as server:
        assert states(ask(server)[1]) == ["available"] * BROKERS

        server.kill_broker(2)
        status, document = until(server, "degraded")

        assert status == 200
        assert states(document) == ["available", "available", "unavailable", "available"]
        assert "broker-2 is unavailable" in str(document["reasons"])

        for index in (0, 1, 3):
            server.kill_broker(index)
        status, document = until(server, "unavailable")

        assert status == 503
        assert states(document) == ["unavailable"] * BROKERS
        assert ask(server, "HEAD") == (503, {})
