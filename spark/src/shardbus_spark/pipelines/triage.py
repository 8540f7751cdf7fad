"""Triage: dead letters in groups, as a report that is made once or again and again (P7).

Letters are browsed: nothing is claimed, and a report that was cut off is begun again. Spark runs
in a process of its own for each report, so that a pipeline that waits needs no Java.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from typing import Final, final

from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import ENDS_WITH_STDIN, Run
from shardbus_spark.pipelines.events import say
from shardbus_spark.pipelines.selection import check_where
from shardbus_spark.pipelines.targets import check_writable, table_path
from shardbus_spark.tables.files import OBJECT_SCHEMES, Files, files_at
from shardbus_spark.triage.job import Job
from shardbus_spark.triage.shelf import Shelf, name_of

PROGRAM: Final = (sys.executable, "-m", "shardbus_spark.triage", ENDS_WITH_STDIN)


def run(run: Run) -> bool:
    """Whether the only report was made; false if it was stopped."""
    # Whatever is cut off is begun again.
    run.stopping.ends_at_once = True
    say({"event": "starting"})
    definition = run.definition
    reporting = Reporting(definition, Shelf(_files_of(definition)))
    say({"event": "running"})
    while not run.stopping.told.wait(reporting.due_s(datetime.now(UTC))):
        reporting.make(datetime.now(UTC))
        if definition.flag("once"):
            return True
    return False


def check(definition: Definition) -> None:
    """OptionError for a condition that cannot be used."""
    check_where(definition)


@final
class Reporting:
    """Makes reports; it knows when the next one is due from those that are there."""

    def __init__(self, definition: Definition, shelf: Shelf) -> None:
        self._definition = definition
        self._shelf = shelf
        self._made = 0

    def due_s(self, now: datetime) -> float:
        """How long to wait for the next report."""
        if self._definition.flag("once"):
            return 0.0
        last = self._shelf.newest(self._job("").selection)
        if last is None:
            return 0.0
        interval_s = self._definition.number("interval_ms") / 1000
        # A clock that was set back does not postpone it.
        return min(max(interval_s - (now - last).total_seconds(), 0.0), interval_s)

    def make(self, now: datetime) -> None:
        """Make one report, and remove those that are too many."""
        started_s = time.monotonic()
        name, reports_max = name_of(now), self._definition.number("reports_max")
        self._shelf.clean(reports_max)
        self._shelf.begin(name)
        letters, groups = _made(self._job(self._shelf.place(name)))
        self._shelf.clean(reports_max)
        self._made += 1
        spent_s = time.monotonic() - started_s
        say({"event": "report", "name": name, "letters": letters, "groups": groups})
        say(
            {
                "event": "progress",
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "batch": self._made,
                "rows": letters,
                "rows_total": letters,
                "rows_per_s": round(letters / spent_s, 1),
                "backlog": 0,
                "batch_ms": round(spent_s * 1000),
            }
        )

    def _job(self, out: str) -> Job:
        definition = self._definition
        named = definition.text("entities").split(",")
        return Job(
            tuple(filter(None, named)) or (definition.entity,),
            out,
            definition.text("where"),
            definition.text("filters"),
            definition.spark_master,
        )


def _files_of(definition: Definition) -> Files:
    """Where the reports are; OptionError when nothing can be written there."""
    files = files_at(table_path(definition))
    if files is None:
        raise OptionError(
            f"path is {definition.path}; reports need a directory that all nodes share, or an "
            f"object store ({', '.join(OBJECT_SCHEMES)})"
        )
    check_writable(files, definition)
    return files


def _made(job: Job) -> tuple[int, int]:
    """The numbers of letters and of groups in a report, when another process has made it."""
    with tempfile.TemporaryFile() as file:
        file.write(job.to_text().encode())
        file.seek(0)
        # It ends with its standard input, and so with this process; its log is that of this one.
        with subprocess.Popen(
            [*PROGRAM, f"/dev/fd/{file.fileno()}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[file.fileno()],
        ) as process:
            assert process.stdout is not None
            said = [event for line in process.stdout if (event := _event_in(line))]
    for event in said:
        if event.get("event") == "failed":
            raise ShardbusError(str(event.get("error")))
        if event.get("event") == "report":
            return int(str(event["letters"])), int(str(event["groups"]))
    raise ShardbusError(f"Spark ended with code {process.returncode}: see the log")


def _event_in(line: bytes) -> dict[str, object]:
    """Empty for a line that is no event, such as one of Java."""
    try:
        found: object = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
