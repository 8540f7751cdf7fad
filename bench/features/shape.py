"""The two shapes a queue is measured in."""

from enum import StrEnum


class Shape(StrEnum):
    """One fragment, or the sixteen of a partitioned queue."""

    CONVENTIONAL = "conventional"
    PARTITIONED = "partitioned"

    @property
    def option(self) -> str:
        return "--partitioning" if self is Shape.PARTITIONED else "--no-partitioning"
