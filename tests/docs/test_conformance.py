"""The conformance table has a row for every requirement and names only tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
STATUSES: Final = {"yes", "partly", "not yet"}
NUMBERS: Final = [
    *(f"R{n}" for n in range(1, 50)),
    *(f"P{n}" for n in range(1, 12)),
]
_REFERENCE: Final = re.compile(r"`([\w./-]+\.(?:py|mjs|js))(?:::(\w+))?`")


class Row(NamedTuple):
    """A line of the table: number, what is asked, how far it is, what proves it."""

    number: str
    requirement: str
    status: str
    tests: str


def rows() -> list[Row]:
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r"\| [RP]\d+ \|", line)]
    return [Row(*(cell.strip() for cell in line.strip("|").split(" | "))) for line in lines]


def test_every_requirement_has_exactly_one_row_in_order() -> None:
    assert [row.number for row in rows()] == NUMBERS


def test_every_row_has_a_known_status() -> None:
    assert [row for row in rows() if row.status not in STATUSES] == []


def test_what_is_claimed_names_a_test_and_what_is_missing_names_none() -> None:
    claimed = [row.number for row in rows() if row.status != "not yet"]
    named = [row.number for row in rows() if _REFERENCE.search(row.tests)]

    assert claimed == named


def test_every_named_test_exists() -> None:
    missing = [
        f"{row.number}: {file}::{name}"
        for row in rows()
        for file, name in _REFERENCE.findall(row.tests)
        if not _exists(file, name)
    ]

    assert missing == []


def test_every_test_that_the_whole_page_names_exists() -> None:
    """The table of what clients assert too."""
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")

    named = _REFERENCE.findall(text)
    assert [f"{file}::{name}" for file, name in named if not _exists(file, name)] == []


def test_every_test_that_the_page_on_security_names_exists() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = _REFERENCE.findall(text)

    assert named
    assert [f"{file}::{name}" for file, name in named if not _exists(file, name)] == []


def _exists(file: str, name: str) -> bool:
    path = ROOT / file
    return path.is_file() and (not name or name in _functions(path))


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef))
    asynchronous = (node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef))
    return frozenset({*(node.name for node in found), *asynchronous})
