"""A byte changes in the log between a crash and the next start (docs/internals/repair.md)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.client import HttpTransport
from shardbus.app.cli.sas import parse_connection_string
from tests.support.queues import create_queue
from tests.support.server import Server

WAIT_S: Final = 30.0


def api(server: Server) -> ApiClient:
    endpoint = f"http://{server.host}:{server.http_port}"
    credential = parse_connection_string(server.connection_string).credential
    return ApiClient(HttpTransport(endpoint), endpoint, credential, clock=time.time)


def test_lost_commits_are_told_and_what_is_left_is_served(tmp_path: Path) -> None:
    """R28."""
    server = Server(tmp_path / "data", "--brokers", "1")
    try:
        server.start()
        create_queue(server, "orders")
        for number in range(20):
            body: Document = {"messages": [{"body": f"{number:02}" * 4_000}]}
            api(server).post("entities/orders/messages", body)
        server.kill()
        [wal] = server.data_dir.glob("broker-*.db-wal")
        data = bytearray(wal.read_bytes())
        data[len(data) // 2] ^= 1
        wal.write_bytes(data)

        server.start()

        deadline = time.monotonic() + WAIT_S
        while "lost stored commits" not in (told := str(api(server).get("health")["reasons"])):
            assert time.monotonic() < deadline, told
            time.sleep(0.05)
        body = {"count": 100, "mode": "receive_and_delete"}
        left = api(server).post("entities/orders/messages/receive", body)["messages"]
        assert isinstance(left, list)
        assert 0 < len(left) < 20
    finally:
        server.close()
