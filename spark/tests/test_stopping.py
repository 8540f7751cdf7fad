"""A capture on real Spark that is stopped within a batch and started again (P4, P9, R31)."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet
import pytest
from spark.tests.bus import running_bus
from spark.tests.test_capture import ENTITIES, Pipeline

log = logging.getLogger(__name__)

COUNT: Final = 200


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_a_capture_that_is_stopped_within_a_batch_has_every_message_once(tmp_path: Path) -> None:
    """P4, P9, R31: a stop ends the driver, whatever it does, and the batch keeps its claims; a
    start runs it again; the last stop finishes, and nothing is claimed any more.
    """
    ids = [f"{number:06}" for number in range(COUNT)]
    with running_bus(tmp_path, ENTITIES) as bus:
        bus.send("orders", [{"message_id": name, "body": name} for name in ids])
        pipeline = Pipeline(bus, "orders")
        pipeline.create(interval_ms=0, rows_max=COUNT)
        pipeline.do("start")
        pipeline.until(lambda found: pipeline.claimed() > 0)
        driver, began_s = pipeline.driver(), time.monotonic()
        pipeline.do("stop")
        pipeline.until(lambda found: found["state"] == "stopped")
        log.info("the stop took %.1f s", time.monotonic() - began_s)
        assert not _is_running(driver)
        assert pipeline.claimed() > 0, "the batch was over before the stop"

        pipeline.do("start")
        pipeline.until_drained()
        pipeline.finish()
        ended = pipeline.until(lambda found: found["state"] == "stopped")
        assert (ended["last_error"], pipeline.claimed()) == ("", 0)
        # Without claims nothing has to be abandoned.
        pipeline.delete()

    captured = tmp_path / "data" / "captured" / "orders"
    found = [
        str(name)
        for file in captured.glob("[!_]*/**/*.parquet")
        for name in parquet.ParquetFile(file).read(columns=["message_id"])["message_id"].to_pylist()
    ]
    assert sorted(found) == ids


def _is_running(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False
