"""Starts the analysis in Spark, in a separate process, and reads its results."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.failures import CommandError, NotFound, Refused, ServerUnavailable, Usage
from shardbus.app.cli.missing import SUBSCRIPTION, TOPIC
from shardbus.app.pipelines.driver_inputs import missing_libraries, without_settings
from shardbus.app.pipelines.letter_reports import PAGE, REPORT
from shardbus.app.pipelines.triage import ENTITIES_MAX
from shardbus.core import errors as core_errors
from shardbus.rules.filter import SqlFilter
from shardbus.rules.portable import portable_filter

PROGRAM: Final = (sys.executable, "-m", "shardbus_spark.triage", "--ends-with-stdin")
TOKEN_S: Final = 6 * 3600
VERSION: Final = 1
_DEAD_LETTERS: Final = "/$deadletterqueue"
_LOG_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Analysis:
    """What to read, where the bulk lane is, and where Spark runs."""

    entities: Sequence[str]
    lane: str
    access: ClientAccess
    spark_master: str = ""
    filters: str = ""

    def run(self, out: Path) -> Document:
        """The report; its page and all letters with their groups are in `out`."""
        missing = " and ".join(missing_libraries())
        if missing:
            raise Usage(
                f"{missing} must be installed beside the command: `pip install 'shardbus[spark]'`"
            )
        job = out / "job.json"
        job.write_text(json.dumps(self._job(out)), encoding="utf-8")
        with (out / "log").open("w+", encoding="utf-8", errors="replace") as log:
            # When this command ends for any reason, the standard input of Spark closes, and Spark
            # ends too.
            with subprocess.Popen(
                [*PROGRAM, str(job)],
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            ) as process:
                assert process.stdout is not None
                said = process.stdout.read().decode("utf-8", "replace")
            if process.returncode:
                log.seek(0)
                raise _failure(said, log.read(), process.returncode)
        return read_report(out)

    def _job(self, out: Path) -> Document:
        return {
            "entities": list(self.entities),
            "out": str(out.absolute()),
            "spark_master": self.spark_master,
            "filters": self.filters,
        }

    def _environment(self) -> dict[str, str]:
        """The environment without the settings of commands, which may contain a key, and with a
        token for some hours.
        """
        kept = without_settings(os.environ)
        host = urlsplit(self.lane).hostname or "localhost"
        expires_at_s = int(time.time()) + TOKEN_S
        token = self.access.credential.token_for(f"sb://{host}/", expires_at_s=expires_at_s)
        kept |= {"SHARDBUS_FLIGHT_URL": self.lane, "SHARDBUS_TOKEN": token}
        if self.access.ca_file:
            kept["SHARDBUS_TLS_CA"] = self.access.ca_file
        return kept


def filters_of(rule: str) -> str:
    """A filter in the rule language, as the analysis reads it; Usage for an invalid one."""
    if not rule.strip():
        return ""
    try:
        return json.dumps([[portable_filter(SqlFilter(rule.strip()))]])
    except core_errors.Refused as refusal:
        raise Usage(f"--rule cannot be used: {refusal.message}") from refusal


def entities_of(api: ApiClient, path: str) -> list[str]:
    """The queue or subscription, or all subscriptions of a topic, as the bus spells them."""
    if path.lower().endswith(_DEAD_LETTERS):
        path = path[: -len(_DEAD_LETTERS)]
    entity = api.get(f"entities/{path}")
    name = str(entity.get("name"))
    if entity.get("kind") != TOPIC:
        return [name]
    found = [f"{name}/Subscriptions/{each}" for each in api.names(SUBSCRIPTION, name)]
    if not found:
        raise NotFound(f"the topic {name} has no subscriptions, and so no dead letters")
    if len(found) > ENTITIES_MAX:
        raise Usage(
            f"the topic {name} has {len(found)} subscriptions; at most {ENTITIES_MAX} can be read "
            "together: choose one with --subscription"
        )
    return found


def read_report(out: Path) -> Document:
    """The report in a directory of results."""
    file = out / REPORT
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Usage(
            f"{file} cannot be read ({error}): name a directory that an earlier --out has written"
        ) from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise Usage(
            f"{file} is not a report of this version: run the command without --from, and with "
            f"--out {out}"
        )
    return document


def page_in(out: Path) -> str:
    """The page in a directory of results."""
    try:
        return (out / PAGE).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise Usage(f"{out / PAGE} cannot be read: {error}") from error


def kept_report(api: ApiClient, out: Path, entities: Sequence[str]) -> Document:
    """An earlier report, if it is still about these entities.

    An entity that was created again numbers other messages from the beginning.
    """
    report = read_report(out)
    known = report.get("entities")
    for name in entities:
        if not isinstance(known, list) or name not in known:
            raise Usage(
                f"the report in {out} is not about {name}: leave out --from, or name the report of "
                f"{name}"
            )
        if str(api.get(f"entities/{name}").get("created_at")) > str(report.get("made_at")):
            raise Refused(
                f"{name} was created after the report in {out}, which is about other messages: "
                "leave out --from, and give --out for a report of the present ones"
            )
    return report


def numbers_of(letters: Path, group: str) -> Iterator[int]:
    """The sequence numbers of the letters of a group, in order."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(
        letters, columns=["sequence_number"], filters=[("group", "=", group)]
    )
    yield from sorted(int(str(number)) for number in table.column("sequence_number"))


def lane_of(api: ApiClient, access: ClientAccess) -> str:
    """The address of the bulk lane, on the host of the API."""
    system = api.get("system")
    port = system.get("flight_port")
    if not isinstance(port, int):
        raise ServerUnavailable(
            "the bulk lane of the bus is off: start it with --flight-port, or name another "
            "with --flight-url"
        )
    parts = urlsplit(access.endpoint)
    host = parts.hostname or "localhost"
    shown = f"[{host}]" if ":" in host else host
    return f"{'grpc+tls' if parts.scheme == 'https' else 'grpc'}://{shown}:{port}"


@contextmanager
def workplace(given: str | None) -> Iterator[Path]:
    """The directory of the results: the given one, which is created if necessary, or a temporary
    one.
    """
    if given is None:
        with tempfile.TemporaryDirectory(prefix="shardbus-triage-") as directory:
            yield Path(directory)
        return
    place = Path(given)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Usage(f"--out {given} cannot be made: {error.strerror}") from error
    yield place


def _failure(said: str, log: str, code: int) -> CommandError:
    """The driver's own words, or else the last line of its log."""
    for line in reversed(said.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "failed":
            return Refused(f"the dead letters could not be read: {event.get('error')}")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1][-_LOG_CHARACTERS_MAX:] if lines else "it said nothing"
    return CommandError(f"Spark ended with code {code}: {last}")
