"""Whatever a rule is told to be, its XML says so; whatever XML arrives, nothing breaks."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.core.errors import Refused
from shardbus.core.namespace.rule_spec import (
    FALSE_FILTER,
    TRUE_FILTER,
    FilterSpec,
    RuleSpec,
    TypedValue,
    correlation_filter,
    sql_filter,
)
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.markup import INSTANCE, escaped, parse
from shardbus.gateway.http.atom.rule_markup import read_rule, write_rule
from shardbus.gateway.http.atom.typed_markup import SCHEMA
from shardbus.rules.document import property_of, typed_value
from shardbus.rules.values import (
    BINARY,
    BOOLEAN,
    DECIMAL,
    DOUBLE,
    DURATION,
    INT,
    LONG,
    NULL,
    TEXT,
    TIMESTAMP,
    ULONG,
    URI,
    UUID,
    Duration,
    Guid,
    Moment,
    Property,
)

# What XML can carry unchanged: it turns a bare carriage return into a line feed.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\n"),
    max_size=20,
)
# From the year 1 to the year 9999: what a date of four digits can say.
TICKS = st.integers(-621_355_968_000_000_000, 2_534_023_007_999_999_999)
PROPERTIES = st.one_of(
    st.builds(Property, TEXTS, st.just(TEXT), TEXTS),
    st.builds(Property, TEXTS, st.just(URI), TEXTS),
    st.builds(Property, TEXTS, st.just(BOOLEAN), st.booleans()),
    st.builds(Property, TEXTS, st.just(INT), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.builds(Property, TEXTS, st.just(LONG), st.integers(1 << 31, (1 << 63) - 1)),
    st.builds(Property, TEXTS, st.just(ULONG), st.integers(1 << 63, (1 << 64) - 1)),
    st.builds(Property, TEXTS, st.just(DOUBLE), st.floats(allow_nan=False)),
    st.builds(
        Property, TEXTS, st.just(DECIMAL), st.decimals(-(10**9), 10**9, places=3).map(Decimal)
    ),
    st.builds(Property, TEXTS, st.just(TIMESTAMP), TICKS.map(Moment)),
    st.builds(Property, TEXTS, st.just(DURATION), TICKS.map(Duration)),
    st.builds(Property, TEXTS, st.just(UUID), st.binary(min_size=16, max_size=16).map(Guid)),
    st.builds(Property, TEXTS, st.just(BINARY), st.binary(max_size=20)),
    st.builds(Property, TEXTS, st.just(NULL), st.none()),
)
VALUES = st.lists(PROPERTIES.map(typed_value), max_size=4)
FIELDS = st.dictionaries(st.sampled_from(["CorrelationId", "To", "Label", "ContentType"]), TEXTS)
FILTERS = st.one_of(
    st.builds(FilterSpec, st.sampled_from([TRUE_FILTER, FALSE_FILTER])),
    st.builds(sql_filter, TEXTS, VALUES),
    st.builds(correlation_filter, FIELDS, VALUES),
)

TYPES = [
    "int", "long", "unsignedByte", "double", "decimal", "boolean", "dateTime", "duration", "guid",
    "base64Binary", "string", "fish",
]  # fmt: skip


@st.composite
def rules(draw: st.DrawFn) -> RuleSpec:
    rule = RuleSpec(draw(TEXTS.filter(bool)), draw(FILTERS), 0)
    rule.action = draw(TEXTS)
    if rule.action:
        rule.action_parameters = draw(VALUES)
    return rule


@given(rules())
def test_a_rule_that_was_written_is_read_back(rule: RuleSpec) -> None:
    """R30."""
    read = read_rule(parse(write_rule(rule).encode()), rule.name)

    assert read.to_document() == rule.to_document()


@given(st.sampled_from(TYPES), TEXTS)
@settings(max_examples=400)
def test_whatever_a_value_says_it_is_read_or_refused(type_name: str, text: str) -> None:
    document = (
        f'<R xmlns="{CONNECT}" xmlns:i="{INSTANCE}"><Filter i:type="CorrelationFilter"><Properties>'
        f"<KeyValueOfstringanyType><Key>k</Key>"
        f'<Value i:type="x:{type_name}" xmlns:x="{SCHEMA}">{escaped(text)}</Value>'
        "</KeyValueOfstringanyType></Properties></Filter></R>"
    )

    try:
        [value] = read_rule(parse(document.encode()), "r").filter.properties
    except Refused as refusal:
        assert refusal.message.startswith("'k' ")
    else:
        assert isinstance(value, TypedValue)
        assert property_of(value).name == "k"
