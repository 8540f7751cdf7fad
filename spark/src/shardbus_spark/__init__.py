"""The Spark connector of Shardbus: sources, sinks and pipelines over the bulk lane.

Nothing of it exists yet but its version; the README of this distribution says what is missing.
It meets the bus on the wire only: nothing here may import `shardbus`.
"""

__version__ = "0.1.0"
