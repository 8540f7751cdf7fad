"""Pipelines: ready-made Spark jobs on the bus, each run by a definition.

`python -m shardbus_spark.pipelines DEFINITION.json` runs one and reports events on standard output,
a line of JSON for each. The module `KIND` of this package does the work of the kind KIND. The bus
stores definitions and runs this program for them; a user can also run it directly.
"""
