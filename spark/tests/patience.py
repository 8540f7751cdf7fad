"""Queries on a machine that may be busy."""

from collections.abc import Callable
from typing import Final

from pyspark.errors import PySparkException

ATTEMPTS: Final = 6
# Spark gives the Python of a streaming source ten seconds to start, and no setting changes that.
SLOW: Final = "Python worker failed to connect back"


def patiently(run: Callable[[], None]) -> None:
    """Run it; again, a few times, when the machine was too slow to begin."""
    for _ in range(ATTEMPTS - 1):
        try:
            run()
            return
        except PySparkException as error:
            if SLOW not in str(error):
                raise
    run()
