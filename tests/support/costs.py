"""What tests cost: `pytest -p tests.support.costs` prints wall and processor seconds by file.

Processor seconds are those of the test process and of everything that it started. Where they are
far fewer than the wall seconds, a test waits. With `COSTS=FILE` each test adds a line to that file:
the node id, wall seconds and processor seconds, apart by tabs.
"""

import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SPENT: Final[dict[str, list[float]]] = defaultdict(lambda: [0.0, 0.0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    wall_s, processor_s = time.monotonic(), _PROCESSOR.seconds()
    result = yield
    wall_s, processor_s = time.monotonic() - wall_s, _PROCESSOR.seconds() - processor_s
    spent = _SPENT[item.nodeid.partition("::")[0]]
    spent[0] += wall_s
    spent[1] += processor_s
    if file := os.environ.get("COSTS"):
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(f"{item.nodeid}\t{wall_s:.2f}\t{processor_s:.2f}\n")
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("wall and processor seconds by file")
    for file, (wall_s, processor_s) in sorted(_SPENT.items(), key=lambda row: -row[1][0]):
        terminalreporter.write_line(f"{wall_s:8.1f} {processor_s:8.1f}  {file}")


class _Processor:
    """What this process, its ended children and its living descendants have used."""

    def __init__(self) -> None:
        self._told_s = 0.0
        self._lost_s = 0.0

    def seconds(self) -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        now_s = sum(one.ru_utime + one.ru_stime for one in used) + sum(_descendants_s(os.getpid()))
        # A descendant that ended without a parent to count it has used what it has used.
        self._lost_s = max(self._lost_s, self._told_s - now_s)
        self._told_s = now_s + self._lost_s
        return self._told_s


_PROCESSOR: Final = _Processor()


def _descendants_s(process: int) -> Iterator[float]:
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(c) for t in threads for c in (t / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        try:
            # After the name in brackets: state, parent, ... and from the 12th on the four times.
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield sum(int(ticks) for ticks in fields[11:15]) / _TICKS
        yield from _descendants_s(child)
