"""`python -m shardbus_spark.triage JOB.json`."""

import sys

from shardbus_spark.triage.driver import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
