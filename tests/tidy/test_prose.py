"""Lines of the documents, and how they are folded."""

import pytest

from tests.tidy.prose import LINE_MAX, documents, wrapped
from tests.tidy.source import shown

WORDS = "one two three four five six seven eight nine ten " * 4


def test_no_paragraph_of_a_document_is_too_wide() -> None:
    assert len(documents()) > 50
    offences = [
        path for path in documents() if wrapped(path.read_text("utf-8")) != path.read_text("utf-8")
    ]

    assert [shown(path) for path in offences] == [], "`make fmt` folds them"


def test_a_paragraph_is_folded_and_keeps_its_words() -> None:
    folded = wrapped(f"short\n\n{WORDS}\nand more\n")

    assert max(len(line) for line in folded.split("\n")) <= LINE_MAX
    assert folded.split() == f"short {WORDS} and more".split()
    assert wrapped(folded) == folded


@pytest.mark.parametrize("start", ["- ", "  * ", "12. "])
def test_an_item_of_a_list_is_folded_below_its_text(start: str) -> None:
    first, *others = wrapped(f"{start}{WORDS}").split("\n")

    assert first.startswith(start)
    assert others
    assert all(line.startswith(" " * len(start)) and line.strip()[0] in "otfsen" for line in others)


@pytest.mark.parametrize(
    "text",
    [f"| {WORDS} |", f"# {WORDS}", f"```sh\n{WORDS}\n```", f"<!-- {WORDS} -->", f"> {WORDS}"],
)
def test_what_is_no_prose_stays_as_it_is(text: str) -> None:
    assert wrapped(text) == text


@pytest.mark.parametrize("mark", ["-", "+", "#", "12.", "|"])
def test_no_line_begins_with_what_would_be_something_else(mark: str) -> None:
    for count in range(40, 60):
        folded = wrapped(f"{'x ' * count}{mark} {WORDS}")
        assert not any(line.startswith(mark) for line in folded.split("\n"))
