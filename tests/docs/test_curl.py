"""What the documents show with curl and the command line, run against a real process."""

from pathlib import Path
from typing import Final

import pytest

from tests.docs.examples import (
    ROOT,
    Example,
    documents,
    examples,
    is_notebook,
    needs_a_machine,
    resembles,
    run,
    workplace,
)
from tests.frameworks.test_guides import GUIDES
from tests.support.server import running_server

# A page that has lost its marks would pass by not being run.
EXPECTED: Final = (
    "docs/guides/backup.md",
    "docs/guides/cli.md",
    "docs/guides/topics.md",
    "docs/reference/http-api.md",
    "docs/reference/http.md",
    "docs/reference/management.md",
    "docs/security.md",
)


def _pages() -> dict[str, list[Example]]:
    texts = {name: text for name, text in _texts().items() if not needs_a_machine(text)}
    found = {name: examples(text) for name, text in texts.items()}
    return {name: shown for name, shown in found.items() if shown and not is_notebook(shown)}


def _texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in documents()}


@pytest.mark.parametrize("page", sorted({*_pages(), *EXPECTED}))
def test_the_examples_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    """R33: against one bus that has nothing in it at first, in the order of the page."""
    shown = _pages()[page]
    with running_server(tmp_path / "data") as server:
        printed = run(shown, server.http_port, workplace(tmp_path / "shell"))

    pairs = zip(shown, printed, strict=True)
    unlike = [(example, text) for example, text in pairs if not resembles(example, text)]
    assert unlike == []


def test_a_page_that_is_left_out_here_is_run_with_the_frameworks() -> None:
    left_out = {name for name, text in _texts().items() if needs_a_machine(text)}

    assert left_out == {f"docs/guides/{name}.md" for name in GUIDES}


def test_a_refused_request_fails_its_example(tmp_path: Path) -> None:
    refused = Example("curl http://localhost:5300/api/v1/queues\n", "", "")

    with running_server(tmp_path / "data") as server, pytest.raises(AssertionError, match="401"):
        run([refused], server.http_port, workplace(tmp_path / "shell"))


@pytest.mark.parametrize(
    ("language", "answer", "printed", "is_alike"),
    [
        ("json", '{"a": 1}', '{"a": 1, "b": 2}', True),
        ("json", '{"a": 1}', '{"a": 2}', False),
        ("json", '{"a": 1}', '{"a": true}', False),
        ("json", '{"a": "x…"}', '{"a": "xyz"}', True),
        ("json", '{"a": "…"}', '{"a": 7}', True),
        ("json", '{"a": "…"}', '{"b": 7}', False),
        ("json", '[{"a": 1}]', '[{"a": 1}, {"a": 2}]', False),
        ("json", '[{"a": 1}, "…"]', '[{"a": 1}, {"a": 2}]', True),
        ("text", "one\nthree", "one\ntwo\nthree", True),
        ("text", "three\none", "one\ntwo\nthree", False),
        ("text", "a  … c", "a b c", True),
        ("text", "a.c", "abc", False),
    ],
)
def test_what_is_shown_must_be_there_and_the_rest_may_be_left_out(
    language: str, answer: str, printed: str, is_alike: bool
) -> None:
    assert resembles(Example("", language, answer), printed) is is_alike
