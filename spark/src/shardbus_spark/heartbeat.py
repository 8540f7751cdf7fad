"""Keeps the claims of a driver renewed during long batches, despite failures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from shardbus_spark.errors import ReaderDropped, ReaderLost

log = logging.getLogger(__name__)

KEEPER: Final = "shardbus reader"
# With a call of 3 s, the shortest lease, 10 s, survives one failed beat.
KEEP_S: Final = 3.0
# While beats fail they come sooner, and only some are logged.
FAILED_S: Final = 1.0
TOLD_EVERY: Final = 30


def keep_heard(keep: Callable[[], None], has_ended: Callable[[float], bool]) -> None:
    """Beat until the query has ended, or the bus says that the reader has another owner.

    `has_ended` waits that many seconds for the end of the query and returns whether it has come.

    Any other failure may be temporary: a beat that is left out may lose a claim.
    """
    failures = 0
    while not has_ended(FAILED_S if failures else KEEP_S):
        try:
            keep()
        except (ReaderLost, ReaderDropped) as error:
            # The next request of the query is refused with the same reason.
            log.error("the reader has another owner: %s", error)
            return
        except Exception as error:  # noqa: BLE001 - the next beat may be heard
            if failures % TOLD_EVERY == 0:
                log.warning(
                    "the claims of the reader could not be renewed, and this is tried again: %r",
                    error,
                )
            failures += 1
            continue
        if failures:
            log.warning("the claims of the reader are renewed again, after %d failures", failures)
        failures = 0
