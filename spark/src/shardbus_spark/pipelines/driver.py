"""Runs one definition until it is done or told to stop.

The first SIGTERM or SIGINT ends the query after its batch, completes what was captured and exits
with 0; so does a pipeline that has finished, whose last event is `finished`. A failure is reported
as an event and exits with 1, an invalid definition with 2. With `--ends-with-stdin` the process
ends at once when its standard input does: the next start continues from there.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, final

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import Definition, load_definition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USAGE: Final = "usage: python -m shardbus_spark.pipelines [--ends-with-stdin] DEFINITION.json\n"
ENDS_WITH_STDIN: Final = "--ends-with-stdin"
# Address and credential come from here, and never from the command line, which every user of the
# machine can read, or from the definition, which people copy.
VARIABLES: Final[dict[str, str]] = {
    "SHARDBUS_FLIGHT_URL": "endpoint",
    "SHARDBUS_TOKEN": "token",
    "SHARDBUS_CONNECTION_STRING": "connectionString",
    "SHARDBUS_TLS_CA": "tlsCa",
}
_LOCAL: Final = re.compile(r"local\[(\d+)")


@final
class Stopping:
    """Whether the process was told to stop."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.ends_at_once = False

    def listen(self) -> None:
        """Handle signals from now on."""
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
        threading.Thread(target=end_with_stdin, daemon=True).start()
    try:
        from shardbus_spark.pipelines.events import error_text, say
    except ImportError as error:
        sys.stderr.write(f"{error}: `pip install 'shardbus-spark'` installs what is missing\n")
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
    """The source's options from the environment."""
    return {
        option: environment[variable]
        for variable, option in VARIABLES.items()
        if environment.get(variable)
    }


@final
@dataclass(frozen=True, slots=True)
class Run:
    """A running definition, with the source's options for address and credential."""

    definition: Definition
    access: Mapping[str, str]
    stopping: Stopping

    def session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        import shardbus_spark

        name, master = self.definition.name, self.definition.spark_master
        if master.startswith("sc://"):
            spark = SparkSession.builder.remote(master).getOrCreate()
            # Dates and hours of the captured files are in UTC.
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            return spark
        cores = _LOCAL.match(master)
        conf = {"spark_sql_shuffle_partitions": cores.group(1)} if cores else {}
        return shardbus_spark.session(f"shardbus pipeline {name}", master=master, **conf)


def _run(definition: Definition, access: Mapping[str, str], stopping: Stopping) -> bool:
    """Whether everything is done. A kind is run by the module of its name."""
    kind = importlib.import_module(f"{__package__}.{definition.kind}")
    run: Callable[[Run], bool] = kind.run
    return run(Run(definition, access, stopping))


def end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)
