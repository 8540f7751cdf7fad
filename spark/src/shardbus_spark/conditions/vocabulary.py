"""The words of conditions: functions, types, and those that need quotes as column names."""

from __future__ import annotations

from typing import Final

_FUNCTIONS: Final = """
    abs array bigint bit_length boolean ceil ceiling char_length character_length coalesce
    concat concat_ws contains crc32 date date_add date_format date_sub date_trunc datediff day
    dayofmonth dayofweek dayofyear decimal decode double element_at endswith float floor
    get_json_object greatest hash hour if ifnull initcap instr int is_valid_utf8 isnan isnotnull
    isnull least left length like locate lower ltrim make_valid_utf8 map map_concat
    map_contains_key md5 minute mod month named_struct nullif nvl nvl2 octet_length pmod quarter
    regexp_like right round rtrim second sha2 sign size smallint split_part startswith string
    substr substring timestamp to_date to_json to_timestamp trim trunc try_element_at
    try_to_number try_to_timestamp try_validate_utf8 unix_timestamp upper weekday xxhash64 year
"""
FUNCTIONS: Final = frozenset(_FUNCTIONS.split())
CASTS: Final = ("cast", "try_cast")
_TYPES: Final = """
    bigint binary boolean date decimal double float int integer long short smallint string
    timestamp tinyint
"""
TYPES: Final = frozenset(_TYPES.split())
MOMENTS: Final = ("date", "timestamp")
_KEYWORDS: Final = """
    and between case else end escape false ilike in is like not null or regexp rlike then true
    when
"""
KEYWORDS: Final = frozenset(_KEYWORDS.split())
# Words that begin or join queries, or mean something without parentheses: a reader of SQL would not
# take them for a column, so as a column name they need backticks.
_RESERVED: Final = """
    all any anti array as asc at by collate cross cube current_catalog current_database
    current_date current_schema current_time current_timestamp current_user desc describe distinct
    except exists extract filter for from full group grouping having identifier inner insert
    intersect interval into join lateral left limit localtime localtimestamp map minus natural now
    offset on order outer over overlaps partition pivot reduce right row rows select semi
    session_user set sets some sql struct table tablesample timestampadd timestampdiff transform
    union unique unnest unpivot user using values view where window with within
"""
RESERVED: Final = frozenset(_RESERVED.split())
COMPARISONS: Final = ("=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">=")
# From the tightest to the loosest binding, as in Spark's grammar.
LEVELS: Final = (("*", "/", "%"), ("+", "-", "||"), ("&",), ("^",), ("|",), COMPARISONS)
SIGNS: Final = frozenset(sign for level in LEVELS for sign in level) | frozenset("~()[],.")
