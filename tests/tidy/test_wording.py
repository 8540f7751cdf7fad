"""Tests tell failures apart by their codes and by what they name, not by their words.

Words are a contract only where clients read them: those of the service are in DIALECT, and a line
that quotes others says why in a comment, `# wording: why`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import python_files, shown, tree

# What has a code: a kind, a status, or the word before a colon that the bulk lane's errors begin
# with. Of any other failure its type is the code, and what it names the rest.
CODED = re.compile(r"(Refused|Unavailable|BusError|HttpResponseError|flight\.\w+)")
CODE = re.compile(r"\^[a-z-]+: (\.\*\S+)*( \d+)?")
PROSE = re.compile(r"[a-z]{2,} [a-z]{2,}")
MARK = re.compile(r"# wording: \w")
# Where failures are looked into.
TOLD = re.compile(
    r"\bvalue\.message|error\(?\w*\)?\.description|detail\(|\['message'\]|str\(\w+\.value\)"
)
PLACES = ("tests/unit/broker", "tests/unit/core", "tests/unit/gateway", "tests/unit/rules")
DIALECT = (
    "Resource: '",
    "'Send' claim(s) are required",
    "The value for the ",
    "The value for '",
    "allotted timeout",
    "cannot be changed",
    "cannot be empty",
    "could not be found",
    "entity size has been reached or exceeded",
    "more than the allowed",
    "non-sessionful entity",
    "requires sessions",
    "Error code: 50009",
    "Idle timeout",
    "at line ",
)
# Of failures without a code, in all tests; it may only fall.
WORDED_MAX = 187


def _raises(path: Path) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Every `pytest.raises` with a pattern."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
            for keyword in node.keywords:
                if keyword.arg == "match":
                    yield node, keyword.value


def _texts(node: ast.AST) -> list[str]:
    """What is quoted in an expression."""
    found = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    texts = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in found]
    return [each for each in texts if isinstance(each, str)]


def _is_marked(path: Path, node: ast.expr | ast.stmt) -> bool:
    """On its lines, or on the one before."""
    lines = path.read_text("utf-8").splitlines()[max(node.lineno - 2, 0) : node.end_lineno]
    return any(MARK.search(line) for line in lines)


def test_a_failure_with_a_code_is_told_by_it() -> None:
    offences = [
        f"{shown(path, call.lineno)}: {ast.unparse(pattern)}"
        for path in python_files("tests")
        for call, pattern in _raises(path)
        if CODED.fullmatch(ast.unparse(call.args[0])) and not _is_marked(path, call)
        if not isinstance(pattern, ast.Name)
        if not all(CODE.fullmatch(text) for text in _texts(pattern))
    ]

    assert offences == [], "use tests/support/refusals.py, or say why the words are a contract"


def test_what_a_refusal_says_is_quoted_only_where_clients_read_it() -> None:
    offences = [
        f"{shown(path, node.lineno)}: {ast.unparse(node.test)[:100]}"
        for path in python_files(*PLACES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare)
        if TOLD.search(ast.unparse(node.test)) and not _is_marked(path, node)
        for text in ["…".join(_texts(node.test))]
        if PROSE.search(text) and not any(words in text for words in DIALECT)
    ]

    assert offences == [], "assert the code and what is named"


def test_no_more_words_are_quoted_than_before() -> None:
    found = [
        shown(path, call.lineno)
        for path in python_files("tests", "spark/tests")
        for call, pattern in _raises(path)
        if any(PROSE.search(text) for text in _texts(pattern))
    ]

    assert len(found) <= WORDED_MAX, f"{len(found)}: tell failures by their type and what they name"
