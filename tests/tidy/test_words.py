"""The words of the documents: the glossary's table of rejected phrases holds."""

import pytest

from tests.tidy.prose import documents
from tests.tidy.source import python_files
from tests.tidy.words import (
    DOCSTRINGS,
    DOCUMENTS,
    GLOSSARY,
    Rejected,
    docstrings_of,
    is_made,
    offences,
    prose_of,
    rejected,
)


@pytest.fixture(scope="module")
def phrases() -> list[Rejected]:
    return rejected(GLOSSARY.read_text(encoding="utf-8"))


def test_the_table_is_read_whole(phrases: list[Rejected]) -> None:
    assert len(phrases) > 50
    assert {each.scope for each in phrases} == {DOCUMENTS, DOCSTRINGS}
    assert len({each.phrase for each in phrases}) == len(phrases)


def test_no_document_has_a_rejected_phrase(phrases: list[Rejected]) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in documents()}
    found = [
        offence
        for path, text in texts.items()
        if not is_made(text)
        for offence in offences(path, prose_of(text), phrases)
    ]

    assert found == [], "docs/internals/glossary.md says what to write instead"


def test_no_docstring_has_a_phrase_that_is_rejected_there_too(phrases: list[Rejected]) -> None:
    everywhere = [each for each in phrases if each.scope == DOCSTRINGS]
    found = [
        offence
        for path in python_files("src", "spark/src")
        for offence in offences(path, docstrings_of(path), everywhere)
    ]

    assert found == [], "docs/internals/glossary.md says what to write instead"


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("passed over", "It is\n  Passed\nover."),
        ("ack", "an ack, then"),
        ("What …", "What is stored are changes."),
        ("What …", "1. Yes. What fails is logged; the rest is not"),
        ("Who …", "- Who has a key may enter."),
    ],
)
def test_a_phrase_is_found_over_lines_and_in_any_case(phrase: str, text: str) -> None:
    assert [Rejected(phrase, DOCUMENTS).is_in(each) for each in prose_of(text)] == [True]


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("passed over", "# What is passed over\n"),
        ("passed over", "```sh\npassed over\n```"),
        ("became of", "see [a record](0036-what became of.md) or `became of`"),
        ("ack", "a backlog, hijack or ack-like"),
        ("What …", "What is a fragment?"),
        ("What …", "It says what is stored."),
    ],
)
def test_code_headings_targets_and_questions_do_not_count(phrase: str, text: str) -> None:
    assert [each for each in prose_of(text) if Rejected(phrase, DOCUMENTS).is_in(each)] == []
