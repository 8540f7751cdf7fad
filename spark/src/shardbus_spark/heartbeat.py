"""A driver is heard of while a batch takes its time, whatever goes wrong in between."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from shardbus_spark.errors import ReaderDropped, ReaderLost

log = logging.getLogger(__name__)

KEEPER: Final = "shardbus reader"
# With a call of 3 s, a lease of 10 s, the shortest, outlasts one beat that failed.
KEEP_S: Final = 3.0
# While beats fail they come sooner, and one in so many is told.
FAILED_S: Final = 1.0
TOLD_EVERY: Final = 30


def keep_heard(keep: Callable[[], None], has_ended: Callable[[float], bool]) -> None:
    """Beat until the query has ended, or the bus says that the reader is not this query's any more.

    `has_ended` waits so many seconds for the end of the query and says whether it has come.

    Whatever else fails may pass: a beat that was left out is a claim that may be lost.
    """
    failures = 0
    while not has_ended(FAILED_S if failures else KEEP_S):
        try:
            keep()
        except (ReaderLost, ReaderDropped) as error:
            # The next thing that the query asks for is refused in the same words.
            log.error("the reader is not ours any more: %s", error)
            return
        except Exception as error:  # noqa: BLE001 - the next beat may be heard
            if failures % TOLD_EVERY == 0:
                log.warning("the reader is not heard of, and tries again: %r", error)
            failures += 1
            continue
        if failures:
            log.warning("the reader is heard of again, after %d failures", failures)
        failures = 0
