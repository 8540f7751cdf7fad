"""The examples of the documents that can be run: where they stand and what they say comes out.

A fenced block that opens with `sh run` or `python run` is run; one that opens with `json answer` or
`text answer` shows what the block before it prints. A page with Python in it is a notebook: all its
cells are run in one interpreter, those for the shell by a shell each. Only what is shown has to be
there, and `…` stands for anything: members of a JSON object and lines of a text may be left out.

A page with a block that opens with `sh install` needs a machine of its own: tests/frameworks runs
it, and nothing here does.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from shardbus.app.cli.console import Json
from tests.docs.cells import END
from tests.support.tools import needed_program

ROOT: Final = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_S: Final = 300
NOTEBOOK_TIMEOUT_S: Final = 1_080
_BLOCK: Final = re.compile(
    r"^```(sh|python|json|text) (run|answer)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_INSTALL: Final = re.compile(r"^```sh install$", re.MULTILINE)
_ADDRESS: Final = re.compile(r"\b(localhost|127\.0\.0\.1):5300\b")
_LANE: Final = re.compile(r"\bgrpc://localhost:5301\b")
_CELLS: Final = Path(__file__).with_name("cells.py")
# So that a refusal fails the example that met it, which curl alone lets pass.
_CURL_OPTIONS: Final = "silent\nshow-error\nfail-with-body\n"


class Example(NamedTuple):
    """Commands as they stand in a document, and what it says they print, if it does."""

    commands: str
    language: str
    answer: str
    program: str = "sh"


def documents() -> list[Path]:
    """Every document of ours, whether it has examples or not."""
    top = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "spark/README.md")
    return [*(ROOT / name for name in top), *sorted((ROOT / "docs").rglob("*.md"))]


def needs_a_machine(text: str) -> bool:
    """Whether the page installs programs, and so is run by tests/frameworks."""
    return _INSTALL.search(text) is not None


def examples(text: str) -> list[Example]:
    found: list[Example] = []
    for language, kind, body in _BLOCK.findall(text):
        if kind == "run":
            found.append(Example(body, "", "", language))
        elif not found or found[-1].answer:
            raise AssertionError(f"an answer without an example before it:\n{body}")
        else:
            found[-1] = found[-1]._replace(language=language, answer=body)
    return found


def workplace(directory: Path) -> Path:
    """A new directory where `.venv` is what runs the tests, as it is for who reads a document."""
    directory.mkdir()
    (directory / ".venv").symlink_to(sys.prefix)
    return directory


def run(
    found: list[Example],
    http_port: int,
    directory: Path,
    environment: dict[str, str] | None = None,
) -> list[str]:
    """What each example prints when all are run in one shell, in order, against a server."""
    commands = "".join(f"{example.commands}\nprintf '\\n{END}\\n'\n" for example in found)
    script = _ADDRESS.sub(f"localhost:{http_port}", commands)
    needed_program("curl", "curl")
    (directory / ".curlrc").write_text(_CURL_OPTIONS, encoding="ascii")
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=directory,
        env={**_environment(http_port, directory), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    return _parts(done)


def is_notebook(found: list[Example]) -> bool:
    return any(example.program == "python" for example in found)


def run_notebook(
    found: list[Example], http_port: int, flight_url: str, directory: Path
) -> list[str]:
    """What each cell prints; the server's data are in `shardbus-data` of the directory."""
    cells = [(example.program, _LANE.sub(flight_url, example.commands)) for example in found]
    file = directory / "cells.json"
    file.write_text(json.dumps(cells), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(_CELLS), str(file)],
        cwd=directory,
        env=_environment(http_port, directory),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=NOTEBOOK_TIMEOUT_S,
        check=False,
    )
    return _parts(done)


def _parts(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return [part.strip() for part in done.stdout.split(END)[:-1]]


def _environment(http_port: int, directory: Path) -> dict[str, str]:
    commands = str(directory / ".venv" / "bin")
    sources = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {
        **os.environ,
        "CURL_HOME": str(directory),
        "PATH": os.pathsep.join([commands, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sources if path),
        "SHARDBUS_ENDPOINT": f"http://localhost:{http_port}",
    }


def resembles(example: Example, printed: str) -> bool:
    """Whether everything that the document shows is in what was printed."""
    if example.language == "json":
        real: Json = json.loads(printed)
        shown: Json = json.loads(example.answer)
        return _has(real, shown)
    lines = iter(printed.splitlines())
    return all(
        any(_is_like(line, shown_line) for line in lines)
        for shown_line in example.answer.splitlines()
    )


def _has(real: Json, shown: Json) -> bool:
    if isinstance(shown, dict):
        return isinstance(real, dict) and all(
            name in real and _has(real[name], value) for name, value in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(real, list) and _starts(real, shown)
    if isinstance(shown, str):
        return shown == "…" or (isinstance(real, str) and _is_like(real, shown))
    return type(real) is type(shown) and real == shown


def _starts(real: list[Json], shown: list[Json]) -> bool:
    is_open = shown[-1:] == ["…"]
    first = shown[:-1] if is_open else shown
    is_enough = len(real) >= len(first) if is_open else len(real) == len(first)
    return is_enough and all(map(_has, real, first))


def _is_like(real: str, shown: str) -> bool:
    pieces = (re.escape(piece) for piece in " ".join(shown.split()).split("…"))
    return re.fullmatch(".*".join(pieces), " ".join(real.split())) is not None
