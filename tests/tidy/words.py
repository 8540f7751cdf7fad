"""The phrases that the glossary rejects, and the texts in which they are looked for."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.tidy.prose import blocks
from tests.tidy.source import ROOT, shown, tree

GLOSSARY: Final = ROOT / "docs" / "internals" / "glossary.md"
TITLE: Final = "## Words that we do not use"
DOCUMENTS: Final = "documents"
DOCSTRINGS: Final = "documents and docstrings"

_CODE: Final = re.compile(r"`[^`]*`")
_TARGET: Final = re.compile(r"\]\([^)]*\)")
_START: Final = r"(?:^|(?<=[.:;!?] ))(?:[-*|] |\d+[.)] )?"
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Rejected(NamedTuple):
    """A phrase that is not used, and where it is looked for."""

    phrase: str
    scope: str

    def is_in(self, text: str) -> bool:
        """Whether the text contains the phrase, in any case and as whole words."""
        return _pattern(self.phrase).search(text) is not None


def rejected(glossary: str) -> list[Rejected]:
    """The phrases of the glossary's last table."""
    _, _, table = glossary.partition(TITLE)
    found: list[Rejected] = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 3:
            phrases = re.findall(r"`([^`]+)`", cells[0])
            found += [Rejected(phrase, cells[2].rstrip(" |")) for phrase in phrases]
    return found


def prose_of(document: str) -> Iterator[str]:
    """Paragraphs, items and cells of a document, each in one line, without code and targets."""
    for block in blocks(document.split("\n")):
        first = block[0].lstrip()
        if first.startswith("|"):
            yield from (_plain(cell) for cell in first.strip("|").split(" | "))
        elif not first.startswith(("#", "```", "~~~", "<!--")):
            yield _plain(" ".join(block))


def is_made(document: str) -> bool:
    """Whether the page is made from the source, whose texts are looked at there."""
    return "<!-- Made by `make docs`" in document


def docstrings_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield _plain(text)


def offences(path: Path, texts: Iterator[str], phrases: list[Rejected]) -> list[str]:
    """Each text with a phrase, by file: what was found and where to look."""
    return [
        f"{shown(path)}: '{each.phrase}' in: {text[:100]}"
        for text in texts
        for each in phrases
        if each.is_in(text)
    ]


@cache
def _pattern(phrase: str) -> re.Pattern[str]:
    if phrase.endswith(" …"):
        # A question may begin so, and so may a phrase without an end, as in the head of a table.
        return re.compile(f"{_START}{re.escape(phrase[:-2])} [^.?;]*[.;]")
    return re.compile(rf"(?<![\w-]){re.escape(phrase)}(?![\w-])", re.IGNORECASE)


def _plain(text: str) -> str:
    return _TARGET.sub("]", _CODE.sub("`…`", " ".join(text.split())))
