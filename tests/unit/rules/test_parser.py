"""Every production of the grammar, by what it is parsed to."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.rules.parser import parse_action, parse_filter
from tests.model.rules.shape import shape
from tests.support.refusals import refusal_of
from tests.support.render import render_action, render_filter


def parsed(expression: str) -> object:
    return shape(parse_filter(expression))


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("a = 1", ("=", "user a", 1)),
        ("a <> 1", ("<>", "user a", 1)),
        ("a != 1", ("<>", "user a", 1)),
        ("a > 1.5", (">", "user a", "1.5")),
        ("a >= 'x'", (">=", "user a", "'x'")),
        ("a < TRUE", ("<", "user a", "TRUE")),
        ("a <= NULL", ("<=", "user a", "NULL")),
        ("a IS NULL", ("is null", "user a")),
        ("sys.label IS NOT NULL", ("not", ("is null", "sys Label"))),
        ("EXISTS(a)", ("exists", "user a")),
        ("exists ( SYS.messageID )", ("exists", "sys MessageId")),
        ("a IN (1)", ("in", "user a", 1)),
        ("a NOT IN (1, b, 'c')", ("not", ("in", "user a", 1, "user b", "'c'"))),
        ("a LIKE 'x%'", ("like", "user a", "'x%'", "no escape")),
        ("a NOT LIKE 'x' ESCAPE '!'", ("not", ("like", "user a", "'x'", "'!'"))),
        ("NOT a = 1", ("not", ("=", "user a", 1))),
        ("NOT NOT a = 1", ("not", ("not", ("=", "user a", 1)))),
        ("flag", ("holds", "user flag")),
        ("(flag)", ("holds", "user flag")),
        ("TRUE AND NOT flag", ("and", ("holds", "TRUE"), ("not", ("holds", "user flag")))),
    ],
)
def test_each_test_of_the_grammar_has_its_node(expression: str, tree: object) -> None:
    assert parsed(expression) == tree


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("user.a = b", ("=", "user a", "user b")),
        ("[sys.label] = sys.[Label]", ("=", "user sys.label", "sys Label")),
        ('"and" = @limit', ("=", "user and", "@limit")),
        ("user = sys", ("=", "user user", "user sys")),
        ("user.sys = p", ("=", "user sys", "user p")),
        ("newid() = NewId( )", ("=", "newid", "newid")),
        ("property(a + b) = 1", ("=", ("property", ("+", "user a", "user b")), 1)),
        ("P('c') = 1", ("=", ("property", "'c'"), 1)),
        ("set = remove", ("=", "user set", "user remove")),
    ],
)
def test_properties_parameters_and_functions(expression: str, tree: object) -> None:
    assert parsed(expression) == tree


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("a + b * c = 0", ("=", ("+", "user a", ("*", "user b", "user c")), 0)),
        ("(a + b) * c = 0", ("=", ("*", ("+", "user a", "user b"), "user c"), 0)),
        ("a - b - c = 0", ("=", ("-", ("-", "user a", "user b"), "user c"), 0)),
        ("a / b % c = 0", ("=", ("%", ("/", "user a", "user b"), "user c"), 0)),
        ("-a * b = 0", ("=", ("*", ("sign -", "user a"), "user b"), 0)),
        ("+ - a = 0", ("=", ("sign +", ("sign -", "user a")), 0)),
        ("a -1 = -1", ("=", ("-", "user a", 1), -1)),
        ("-(1) = - 1.5", ("=", ("sign -", 1), "-1.5")),
        ("- -1 = a", ("=", ("sign -", -1), "user a")),
        ("a = -9223372036854775808", ("=", "user a", -9223372036854775808)),
    ],
)
def test_arithmetic_binds_as_usual_and_a_minus_belongs_to_its_number(
    expression: str, tree: object
) -> None:
    assert parsed(expression) == tree


def test_not_binds_tighter_than_and_and_and_tighter_than_or() -> None:
    a, b, c = (("holds", f"user {name}") for name in "abc")

    assert parsed("a OR b AND c") == ("or", a, ("and", b, c))
    assert parsed("(a OR b) AND c") == ("and", ("or", a, b), c)
    assert parsed("NOT a AND b OR c") == ("or", ("and", ("not", a), b), c)
    assert parsed("a AND b AND c") == ("and", a, b, c)
    assert parsed("(a AND b) AND c") == ("and", ("and", a, b), c)


@pytest.mark.parametrize(
    ("expression", "column", "what"),
    [
        ("", 1, "expected a value, found the end of the expression"),
        ("a =", 4, "expected a value, found the end of the expression"),
        ("a = = 1", 5, "expected a value, found '='"),
        ("a = 1 b", 7, "expected AND, OR or the end of the expression, found 'b'"),
        ("(a = 1", 7, "expected ')', found the end of the expression"),
        ("a = 1)", 6, "expected AND, OR or the end of the expression, found ')'"),
        ("a = b = c", 3, "expected a value, found a condition"),
        ("(a = 1) + 2 = 3", 4, "expected a value, found a condition"),
        ("a = NOT b", 5, "expected a value, found a condition"),
        ("-EXISTS(a) = 1", 2, "expected a value, found a condition"),
        ("a IN ()", 7, "expected a value, found ')'"),
        ("a IN (1, 2", 11, "expected ')'"),
        ("a IN 1", 6, "expected '('"),
        ("a IN (b = 1)", 9, "expected ')', found '='"),
        ("a NOT = 1", 7, "expected IN or LIKE, found '='"),
        ("a IS 1", 6, "expected NULL or NOT NULL, found '1'"),
        ("a IS NOT 1", 10, "expected NULL, found '1'"),
        ("a + 1 IS NULL", 3, "IS NULL can test only a property"),
        ("p('a') IS NULL", 1, "IS NULL can test only a property"),
        ("EXISTS(1)", 8, "expected a property, found '1'"),
        ("EXISTS a", 8, "expected '(', found 'a'"),
        ("and = 1", 1, "expected a value, found the reserved word 'and'"),
        ("a = LIKE", 5, "expected a value, found the reserved word 'LIKE'"),
        ("order.total = 1", 1, "'order' is neither sys nor user"),
        ("sys.Colour = 1", 5, "there is no system property 'Colour'"),
        ("sys. = 1", 6, "expected a name after sys., found '='"),
        ("lower(a) = 'x'", 1, "no function 'lower'"),
        ("newid(1) = a", 7, "expected ')', found '1'"),
        ("property() = a", 10, "expected a value, found ')'"),
        ("a = 9223372036854775808", 5, "an integer has more than 64 bits"),
        ("a = -9223372036854775809", 5, "an integer has more than 64 bits"),
        ("a = 1" + "0" * 400, 5, "an integer has more than 64 bits"),
        ("a = 1; b = 2", 6, "expected AND, OR or the end of the expression, found ';'"),
    ],
)
def test_a_bad_filter_is_refused_with_the_place_and_what_was_expected(
    expression: str, column: int, what: str
) -> None:
    with pytest.raises(Refused) as refusal:
        parse_filter(expression)

    assert refusal.value.kind is INVALID_ARGUMENT
    assert f"at line 1, column {column}: " in refusal.value.message
    assert what in refusal.value.message


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 101 + "a" + ")" * 101,
        "NOT " * 101 + "a",
        "- " * 101 + "a = 1",
        "1" + "+1" * 101 + " = a",
        "p(" * 101 + "'a'" + ")" * 101 + " = 1",
        "NOT " * 60 + "1" + "+1" * 60 + " = a",
    ],
)
def test_an_expression_that_is_too_deep_is_refused(expression: str) -> None:
    with refusal_of(INVALID_ARGUMENT, "100"):
        parse_filter(expression)


def test_many_conditions_side_by_side_are_not_deep() -> None:
    assert parse_filter(" OR ".join(["a = 1"] * 113)).depth == 3


def test_statements_are_parsed_in_order_with_any_separator_or_none() -> None:
    text = "SET a = 1; set sys.label = 'x' + b, REMOVE c remove [d e] SET user.f = @g;"

    assert shape(parse_action(text)) == [
        ("set", "user a", 1),
        ("set", "sys Label", ("+", "'x'", "user b")),
        ("remove", "user c"),
        ("remove", "user d e"),
        ("set", "user f", "@g"),
    ]


@pytest.mark.parametrize(
    ("expression", "column", "what"),
    [
        ("", 1, "expected SET or REMOVE, found the end"),
        ("a = 1", 1, "expected SET or REMOVE, found 'a'"),
        ("SET a 1", 7, "expected '=', found '1'"),
        ("SET a = b = c", 11, "expected SET, REMOVE or the end of the expression"),
        ("SET a = (b = c)", 12, "expected a value, found a condition"),
        ("SET 1 = 1", 5, "expected the property to set, found '1'"),
        ("SET set = 1", 5, "expected the property to set, found the reserved word 'set'"),
        ("SET sys.Size = 1", 5, "sys.Size cannot be set"),
        ("SET sys.Nothing = 1", 9, "no system property 'Nothing'"),
        ("REMOVE sys.Label", 8, "a system property cannot be removed"),
        ("REMOVE", 7, "expected the property to remove, found the end"),
        ("SET a = 1;; SET b = 2", 11, "expected SET or REMOVE, found ';'"),
    ],
)
def test_a_bad_action_is_refused_with_the_place_and_what_was_expected(
    expression: str, column: int, what: str
) -> None:
    with pytest.raises(Refused) as refusal:
        parse_action(expression)

    assert f"at line 1, column {column}: " in refusal.value.message
    assert what in refusal.value.message


def test_an_action_has_at_most_32_statements() -> None:
    assert len(parse_action(";".join(["SET a = 1"] * 32))) == 32

    with refusal_of(INVALID_ARGUMENT, "column 321", "32"):
        parse_action(";".join(["SET a = 1"] * 33))


@pytest.mark.parametrize(
    ("expression", "rendered"),
    [
        ("a=1 and(b or not c)", "a = 1 AND (b OR NOT c)"),
        ("((a+1))*2>-(3)", "(a + 1) * 2 > -(3)"),
        ("a-(b-c)=d-e-f", "a - (b - c) = d - e - f"),
        ("x is not null", "NOT x IS NULL"),
        ("[and]='it''s' or [a]]b]", "[and] = 'it''s' OR [a]]b]"),
        ("a not like @p escape'!'", "NOT a LIKE @p ESCAPE '!'"),
        ("p('a') in(newid(),1e300)", "property('a') IN (newid(), 1e+300)"),
    ],
)
def test_a_filter_is_rendered_in_one_spelling(expression: str, rendered: str) -> None:
    assert render_filter(parse_filter(expression)) == rendered


def test_an_action_is_rendered_in_one_spelling() -> None:
    statements = parse_action("set user.a=(1), remove [SET] set sys.to=b+'c'")

    assert render_action(statements) == "SET a = 1; REMOVE [SET]; SET sys.To = b + 'c'"
