"""A Spark session on this machine with settings for the bus, all of them measured."""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from shardbus_spark.java import java_home
from shardbus_spark.redaction import REGEX, SETTING

# Four attempts: with only one, a task that meets a restart of the bus would end the query.
ATTEMPTS: Final = 4
DEFAULTS: Final[dict[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    # Rows of 200 KB would make batches for which a small executor has no room.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    SETTING: REGEX,
}


def local_session(
    app_name: str, *, master: str = "", conf: dict[str, object] | None = None
) -> SparkSession:
    """The session of this process, created if there is none yet; `conf` overrides the defaults.

    Names in `conf` without a dot may have underscores for dots: `spark_ui_enabled`.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = os.cpu_count() or 2
    settings: dict[str, bool | float | int | str | None] = {
        **DEFAULTS,
        "spark.sql.shuffle.partitions": str(cores),
    }
    for name, value in (conf or {}).items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        settings[name if "." in name else name.replace("_", ".")] = shown
    builder = SparkSession.builder.appName(app_name).master(master or f"local[{cores},{ATTEMPTS}]")
    return builder.config(map=settings).getOrCreate()
