"""A group of processes that get a processor when nobody else wants it (Linux, root)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench.rounds import MeasurementError

_ROOTS: Final = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
_NAME: Final = "shardbus-bench"


@contextmanager
def idle_group(pids: Iterable[int]) -> Iterator[None]:
    """These processes, and what they start, in such a group at the top of the hierarchy: below
    another one they would compete with the kernel's own threads. MeasurementError without the
    right to make it.
    """
    group = _root() / _NAME
    members = group / "cgroup.procs"
    try:
        group.mkdir(exist_ok=True)
        (group / "cpu.idle").write_text("1", encoding="ascii")
        for pid in pids:
            members.write_text(str(pid), encoding="ascii")
    except OSError as error:
        raise MeasurementError(f"no group of idle processes can be made: {error}") from error
    try:
        yield
    finally:
        for member in members.read_text(encoding="ascii").split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(member, encoding="ascii")
        with suppress(OSError):
            group.rmdir()


def _root() -> Path:
    """Of the first or the second version of control groups, the one with the processors."""
    for root in _ROOTS:
        controllers = root / "cgroup.controllers"
        if (root / "cpu.shares").exists():
            return root
        if controllers.exists() and "cpu" in controllers.read_text(encoding="ascii").split():
            (root / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
            return root
    raise MeasurementError("this system has no control groups for processors")
