"""`python -m shardbus_spark.pipelines DEFINITION.json`."""

import sys

from shardbus_spark.pipelines.driver import main
from shardbus_spark.pipelines.priority import give_way

if __name__ == "__main__":
    give_way()
    sys.exit(main(sys.argv[1:]))
