"""Something done in a process that is killed before each of its steps, one after the other."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

STEPS_MAX: Final = 400
# What Python tells of before it does it: the steps between which a crash can come.
_TOLD: Final = frozenset(
    ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "ctypes.dlsym")
)


def killed_before_each_step(root: Path, act: Callable[[], None]) -> Iterator[int]:
    """Run `act` in a process that is killed before its first step below `root`, then before its
    second one, until it ends by itself; yields after each kill, and prepares nothing in between.
    """
    for step in range(STEPS_MAX):
        child = os.fork()
        if child == 0:
            _act_and_exit(root, act, step)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "it failed by itself"
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        yield step
    raise AssertionError(f"more than {STEPS_MAX} steps")


def in_own_process(act: Callable[[], None]) -> None:
    """To its end."""
    child = os.fork()
    if child == 0:
        _exit_after(act)
    assert os.waitpid(child, 0)[1] == 0, "it failed by itself"


def _act_and_exit(root: Path, act: Callable[[], None], step: int) -> None:
    left = step

    def look(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event not in _TOLD or not _is_below(root, event, arguments):
            return
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    sys.addaudithook(look)
    _exit_after(act)


def _exit_after(act: Callable[[], None]) -> None:
    try:
        act()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)


def _is_below(root: Path, event: str, arguments: tuple[object, ...]) -> bool:
    if event == "ctypes.dlsym":
        return True
    named = arguments[0]
    return isinstance(named, str | bytes | os.PathLike) and os.fsdecode(named).startswith(str(root))
