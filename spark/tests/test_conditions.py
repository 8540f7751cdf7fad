"""Conditions of replays: what is understood becomes a tree, and nothing else passes (P5)."""

import pytest

from shardbus_spark.conditions.parser import (
    CHARACTERS_MAX,
    DEPTH_MAX,
    OPERATORS_MAX,
    parse_condition,
)
from shardbus_spark.conditions.tree import (
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Expression,
    In,
    Is,
    Item,
    Literal,
    Match,
    Moment,
    Name,
    Unary,
)
from shardbus_spark.errors import OptionError

COLUMNS = ("subject", "enqueued_time", "properties", "body", "date", "hour", "total", "a b", "user")


@pytest.mark.parametrize(
    "text",
    [
        "subject = 'order'",
        "subject = 'it''s'",
        "SUBJECT <> 'it\\'s' AND NOT (total >= 1.5e3 OR total IN (1, 2, -3))",
        "properties['region'] = 'north' and properties.region is not null",
        "element_at(properties, 'n') between '1' and '9'",
        "date = '2026-01-31' and hour in ('08', '09')",
        "enqueued_time >= timestamp '2026-01-31 08:00:00' and date < date '2026-02-01'",
        "cast(properties['n'] as int) % 2 = 0",
        "decode(body, 'UTF-8') like '%x%' escape '!'",
        "case when total > 5 then true else false end",
        "`a b` = \"select * from `t`\" or `user` = 'select'",
        "get_json_object(string(body), '$.kind') rlike '^[a-z]+$'",
        "coalesce(subject, '') || 'x' = 'x'",
        "subject = '--' and subject = '/* no */'",
        "if(total > 1, lower(subject), 'b') = 'b'",
    ],
)
def test_ordinary_conditions_pass(text: str) -> None:
    assert parse_condition(text, COLUMNS) is not None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("reflect('java.lang.Runtime', 'getRuntime') is null", "'reflect'"),
        ("java_method('java.lang.System', 'getenv', 'HOME') = 'x'", "'java_method'"),
        ("try_reflect('a', 'b') = 'x'", "'try_reflect'"),
        ("`reflect`('a', 'b') is null", "'`reflect`'"),
        ("system.builtin.reflect('a', 'b') is null", "'system'"),
        ("subject.reflect('a', 'b') is null", "'reflect'"),
        ("subject.`reflect`('a', 'b') is null", "'`reflect`'"),
        ("reflect ('a', 'b') is null", "'reflect'"),
        ("reflect/**/('a', 'b') is null", "'reflect'"),
        ("refl\u00e9ct('a')", "it cannot be read"),
        ("exists(select 1 from parquet.`/etc/passwd`)", "'exists'"),
        ("subject in (select value from text.`/etc/passwd`)", "'select'"),
        ("subject = (SELECT 1)", "'SELECT'"),
        ("subject in (table t)", "'table'"),
        ("subject in (values (1))", "'values'"),
        ("subject in (from t select x)", "'from'"),
        ("(with q as (select 1) select * from q) = 1", "'with'"),
        ("subject in (map body using 'sh' as x from t)", "'map'"),
        ("read_files('/etc') is null", "'read_files'"),
        ("subject = ${spark.app.name}", "it cannot be read"),
        ("subject = :name", "not allowed"),
        ("subject = ?", "it cannot be read"),
        ("subject = @x", "it cannot be read"),
        ("true; drop table t", "it cannot be read"),
        ("subject = 'a' -- and more", "comments"),
        ("subject = r'\\' or reflect('a') = '", "before a text"),
        ("subject = x'00'", "before a text"),
        ("subject = r '\\' or reflect('a') = '", "before a text"),
        ("total = 1 and(select 1)", "'select'"),
        ("total = 1L", "space between"),
        ("total::string = '1'", "operator"),
        ("filter(properties, x -> true) is null", "'filter'"),
        ("total => 1", "operator"),
        ("subject |> select 1", "operator"),
        ("current_user = 'root'", "'current_user'"),
        ("current_user() = 'root'", "'current_user'"),
        ("user = 'root'", "'user'"),
        ("session_variable = 1", "'session_variable'"),
        ("colour = 'red'", "'colour'"),
        ("`colour` = 'red'", "'`colour`'"),
        ("cast(total as struct) is null", "'struct'"),
        ("input_file_name() = 'x'", "'input_file_name'"),
        ("assert_true(false) is null", "'assert_true'"),
        ("raise_error('x') is null", "'raise_error'"),
        ("repeat('x', 1000000000) = ''", "'repeat'"),
        ("rand() < 0.5", "'rand'"),
        ("sum(total) over () > 1", "'sum'"),
        ("ai_query('model', subject) = 'x'", "'ai_query'"),
        ("subject = 'open", "it cannot be read"),
        ("subject = \"open", "it cannot be read"),
        ("`open", "it cannot be read"),
        ("(subject = 'a'", "not closed"),
        ("subject = 'a')", "closes nothing"),
        ("", "empty"),
        (" \n", "empty"),
        ("\x00", "it cannot be read"),
        ("subject 'x'", "before a text"),
        ("'a' 'b' = subject", "at character 5"),
        ("subject = ", "ends too early"),
        ("subject between 1", "ends too early"),
        ("subject not = 'x'", "at character 13"),
        ("subject is 'x'", "after is"),
        ("subject in ()", "closes nothing"),
        ("subject in 'x'", "( is missing"),
        ("(subject, total) = (1, 2)", "',' at character 9"),
        ("case end = 1", "'end'"),
        ("case total when 1 then 2 = 1", "ends too early"),
        ("subject like 'a' escape 'xy'", "one character"),
        ("subject like 'a!' escape '!'", "pattern"),
        ("subject like 'a\\\\x'", "pattern"),
        ("date = date '31.1.2026'", "at character 13"),
        ("timestamp 'soon' < enqueued_time", "at character 11"),
        ("cast(total as decimal(39)) = 1", "38 digits"),
        ("cast(total, int) = 1", "as is missing"),
        ("total = " + "9" * 39, "38 digits"),
        ("total[1 = 1", "not closed"),
        ("properties.", "ends too early"),
        ("properties.'x' = 1", "after the dot"),
        ("and total = 1", "'and'"),
        ("count(*) > 1", "'count'"),
        ("coalesce(*) > 1", "'*'"),
        ("total = 1 total", "'total' at character 11"),
    ],
)  # fmt: skip
def test_what_could_run_or_read_something_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_condition(text, (*COLUMNS, "select", "from", "table", "exists"))

    assert named in str(refused.value)


def test_length_and_depth_are_bounded() -> None:
    with pytest.raises(OptionError, match="characters"):
        parse_condition("total = 1 or " * CHARACTERS_MAX, COLUMNS)
    with pytest.raises(OptionError, match="parentheses"):
        parse_condition("(" * (DEPTH_MAX + 1) + "total = 1" + ")" * (DEPTH_MAX + 1), COLUMNS)
    parse_condition("(" * DEPTH_MAX + "total = 1" + ")" * DEPTH_MAX, COLUMNS)
    with pytest.raises(OptionError, match="parentheses"):
        parse_condition("not " * 1_000 + "true", COLUMNS)
    with pytest.raises(OptionError, match="parentheses"):
        parse_condition("- " * 1_000 + "1 = 1", COLUMNS)
    with pytest.raises(OptionError, match="operators"):
        parse_condition("1" + "+1" * (OPERATORS_MAX + 1), COLUMNS)


def test_a_refusal_says_where() -> None:
    with pytest.raises(OptionError) as told:
        parse_condition("total > 1 and colour = 'red'", COLUMNS)

    assert str(told.value).startswith("where has 'colour' at character 15: the table has")


def test_a_text_is_a_text_whatever_is_in_it() -> None:
    """Spark's SQL would put a variable of the environment in its place."""
    assert tree("subject = '${env:HOME}; drop'") == same(Name("subject"), "${env:HOME}; drop")


def tree(text: str) -> Expression:
    return parse_condition(text, COLUMNS)


def same(left: Expression, right: int | str) -> Binary:
    return Binary("=", left, Literal(right))


def test_operators_bind_as_in_sql() -> None:
    total = Name("total")

    assert tree("total = 1 or total = 2 and not total = 3") == Binary(
        "or",
        same(total, 1),
        Binary("and", same(total, 2), Unary("not", same(total, 3))),
    )
    assert tree("total + 1 * -2 - 3 = 4") == same(
        Binary(
            "-",
            Binary("+", total, Binary("*", Literal(1), Unary("-", Literal(2)))),
            Literal(3),
        ),
        4,
    )
    assert tree("total = 1 is null") == Is(same(total, 1), None)
    assert tree("total not between 1 and 2 and true") == Binary(
        "and", Unary("not", Between(total, Literal(1), Literal(2))), Literal(True)
    )


def test_everything_has_its_place_in_the_tree() -> None:
    subject = Name("subject")
    properties = Name("properties")

    assert tree("Properties['a'].b = 1") == same(
        Item(Item(properties, Literal("a")), Literal("b")), 1
    )
    assert tree("subject in ('a', lower('B'))") == In(
        subject, [Literal("a"), Call("lower", [Literal("B")])]
    )
    assert tree("subject not like 'a!%' escape '!'") == Unary(
        "not", Match("like", subject, Literal("a!%"), "!")
    )
    assert tree("try_cast(subject as decimal(10, 2)) is not true") == Unary(
        "not", Is(Cast(subject, "decimal(10,2)", is_try=True), True)
    )
    assert tree("case subject when 'a' then true end") == Case(
        subject, [(Literal("a"), Literal(True))], None
    )
    assert tree("enqueued_time > timestamp'2026-01-31 08:00:00'") == Binary(
        ">", Name("enqueued_time"), Moment("timestamp", "2026-01-31 08:00:00")
    )
    assert tree("`a b` = 'x'") == same(Name("a b"), "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r"'a\nb\tc\\d'", "a\nb\tc\\d"),
        (r"'a\%b\_c'", r"a\%b\_c"),
        (r"'\u00e9\U0001F600\101'", "\u00e9\U0001f600A"),
        (r'"it\'s ""so"""', 'it\'s "so"'),
        (r"'\q'", "q"),
    ],
)
def test_texts_have_the_escapes_of_sql(text: str, said: str) -> None:
    assert tree(f"subject = {text}") == same(Name("subject"), said)
