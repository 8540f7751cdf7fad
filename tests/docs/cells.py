"""Runs the cells of a notebook page: Python in this interpreter, the rest in a shell.

`python cells.py CELLS.json`, a list of [program, source]; each cell's output ends with a line that
says so, and the first that fails ends the run.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

END: Final = "-- end of an example --"


def run_cells(cells: list[list[str]]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for program, source in cells:
        if program == "python":
            exec(compile(source, "<cell>", "exec"), names)
        else:
            subprocess.run(["sh", "-eu", "-c", source], stdin=subprocess.DEVNULL, check=True)
        sys.stdout.write(f"\n{END}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run_cells(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
