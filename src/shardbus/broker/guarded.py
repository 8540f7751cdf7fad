"""Calls back independent recipients: a failure of one does not affect the others."""
# Compiled by mypyc.

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


def guarded(callback: Callable[[], None]) -> None:
    """Call a function; a failure is logged, and does not affect the next call."""
    try:
        callback()
    except Exception:
        log.exception("a callback failed")
