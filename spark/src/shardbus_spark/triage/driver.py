"""Runs one triage: reads dead letters, writes them with their groups, the page and the report.

Everything goes to the directory or URL `out` of the job: `letters` (Parquet, a row for each
letter), `report.html`, and last `report.json`: where it is, everything is.
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
from shardbus_spark.pipelines.driver import (
    ENDS_WITH_STDIN,
    access_from,
    end_with_stdin,
    open_session,
    spark_conf_from,
)
from shardbus_spark.triage.job import Job, job_in

USAGE: Final = "usage: python -m shardbus_spark.triage [--ends-with-stdin] JOB.json\n"
LETTERS: Final = "letters"
PAGE: Final = "report.html"
REPORT: Final = "report.json"


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
        letters, groups = _run(job_in(Path(files[0])))
    except OptionError as error:
        say({"event": "failed", "error": error_text(error)})
        return 2
    except Exception as error:  # noqa: BLE001 - Spark's own and Java's; shown to the user
        say({"event": "failed", "error": error_text(error)})
        return 1
    say({"event": "report", "letters": letters, "groups": groups})
    say({"event": "finished"})
    return 0


def _run(job: Job) -> tuple[int, int]:
    """How many letters there are, and how many groups."""
    from shardbus_spark.tables.files import files_at
    from shardbus_spark.triage.grouping import letters_of
    from shardbus_spark.triage.page import page_of
    from shardbus_spark.triage.report import report_of

    out = files_at(job.out)
    if out is None:
        raise OptionError(f"{job.out} is neither a directory nor in a known object store")
    # A report of before would be about other letters than those that are written now.
    out.remove([REPORT])
    spark = open_session(
        "shardbus triage", job.spark_master, spark_conf_from(os.environ), [job.out]
    )
    try:
        kept = f"{out.location}/{LETTERS}"
        # Read once, so that the report and later work on a group are about the same letters.
        letters_of(spark, access_from(os.environ), job).write.mode("overwrite").parquet(kept)
        report = report_of(spark.read.parquet(kept), job.entities, datetime.now(UTC))
        report["selection"] = job.selection
        for name, text in ((PAGE, page_of(report)), (REPORT, json.dumps(report))):
            known = out.read(name)
            out.replace(name, text.encode(), "" if known is None else known.version)
    finally:
        spark.stop()
    return report["letters"], report["group_count"]
