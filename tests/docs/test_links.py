"""A document points only at files that are there, and only at make targets that exist."""

import re
from typing import Final

from tests.docs.examples import ROOT, documents

_LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_TARGET: Final = re.compile(r"`make ([a-z-]+)")


def test_every_relative_link_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(ROOT)} -> {link}"
        for page in documents()
        for link in _LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]

    assert broken == []


def test_every_make_target_in_a_document_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    unknown = [
        f"{page.relative_to(ROOT)}: make {target}"
        for page in documents()
        for target in _TARGET.findall(page.read_text(encoding="utf-8"))
        if target not in targets
    ]

    assert unknown == []


def test_every_decision_record_has_its_four_parts() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    parts = ("**Context.**", "**Decision.**", "**Consequences.**", "**Rejected.**")

    assert records
    for record in records:
        text = record.read_text(encoding="utf-8")
        assert [part for part in parts if part not in text] == [], record.name
