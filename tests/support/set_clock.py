"""`python -m tests.support.set_clock FILE serve ...`: the command line on a machine whose wall
clock somebody sets: FILE says by how many seconds it is ahead. Nothing else jumps.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path


def set_by(file: Path, real: Callable[[], int]) -> Callable[[], int]:
    def time_ns() -> int:
        return real() + int(file.read_text(encoding="ascii")) * 1_000_000_000

    return time_ns


def main() -> None:
    file = Path(sys.argv[1])
    del sys.argv[1]
    # Before anything of the bus is loaded; compiled modules look it up at each call, too.
    time.time_ns = set_by(file, time.time_ns)
    from shardbus.app.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
