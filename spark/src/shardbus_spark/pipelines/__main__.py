"""`python -m shardbus_spark.pipelines DEFINITION.json`."""

import sys

from shardbus_spark.pipelines.driver import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
