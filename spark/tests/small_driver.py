"""What Spark does with a stream and its checkpoint, in the same order and without a Java: a driver
that starts in a moment can be killed often.
"""

import json
import random
import sys
from pathlib import Path

from spark.tests.job import Job, job_from
from spark.tests.streams import texts

from shardbus_spark.consuming import ConsumeStream
from shardbus_spark.offsets import Offset
from shardbus_spark.options import read_options


def main(job: Job) -> None:
    given = {"endpoint": job.endpoint, "entity": job.entity, "mode": "consume"}
    limits = {
        "readerName": "killed",
        "maxRowsPerTrigger": str(job.rows_max),
        "inputPartitions": str(random.randint(1, 4)),
    }
    stream = ConsumeStream(read_options({**given, **limits}), ["body"])
    if job.is_once:
        stream.prepareForTriggerAvailableNow()
    for name in ("checkpoint/offsets", "checkpoint/commits", "rows"):
        (Path(job.directory) / name).mkdir(parents=True, exist_ok=True)
    while _batch(stream, Path(job.directory)) or not job.is_once:
        continue


def _batch(stream: ConsumeStream, place: Path) -> bool:
    """Run the next batch, or the last one again that is not committed; False if there is none."""
    offsets, commits = place / "checkpoint" / "offsets", place / "checkpoint" / "commits"
    number = len(list(commits.glob("[0-9]*")))
    start = _offset(offsets / str(number - 1)) if number else stream.initialOffset()
    if not (offsets / str(number)).exists():
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        if end == start:
            return False
        _write(offsets / str(number), end)
        if number:
            stream.commit(start)
    end = _offset(offsets / str(number))
    parts = stream.partitions(start, end)
    rows = [body for part in parts for batch in stream.read(part) for body in texts(batch)]
    if not (place / "rows" / str(number)).exists():
        _write(place / "rows" / str(number), rows)
    _write(commits / str(number), {})
    return True


def _offset(file: Path) -> Offset:
    offset: Offset = json.loads(file.read_text("utf-8"))
    return offset


def _write(file: Path, value: object) -> None:
    made = file.with_name(f".{file.name}")
    made.write_text(json.dumps(value), "utf-8")
    made.replace(file)


if __name__ == "__main__":
    main(job_from(sys.argv))
