"""Runs one definition until it is done or told to stop.

A first SIGTERM or SIGINT ends the query when its batch has ended, completes what was captured and
ends with 0; so does one that has done all there was, and its last event is `finished`. A failure is
said as an event and ends with 1, a definition that cannot be used with 2. With `--ends-with-stdin`
the process ends at once, in whatever it is, when its standard input does: the next start goes on
from there.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, final

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import Capture, Definition, Replay, load_definition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from shardbus_spark.pipelines.events import Teller

USAGE: Final = "usage: python -m shardbus_spark.pipelines [--ends-with-stdin] DEFINITION.json\n"
ENDS_WITH_STDIN: Final = "--ends-with-stdin"
# Where the bus is and what opens it comes from here, and never from the command line, which
# everybody on the machine can read, or from the definition, which people copy.
VARIABLES: Final[dict[str, str]] = {
    "SHARDBUS_FLIGHT_URL": "endpoint",
    "SHARDBUS_TOKEN": "token",
    "SHARDBUS_CONNECTION_STRING": "connectionString",
    "SHARDBUS_TLS_CA": "tlsCa",
}
BATCH_END_S: Final = 15.0
LAST_WORD_S: Final = 5.0
_LOCAL: Final = re.compile(r"local\[(\d+)")
_LOOK_S: Final = 1
_POLL_S: Final = 0.2


@final
class Stopping:
    """Whether somebody has told us to stop."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.ends_at_once = False

    def listen(self) -> None:
        """From now on, to signals."""
        signal.signal(signal.SIGTERM, self._hear)
        signal.signal(signal.SIGINT, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.told.set()
        if self.ends_at_once:
            os._exit(0)


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    files = [argument for argument in arguments if argument != ENDS_WITH_STDIN]
    if len(files) != 1 or files[0].startswith("-"):
        sys.stderr.write(USAGE)
        return 2
    stopping = Stopping()
    stopping.listen()
    if ENDS_WITH_STDIN in arguments:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        from shardbus_spark.pipelines.events import error_text, say
    except ImportError as error:
        sys.stderr.write(f"{error}: `pip install 'shardbus-spark'` brings what is missing\n")
        return 2
    try:
        definition = load_definition(Path(files[0]))
        is_finished = _run(definition, access_from(os.environ), stopping)
    except OptionError as error:
        say({"event": "failed", "error": error_text(error)})
        return 2
    except Exception as error:  # noqa: BLE001 - Spark's own, and Java's; said to whoever runs us
        say({"event": "failed", "error": error_text(error)})
        return 1
    say({"event": "finished" if is_finished else "done"})
    return 0


def access_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The source's options that the environment gives."""
    return {
        option: environment[variable]
        for variable, option in VARIABLES.items()
        if environment.get(variable)
    }


def _run(definition: Definition, access: Mapping[str, str], stopping: Stopping) -> bool:
    """Whether all that there was to do is done."""
    if isinstance(definition, Replay):
        return _run_replay(definition, access, stopping)
    return _run_capture(definition, access, stopping)


def _run_replay(definition: Replay, access: Mapping[str, str], stopping: Stopping) -> bool:
    from shardbus_spark.pipelines.events import say
    from shardbus_spark.pipelines.replay import Replaying

    # Until rows are sent there is nothing that should be ended well.
    stopping.ends_at_once = True
    say({"event": "starting"})
    spark = _session(definition)
    try:
        say({"event": "running"})
        replaying = Replaying(spark, definition, access, stopping.told)
        plan = replaying.prepare()
        stopping.ends_at_once = False
        return plan is None or replaying.send(plan)
    finally:
        spark.stop()


def _run_capture(definition: Capture, access: Mapping[str, str], stopping: Stopping) -> bool:
    from shardbus_spark.pipelines.capture import check_path, finish_capture, start_capture
    from shardbus_spark.pipelines.compacting import compacting
    from shardbus_spark.pipelines.events import Teller, say

    check_path(definition)
    # Java takes its time to start, and one that has never begun has set nothing aside.
    stopping.ends_at_once = not _has_begun(definition)
    say({"event": "starting"})
    spark = _session(definition)
    stopping.ends_at_once = False
    teller = Teller()
    spark.streams.addListener(teller)
    try:
        if not stopping.told.is_set():
            with compacting(definition, say):
                query = start_capture(spark, definition, access)
                say({"event": "running"})
                _follow(query, stopping.told)
        is_told = stopping.told.is_set()
        if is_told:
            say({"event": "stopping"})
            last = finish_capture(spark, definition, access)
            if last is not None:
                last.awaitTermination()
        _wait_for_the_last_word(teller, definition)
    finally:
        spark.stop()
    return not is_told


def _has_begun(definition: Capture) -> bool:
    """Whether a batch may be under way, as far as this machine can see."""
    from shardbus_spark.tables.form import local_directory
    from shardbus_spark.tables.layout import CHECKPOINT

    directory = local_directory(definition.path)
    return directory is None or any((directory / CHECKPOINT / "offsets").glob("[0-9]*"))


def _session(definition: Definition) -> SparkSession:
    from pyspark.sql import SparkSession

    import shardbus_spark

    if definition.spark_master.startswith("sc://"):
        spark = SparkSession.builder.remote(definition.spark_master).getOrCreate()
        # Dates and hours of the captured files are in UTC.
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        return spark
    cores = _LOCAL.match(definition.spark_master)
    conf = {"spark_sql_shuffle_partitions": cores.group(1)} if cores else {}
    return shardbus_spark.session(
        f"shardbus pipeline {definition.name}", master=definition.spark_master, **conf
    )


def _follow(query: StreamingQuery, stopping: threading.Event) -> None:
    """Until the query has ended, or is told to: then when its batch has."""
    while not query.awaitTermination(_LOOK_S):
        if stopping.is_set():
            deadline_s = time.monotonic() + BATCH_END_S
            while query.status["isTriggerActive"] and time.monotonic() < deadline_s:
                time.sleep(_POLL_S)
            query.stop()
            return


def _wait_for_the_last_word(teller: Teller, definition: Capture) -> None:
    if definition.is_once or not definition.is_keeping:
        teller.wait_ended(LAST_WORD_S)


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)
