"""Pipelines as things of the namespace: their definitions, and the drivers that run them.

`shelf` keeps definitions in the data directory, `keeper` keeps the driver of one running, and
`pipelines` is what the JSON API asks.
The drivers are processes of the connector's distribution: nothing here may import it.
"""
