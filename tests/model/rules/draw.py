"""Trees, messages and parameters, as Hypothesis draws them: few names and values, so they meet."""

from decimal import Decimal

from hypothesis import strategies as st

from shardbus.core import message_fields
from shardbus.rules import system
from shardbus.rules.tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Exists,
    Expression,
    Field,
    Holds,
    IsIn,
    IsNull,
    Like,
    Lookup,
    NewId,
    Not,
    Parameter,
    RemoveField,
    SetField,
    Sign,
    Statement,
    SystemField,
    UserField,
)
from shardbus.rules.values import (
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    SYMBOL,
    TEXT,
    UBYTE,
    Duration,
    Guid,
    Moment,
    Property,
    Value,
    kind_of,
)

NAMES = ["a", "A", "b", "Größe", "order id", "a]b", "and", "SET"]
PARAMETERS = ["p", "q", "r"]
_NUMBERS = [
    message_fields.LABEL,
    message_fields.MESSAGE_ID,
    message_fields.TIME_TO_LIVE,
    message_fields.ENQUEUED_TIME,
    message_fields.SIZE,
]
_EDGES = [0, 1, -1, 2, 3, 7, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]

TEXTS = st.one_of(
    st.sampled_from(["", "a", "b", "ab", "aab", "b%", "a_b", "%b", "_", "%a%", "A", "1"]),
    st.text("ab%_!", max_size=6),
)
_LITERALS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(_EDGES),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, float(2**53), 1e308]),
    TEXTS,
)
VALUES: st.SearchStrategy[Value] = st.one_of(
    _LITERALS,
    st.just(2**64 - 1),
    st.sampled_from([float("nan"), float("inf")]),
    st.sampled_from([b"", b"a"]),
    st.decimals(-10, 10, places=2),
    st.sampled_from([Decimal(0), Decimal(1), Decimal("1.0"), Decimal(2**96 - 1)]),
    st.sampled_from([Guid(bytes(16)), Guid(bytes([1] * 16))]),
    st.sampled_from([0, 1, 2**63 - 1]).map(Moment),
    st.sampled_from([0, 1, -1, -(2**63)]).map(Duration),
)


def _other_kinds(value: Value) -> list[int]:
    """Kinds in which a sender may have sent this value."""
    if isinstance(value, str):
        return [TEXT, SYMBOL] if value.isascii() else [TEXT]
    if isinstance(value, float):
        return [DOUBLE, FLOAT] if value in (0.5, 1.0) else [DOUBLE]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 7:
        return [LONG, INT, SHORT, UBYTE]
    return [kind_of(value)]


@st.composite
def named(draw: st.DrawFn, names: list[str]) -> Property:
    value = draw(VALUES)
    return Property(draw(st.sampled_from(names)), draw(st.sampled_from(_other_kinds(value))), value)


PROPERTIES = st.lists(named(NAMES), max_size=6)
SYSTEM: st.SearchStrategy[dict[int, Value]] = st.fixed_dictionaries(
    {},
    optional={
        message_fields.LABEL: TEXTS,
        message_fields.MESSAGE_ID: TEXTS,
        message_fields.CORRELATION_ID: TEXTS,
        message_fields.TIME_TO_LIVE: st.integers(0, 9).map(Duration),
        message_fields.ENQUEUED_TIME: st.integers(0, 9).map(Moment),
        message_fields.SIZE: st.integers(0, 9),
    },
)
GIVEN = st.tuples(*(named([name]) for name in PARAMETERS)).map(list)

_FIELDS: st.SearchStrategy[Field] = st.one_of(
    st.sampled_from(NAMES).map(lambda name: UserField(0, name)),
    st.sampled_from(_NUMBERS).map(lambda number: SystemField(0, system.ALL[number])),
)
_LEAVES: st.SearchStrategy[Expression] = st.one_of(
    _FIELDS,
    _LITERALS.map(lambda value: Constant(0, value)),
    st.sampled_from(PARAMETERS).map(lambda name: Parameter(0, name)),
    st.just(NewId(0)),
)


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.builds(Sign, st.just(0), st.sampled_from("+-"), inner),
        st.builds(Arithmetic, st.just(0), st.sampled_from("+-*/%"), inner, inner),
        st.builds(Lookup, st.just(0), inner),
    )


EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(_LEAVES, _larger, max_leaves=5)
_PATTERNS: st.SearchStrategy[Expression] = st.one_of(
    TEXTS.map(lambda text: Constant(0, text)), EXPRESSIONS
)
_ESCAPES: st.SearchStrategy[Expression | None] = st.one_of(
    st.none(), st.sampled_from(["!", "_", "", "ab"]).map(lambda text: Constant(0, text)), _LEAVES
)
_OPERATORS = ["=", "<>", "<", "<=", ">", ">="]
_TESTS: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Comparison, st.just(0), st.sampled_from(_OPERATORS), EXPRESSIONS, EXPRESSIONS),
    st.builds(IsNull, st.just(0), _FIELDS),
    st.builds(Exists, st.just(0), _FIELDS),
    st.builds(IsIn, st.just(0), EXPRESSIONS, st.lists(EXPRESSIONS, min_size=1, max_size=4)),
    st.builds(Like, st.just(0), EXPRESSIONS, _PATTERNS, _ESCAPES),
    EXPRESSIONS.map(Holds),
)


def _combined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    parts = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(Not, st.just(0), inner),
        st.builds(AllOf, st.just(0), parts),
        st.builds(AnyOf, st.just(0), parts),
    )


CONDITIONS: st.SearchStrategy[Condition] = st.recursive(_TESTS, _combined, max_leaves=4)

_SETTABLE: st.SearchStrategy[Field] = _FIELDS.filter(
    lambda field: isinstance(field, UserField) or field.property.is_settable
)
STATEMENTS: st.SearchStrategy[list[Statement]] = st.lists(
    st.one_of(
        st.builds(SetField, st.just(0), _SETTABLE, EXPRESSIONS),
        st.sampled_from(NAMES).map(lambda name: RemoveField(0, UserField(0, name))),
    ),
    min_size=1,
    max_size=5,
)
