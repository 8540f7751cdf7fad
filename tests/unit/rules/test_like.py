"""LIKE: whole texts against patterns."""

import pytest

from shardbus.rules.errors import EvaluationError
from shardbus.rules.like import LikePattern
from tests.unit.rules.messages import sent, truth


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("abc", ["abc"], ["", "ab", "abcd", "ABC"]),
        ("a%", ["a", "abc"], ["", "ba"]),
        ("%a", ["a", "bca"], ["ab"]),
        ("%a%", ["a", "xay"], ["", "x"]),
        ("a_c", ["abc", "a_c", "a\nc"], ["ac", "abbc"]),
        ("_", ["x"], ["", "xx"]),
        ("%", ["", "anything\nat all"], []),
        ("%%", ["", "x"], []),
        ("", [""], ["x"]),
        ("_%_", ["ab", "abc"], ["a"]),
        ("a%b%c", ["abc", "aXbYc", "abcbc"], ["acb", "ac"]),
        ("a%a", ["aa", "aba"], ["a"]),
        ("%aa%aa%", ["aaaa", "aaxaa"], ["aaa"]),
        ("%ab_%ab", ["abcab", "xabcab"], ["abab"]),
        ("%a_b%", ["aaab", "aabb"], ["ab", "abab"[:2]]),
        ("a.c[d]*", ["a.c[d]*"], ["abcd", "a.cdd"]),
    ],
)
def test_a_percent_is_any_run_and_an_underscore_one_character(
    pattern: str, fitting: list[str], others: list[str]
) -> None:
    compiled = LikePattern(pattern, None)

    assert [text for text in fitting if not compiled.matches(text)] == []
    assert [text for text in others if compiled.matches(text)] == []


def test_an_escape_takes_the_meaning_from_what_follows() -> None:
    assert LikePattern("100!%", "!").matches("100%")
    assert not LikePattern("100!%", "!").matches("1000")
    assert LikePattern("a!!b!c", "!").matches("a!bc")
    assert LikePattern("%%_x", "%").matches("%yx")
    assert LikePattern("%%%_x", "%").matches("%_x")
    assert LikePattern("a\\_b", None).matches("a\\xb")


@pytest.mark.parametrize(("pattern", "escape"), [("a", ""), ("a", "ab"), ("a!", "!")])
def test_an_escape_that_escapes_nothing_has_no_result(pattern: str, escape: str) -> None:
    with pytest.raises(EvaluationError):
        LikePattern(pattern, escape)


def test_like_is_unknown_when_an_operand_is_or_is_no_text() -> None:
    message = sent(s="abc", n=5, pattern="a%", letter="!", long="ab")

    assert truth("s LIKE pattern", message) is True
    assert truth("s LIKE pattern ESCAPE letter", message) is True
    assert truth("s NOT LIKE pattern + 'x'", message) is True
    assert truth("n LIKE '5'", message) is None
    assert truth("n NOT LIKE '5'", message) is None
    assert truth("absent LIKE '%'", message) is None
    assert truth("s LIKE absent", message) is None
    assert truth("s LIKE 5", message) is None
    assert truth("s LIKE 'a%' ESCAPE absent", message) is None
    with pytest.raises(EvaluationError):
        truth("s LIKE 'a%' ESCAPE long", message)


def test_a_pattern_that_makes_regular_expressions_backtrack_is_not_slow() -> None:
    """A backtracking matcher would need more steps than there are atoms."""
    pattern = LikePattern("%a" * 400 + "%b", None)

    assert not pattern.matches("a" * 60_000)
    assert pattern.matches("a" * 60_000 + "b")
