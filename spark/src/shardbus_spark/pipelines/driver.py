"""Runs one definition until it is done or told to stop.

The first SIGTERM or SIGINT ends the query after its batch, completes what was captured and exits
with 0; so does a pipeline that has finished, whose last event is `finished`. A failure is reported
as an event and exits with 1, an invalid definition with 2. With `--ends-with-stdin` the process
ends at once when its standard input does: the next start continues from there. With `--finish` it
only completes the work of an earlier process. SIGUSR1 ends the query within its batch, which the
next start runs again. With `--check` nothing is run: the definition is read from the standard
input, and mistakes in its texts are reported that can be found without Spark.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Final, final

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import (
    FILE_BYTES_MAX,
    Definition,
    definition_from,
    load_definition,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USAGE: Final = (
    "usage: python -m shardbus_spark.pipelines [--ends-with-stdin] [--finish] DEFINITION.json\n"
    "       python -m shardbus_spark.pipelines --check < DEFINITION.json\n"
)
ENDS_WITH_STDIN: Final = "--ends-with-stdin"
FINISH: Final = "--finish"
CHECK: Final = "--check"
# The address and the credential come from the environment: every user of the machine can read
# command lines, and users copy definitions.
VARIABLES: Final[dict[str, str]] = {
    "SHARDBUS_FLIGHT_URL": "endpoint",
    "SHARDBUS_TOKEN": "token",
    "SHARDBUS_CONNECTION_STRING": "connectionString",
    "SHARDBUS_TLS_CA": "tlsCa",
}
# The token for the entity that a pipeline sends to; without it, the credential of the entity that
# the pipeline reads is used for both.
TARGET_TOKEN: Final = "SHARDBUS_TARGET_TOKEN"
_OPTIONS: Final = (ENDS_WITH_STDIN, FINISH)
# The tokens for further entities that a pipeline reads: a JSON object of tokens by entity.
ENTITY_TOKENS: Final = "SHARDBUS_ENTITY_TOKENS"
# Settings of Spark that the operator of the bus gives to all pipelines: a JSON list of NAME=VALUE.
SPARK_CONF: Final = "SHARDBUS_SPARK_CONF"
AZURE_KEY: Final = "AZURE_STORAGE_ACCOUNT_KEY"
_LOCAL: Final = re.compile(r"local\[(\d+)")


@final
class Stopping:
    """Whether the process was told to stop."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.ends_at_once = False
        self.is_cut = False

    def listen(self) -> None:
        """Handle signals from now on."""
        signal.signal(signal.SIGTERM, self._hear)
        signal.signal(signal.SIGINT, self._hear)
        if sys.platform != "win32":
            signal.signal(signal.SIGUSR1, self._hear_cut)

    def _hear_cut(self, number: int, frame: FrameType | None) -> None:
        self.is_cut = True
        self._hear(number, frame)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.told.set()
        if self.ends_at_once:
            os._exit(0)


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    _give_up_real_time()
    if list(arguments) == [CHECK]:
        return _check(sys.stdin.buffer.read(FILE_BYTES_MAX + 1))
    files = [argument for argument in arguments if argument not in _OPTIONS]
    if len(files) != 1 or files[0].startswith("-"):
        sys.stderr.write(USAGE)
        return 2
    stopping = Stopping()
    stopping.listen()
    if FINISH in arguments:
        stopping.told.set()
    if ENDS_WITH_STDIN in arguments:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    try:
        from shardbus_spark.pipelines.events import error_text, say
    except ImportError as error:
        sys.stderr.write(f"{error}: `pip install 'shardbus-spark'` installs what is missing\n")
        return 2
    try:
        definition = load_definition(Path(files[0]))
        is_finished = _run(definition, os.environ, stopping)
    except OptionError as error:
        say({"event": "failed", "error": error_text(error)})
        return 2
    except Exception as error:  # noqa: BLE001 - Spark's own and Java's; shown to the user
        say({"event": "failed", "error": error_text(error)})
        return 1
    say({"event": "finished" if is_finished else "done"})
    return 0


def _give_up_real_time() -> None:
    """A bus that runs with real-time scheduling passes it on to what it starts: sends are to be
    served before Spark, not beside it.
    """
    if sys.platform == "linux" and os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _check(content: bytes) -> int:
    """The exit code of a check."""
    from shardbus_spark.pipelines.events import error_text, say

    try:
        check_texts(definition_from(content, "the definition"))
    except OptionError as error:
        say({"event": "failed", "error": error_text(error)})
        return 2
    return 0


def access_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The source's options from the environment."""
    return {
        option: environment[variable]
        for variable, option in VARIABLES.items()
        if environment.get(variable)
    }


def target_access_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The options of another entity that results are sent to."""
    token = environment.get(TARGET_TOKEN)
    return {**access_from(environment), **({"token": token} if token else {})}


def entity_tokens_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The tokens of further entities; OptionError when they cannot be read."""
    try:
        found: object = json.loads(environment.get(ENTITY_TOKENS, "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"{ENTITY_TOKENS} must be a JSON object of tokens by entity")
    return {str(entity): str(token) for entity, token in found.items()}


def spark_conf_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark: the operator's, and before them what object stores need; OptionError
    when they cannot be read.
    """
    try:
        found: object = json.loads(environment.get(SPARK_CONF, "[]"))
    except ValueError:
        found = None
    if not isinstance(found, list) or not all("=" in str(one) for one in found):
        raise OptionError(f"{SPARK_CONF} must be a JSON list of settings NAME=VALUE")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    conf = {"spark.hadoop.fs.s3a.endpoint.region": region} if region else {}
    if environment.get("AWS_ENDPOINT_URL"):
        # The keys and the endpoint itself are taken from the environment by Spark.
        conf["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if environment.get(AZURE_KEY):
        # Where the key is, not the key: Hadoop looks it up in the environment of each process.
        conf["spark.hadoop.fs.azure.account.key"] = f"${{env.{AZURE_KEY}}}"
    for one in found:
        name, _, value = str(one).partition("=")
        conf[name.strip()] = value.strip()
    return conf


@final
@dataclass(frozen=True, slots=True)
class Run:
    """A running definition. `access` has the options for address and credential of the entity that
    it reads, `target_access` those of the entity that it sends to, and `entity_tokens` the tokens
    of further entities that it reads. `spark_conf` are settings of Spark.
    """

    definition: Definition
    access: Mapping[str, str]
    stopping: Stopping
    target_access: Mapping[str, str] = field(default_factory=dict)
    entity_tokens: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def access_to(self, entity: str) -> Mapping[str, str]:
        """The options for a further entity that is read."""
        token = self.entity_tokens.get(entity)
        return {**self.access, **({"token": token} if token else {})}

    def session(self) -> SparkSession:
        definition = self.definition
        return open_session(
            f"shardbus pipeline {definition.name}",
            definition.spark_master,
            self.spark_conf,
            (definition.path, definition.work),
        )


def open_session(
    name: str, master: str, spark_conf: Mapping[str, str], places: Sequence[str]
) -> SparkSession:
    """A session here, on a cluster, or on a server of Spark Connect. OptionError when it has no
    library for one of the places.
    """
    from pyspark.sql import SparkSession

    import shardbus_spark
    from shardbus_spark.pipelines.targets import check_reachable

    if master.startswith("sc://"):
        spark = SparkSession.builder.remote(master).getOrCreate()
        # Dates and hours of the captured files are in UTC.
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        return spark
    cores = _LOCAL.match(master)
    conf = {"spark_sql_shuffle_partitions": cores.group(1)} if cores else {}
    spark = shardbus_spark.session(name, master=master, **{**conf, **spark_conf})
    for place in places:
        check_reachable(spark, place)
    return spark


def _run(definition: Definition, environment: Mapping[str, str], stopping: Stopping) -> bool:
    """Whether everything is done. The module with the name of the kind runs it."""
    run: Callable[[Run], bool] = _kind_of(definition).run
    check_texts(definition)
    access, target_access = access_from(environment), target_access_from(environment)
    tokens = entity_tokens_from(environment)
    conf = spark_conf_from(environment)
    return run(Run(definition, access, stopping, target_access, tokens, conf))


def check_texts(definition: Definition) -> None:
    """OptionError for a text of the definition that cannot be used, found without Spark."""
    check: Callable[[Definition], None] | None = getattr(_kind_of(definition), "check", None)
    if check is not None:
        check(definition)


def _kind_of(definition: Definition) -> ModuleType:
    return importlib.import_module(f"{__package__}.{definition.kind}")


def end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)
