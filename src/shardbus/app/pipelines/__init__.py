"""Pipelines of the namespace: their definitions, and the drivers that run them.

`shelf` stores definitions in the data directory, `driver_keeper` keeps the driver of one running,
and `pipelines` serves the JSON API. The drivers are processes of the connector's distribution,
which nothing here may import.
"""
