"""Pipelines: ready-made Spark jobs on the bus, each run by a definition.

`python -m shardbus_spark.pipelines DEFINITION.json` runs one and says how it goes, a line of JSON
for each event on standard output; `capture` takes an entity to files, `replay` sends them back.
The bus keeps definitions and runs this program for them; nothing here needs it to.
"""
