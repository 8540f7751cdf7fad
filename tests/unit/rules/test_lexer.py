"""Text to tokens."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.rules.lexer import END, NAME, NUMBER, PARAMETER, SIGN, STRING, WORD, tokens_of
from tests.support.refusals import refusal_of


def test_every_kind_of_token_is_told_apart_and_knows_its_offset() -> None:
    tokens = tokens_of("Total >= 1.5E3 and [a]]b] != 'it''s' + @x")

    assert [(each.kind, each.offset) for each in tokens] == [
        (WORD, 0), (SIGN, 6), (NUMBER, 9), (WORD, 15), (NAME, 19), (SIGN, 26), (STRING, 29),
        (SIGN, 37), (PARAMETER, 39), (END, 41),
    ]  # fmt: skip
    assert [each.value for each in tokens] == [
        "Total", None, 1500.0, "and", "a]b", None, "it's", None, "x", None,
    ]  # fmt: skip
    assert tokens[3].text == "AND"
    assert tokens[5].text == "<>"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", 9223372036854775807),
        ("1.0", 1.0),
        ("0.5e-2", 0.005),
        ("101E5", 10_100_000.0),
        ("1e+2", 100.0),
    ],
)
def test_integers_are_ints_and_anything_with_a_point_or_exponent_is_a_double(
    text: str, value: float
) -> None:
    token = tokens_of(text)[0]

    assert token.value == value
    assert type(token.value) is type(value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[order id]", "order id"),
        ('"say ""so"""', 'say "so"'),
        ("[]]]", "]"),
        ("@[odd name]", "odd name"),
        ("größe_2", "größe_2"),
    ],
)
def test_names_may_be_bare_in_brackets_or_in_double_quotes(text: str, name: str) -> None:
    token = tokens_of(text)[0]

    assert token.name() == name
    assert token.source == text


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("a = 'x", 1, 5, "the text that starts here does not end"),
        ("a =\n [x", 2, 2, "the name that starts here does not end"),
        ("a = 1 ? 2", 1, 7, "'?' is not allowed here"),
        ("a ! b", 1, 3, "'!' is not allowed here"),
        ("1.", 1, 3, "expected a digit after the decimal point"),
        ("1e", 1, 3, "expected the digits of an exponent"),
        ("1e+x", 1, 4, "expected the digits of an exponent"),
        ("12abc", 1, 1, "a number is followed directly by a name"),
        ("1e999", 1, 1, "too large for a double"),
        ("[] = 1", 1, 1, "a name is empty"),
        ("@ x", 1, 2, "expected a name after '@'"),
        ("@'x'", 1, 2, "expected a name after '@'"),
        ("_x = 1", 1, 1, "'_' is not allowed here"),
    ],
)
def test_what_is_no_token_is_refused_with_its_place(
    text: str, line: int, column: int, what: str
) -> None:
    with pytest.raises(Refused) as refusal:
        tokens_of(text)

    assert refusal.value.kind is INVALID_ARGUMENT
    assert f"at line {line}, column {column}: " in refusal.value.message
    assert what in refusal.value.message


def test_an_expression_longer_than_the_limit_is_refused_before_it_is_read() -> None:
    assert len(tokens_of("a" * 1024)) == 2

    with refusal_of(INVALID_ARGUMENT, "1025", "1024"):
        tokens_of("?" * 1025)
