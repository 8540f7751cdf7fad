"""Conditions of replays: what people write passes, and nothing that would run or read (P5)."""

import pytest

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.predicate import CHARACTERS_MAX, DEPTH_MAX, check_predicate

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
    check_predicate(text, COLUMNS)


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
        ("subject = '${env:SHARDBUS_TOKEN}'", "variables"),
        ("subject = ${spark.app.name}", "variables"),
        ("subject = :name", "it cannot be read"),
        ("subject = ?", "it cannot be read"),
        ("subject = @x", "it cannot be read"),
        ("true; drop table t", "it cannot be read"),
        ("subject = 'a' -- and more", "comments"),
        ("subject = r'\\' or reflect('a') = '", "before a text"),
        ("subject = x'00'", "before a text"),
        ("subject = r '\\' or reflect('a') = '", "before a text"),
        ("total = 1 and(select 1)", "'select'"),
        ("timestamp'2026-01-31' < enqueued_time", "space between"),
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
        ("subject = 'a')", "nothing was opened"),
        ("", "empty"),
        (" \n", "empty"),
        ("\x00", "it cannot be read"),
    ],
)  # fmt: skip
def test_what_could_run_or_read_something_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_predicate(text, (*COLUMNS, "select", "from", "table", "exists"))

    assert named in str(refused.value)


def test_length_and_depth_are_bounded() -> None:
    with pytest.raises(OptionError, match="characters"):
        check_predicate("total = 1 or " * CHARACTERS_MAX, COLUMNS)
    with pytest.raises(OptionError, match="parentheses"):
        check_predicate("(" * (DEPTH_MAX + 1) + "total = 1" + ")" * (DEPTH_MAX + 1), COLUMNS)
    check_predicate("(" * DEPTH_MAX + "total = 1" + ")" * DEPTH_MAX, COLUMNS)
