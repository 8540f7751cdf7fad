"""How far a capture that keeps its messages is behind, as the bus shows it (P4, P9)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest
from spark.tests.bus import Bus, Document, running_bus

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.sas import Credential

ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true
"""
STEP_S: Final = 300.0
# The numbers of a scrape are kept for a second.
LOOK_S: Final = 1.1
_LAG: Final = re.compile(
    r'^shardbus_reader_lag_messages\{entity="orders",reader="archive",mode="browse",'
    r'fragment="(\d+)"\} (\d+)$',
    re.MULTILINE,
)


def lags(bus: Bus) -> dict[int, int]:
    with urlopen(f"http://127.0.0.1:{bus.server.http_port}/metrics") as response:
        return {int(part): int(lag) for part, lag in _LAG.findall(response.read().decode())}


def until(bus: Bus, is_so: Callable[[dict[int, int]], bool]) -> dict[int, int]:
    deadline_s = time.monotonic() + STEP_S
    found: dict[int, int] = {}
    while time.monotonic() < deadline_s:
        found = lags(bus)
        if is_so(found):
            return found
        time.sleep(LOOK_S)
    raise AssertionError(f"the lag stays {found}\n{bus.server.output[-2000:]}")


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_capture_that_browses_is_behind_by_what_is_sent_while_it_rests(tmp_path: Path) -> None:
    messages: list[Document] = [{"body": str(each)} for each in range(40)]
    with running_bus(tmp_path, ENTITIES) as bus:
        api = ClientAccess(f"http://127.0.0.1:{bus.server.http_port}", Credential(), None).api()
        bus.send("orders", messages)
        api.put("pipelines/archive", {"entity": "orders", "keep": True, "interval_ms": 200})
        assert lags(bus) == {}

        api.post("pipelines/archive/start", {})
        read = until(bus, lambda found: len(found) == 16 and not sum(found.values()))
        api.post("pipelines/archive/stop", {})
        # Driver and bus may both be busy: whoever has not stopped could read on.
        deadline_s = time.monotonic() + STEP_S
        while api.get("pipelines/archive")["state"] != "stopped":
            assert time.monotonic() < deadline_s, "the pipeline does not stop"
            time.sleep(LOOK_S)
        bus.send("orders", messages)
        behind = until(bus, lambda found: sum(found.values()) == len(messages))

        assert set(read) == set(behind) == set(range(16))
