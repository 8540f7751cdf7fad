"""What must not be left behind: notes to self, machine paths, unexplained exemptions."""

import re
from pathlib import Path

import pytest

from tests.tidy.source import ROOT, python_files, shown, text_files

_HERE = Path(__file__)
_NOTES = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\bpdb\.set_trace|\bbreakpoint\(")
_PATHS = re.compile(r"(?<![\w.])/(root|home|work|opt|Users)/\w")
_ELSEWHERE = re.compile(r"\b[Rr]eference §?\d|\b[Ii]ssue \d")
_CITED = re.compile(r"(?<![\w./`\"#-])[DPR]\d{1,2}(?![\w`\"])")
_ROWS = re.compile(r"^\| ([DPR]\d+) \|", re.MULTILINE)
_INDEXES = re.compile(r"--(extra-)?index-url|--find-links|\bfile://|\"resolved\"")
_IGNORES = re.compile(r"#\s*(type: ignore|noqa|fmt: off)")
_REASONED = re.compile(r"# type: ignore\[[a-z-, ]+\]  # \w|# noqa: [A-Z0-9, ]+(  # \w| - \w)")


@pytest.mark.parametrize(
    ("what", "pattern"),
    [("note", _NOTES), ("machine path", _PATHS), ("citation of what is not here", _ELSEWHERE)],
    ids=["notes", "paths", "citations"],
)
def test_no_text_holds_a_leftover(what: str, pattern: re.Pattern[str]) -> None:
    offences = [
        f"{what} in {shown(path, number)}: {line.strip()[:80]}"
        for path in text_files()
        if path.name != "package-lock.json" and path != _HERE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]

    assert offences == []


def test_every_requirement_and_principle_that_is_cited_has_its_row() -> None:
    pages = (ROOT / "docs" / "conformance.md", ROOT / "docs" / "internals" / "principles.md")
    rows = {row for page in pages for row in _ROWS.findall(page.read_text(encoding="utf-8"))}
    offences = [
        f"{cited} in {shown(path, number)}"
        for path in text_files()
        if path.suffix in (".py", ".md")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for cited in _CITED.findall(line)
        if cited not in rows
    ]

    assert {"D1", "P1", "R1"} <= rows
    assert offences == []


def test_pinned_files_name_no_index_and_no_host() -> None:
    pinned = [*(ROOT / "requirements").glob("*.txt"), *ROOT.glob("tests/*/js/package-lock.json")]

    assert len(pinned) >= 3
    offences = [shown(path) for path in pinned if _INDEXES.search(path.read_text(encoding="utf-8"))]
    assert offences == []


def test_every_pinned_requirement_has_a_hash() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        pins = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]

        assert pins, shown(path)
        assert [pin for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []


def test_every_exemption_from_a_checker_names_its_rule_and_its_reason() -> None:
    offences = [
        f"{shown(path, number)}: {line.strip()[:80]}"
        for path in python_files()
        if path != _HERE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if _IGNORES.search(line) and not _REASONED.search(line)
    ]

    assert offences == []
