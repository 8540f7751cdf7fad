"""Runs one triage: reads dead letters, writes them with their groups, the report and the page.

Everything goes to the directory `out` of the job: `letters` (Parquet, a row for each letter),
`report.json` and `report.html`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.driver import ENDS_WITH_STDIN, access_from, end_with_stdin

USAGE: Final = "usage: python -m shardbus_spark.triage [--ends-with-stdin] JOB.json\n"
_MEMBERS: Final = frozenset({"entities", "filters", "out", "spark_master"})


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 2 for an invalid job, 1 for a job that failed."""
    files = [argument for argument in arguments if argument != ENDS_WITH_STDIN]
    if len(files) != 1 or files[0].startswith("-"):
        sys.stderr.write(USAGE)
        return 2
    if ENDS_WITH_STDIN in arguments:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    from shardbus_spark.pipelines.events import error_text, say

    try:
        _run(_job(Path(files[0])))
    except OptionError as error:
        say({"event": "failed", "error": error_text(error)})
        return 2
    except Exception as error:  # noqa: BLE001 - Spark's own and Java's; shown to the user
        say({"event": "failed", "error": error_text(error)})
        return 1
    say({"event": "finished"})
    return 0


def _job(file: Path) -> dict[str, object]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"the job {file} cannot be read: {error}") from error
    if not isinstance(found, dict) or not {"entities", "out"} <= found.keys() <= _MEMBERS:
        raise OptionError(f"a job has the members {', '.join(sorted(_MEMBERS))}")
    if not found["entities"]:
        raise OptionError("entities is empty: name a queue or a subscription")
    return found


def _run(job: dict[str, object]) -> None:
    import shardbus_spark
    from shardbus_spark.triage.grouping import letters_of
    from shardbus_spark.triage.page import page_of
    from shardbus_spark.triage.report import report_of

    entities = job["entities"]
    assert isinstance(entities, list)
    out = Path(str(job["out"]))
    spark = shardbus_spark.session("shardbus triage", master=str(job.get("spark_master") or ""))
    kept = str(out / "letters")
    # Read once, so that the report and later work on a group are about the same letters.
    access, filters = access_from(os.environ), str(job.get("filters") or "")
    letters_of(spark, access, entities, filters).write.mode("overwrite").parquet(kept)
    letters = spark.read.parquet(kept)
    report = report_of(letters, entities, datetime.now(UTC))
    (out / "report.html").write_text(page_of(report), encoding="utf-8")
    (out / "report.json").write_text(json.dumps(report), encoding="utf-8")
    spark.stop()
