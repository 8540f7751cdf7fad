"""Pipelines: ready-made Spark jobs on the bus, each run by a definition.

`python -m shardbus_spark.pipelines DEFINITION.json` runs one and reports events on standard output,
a line of JSON for each; `capture` takes an entity to files, `replay` sends them back. The bus
stores definitions and runs this program for them; the program also runs without that.
"""
