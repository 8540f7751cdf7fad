"""The driver of a pipeline, whose definition is in the directory of its job, to be killed."""

import json
import os
import sys
from pathlib import Path

from spark.tests.job import Job, job_from

from shardbus_spark.pipelines.driver import main


def run(job: Job) -> int:
    place = Path(job.directory)
    members = json.loads((place / "definition.json").read_text("utf-8"))
    running = place / "running.json"
    running.write_text(json.dumps({**members, "spark_master": job.master}), "utf-8")
    os.environ["SHARDBUS_FLIGHT_URL"] = job.endpoint
    return main([str(running)])


if __name__ == "__main__":
    sys.exit(run(job_from(sys.argv)))
