"""Calls back those who have nothing to do with each other: what goes wrong there stays there."""
# Compiled by mypyc.

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


def guarded(callback: Callable[[], None]) -> None:
    """Call somebody back; a failure is logged, and no trouble of those who come next."""
    try:
        callback()
    except Exception:
        log.exception("a callback failed")
