"""Waiting for what comes about by itself: for a condition, never for a time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

WAIT_S: Final = 60.0
LOOK_S: Final = 0.02

T = TypeVar("T")


def wait_until(is_so: Callable[[], object], what: str = "", wait_s: float = WAIT_S) -> None:
    """Fail, and name `what` is missing, when it is not so in time."""
    deadline_s = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(LOOK_S)


def wait_for(look: Callable[[], T], is_enough: Callable[[T], bool], wait_s: float = WAIT_S) -> T:
    """What is found when it is enough; fail with what was found last."""
    deadline_s = time.monotonic() + wait_s
    while not is_enough(found := look()):
        assert time.monotonic() < deadline_s, found
        time.sleep(LOOK_S)
    return found
