"""Brokers are killed under batches of 1,000 messages over 100 keys, sent with the official SDK."""

import asyncio
import logging
import random
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.processes import process_server
from tests.durability.batch_load import create_queues, under_fire

log = logging.getLogger(__name__)

SEED: Final = 20_261_117
KILLS: Final = 4


@pytest.mark.release
def test_a_batch_is_whole_or_not_there_whichever_broker_dies(tmp_path: Path) -> None:
    """R49: all or none, in the order of each key, and each duplicate dropped once."""
    with process_server(tmp_path / "data", restart_ms=200) as server:
        create_queues(server)
        report = asyncio.run(under_fire(server, KILLS, random.Random(SEED)))

    log.info("%s", report.text())
    report.check()
