"""The index of a topic's rules finds what asking every rule finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.core import message_fields
from shardbus.rules.action import SqlAction
from shardbus.rules.errors import EvaluationError
from shardbus.rules.filter import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlFilter,
    TrueFilter,
)
from shardbus.rules.index import RuleIndex, SubscriptionMatch
from shardbus.rules.values import TEXT, Property, Value, kind_of
from tests.model.rules import reference
from tests.unit.rules.messages import SEED, Sent

NAMES = ["a", "B", "c"]
VALUES: st.SearchStrategy[Value] = st.sampled_from([0, 1, 1.0, True, False, "x", "y", b"x"])
TEXTS = st.sampled_from(["x", "y"])
FIELDS = st.fixed_dictionaries({}, optional={message_fields.LABEL: TEXTS, message_fields.TO: TEXTS})
CHOSEN = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, VALUES))
ACTIONS = [None, None, SqlAction("SET a = a + 1"), SqlAction("SET a = 1 / a; SET sys.To = 'z'")]
SQL = ["a = 1", "1 = 1", "1 = 0", "b = 'x' OR 1 / a = 1", "EXISTS(c) AND sys.Label = 'x'"]


def properties_of(values: dict[str, Value]) -> list[Property]:
    return [Property(name, kind_of(value), value) for name, value in values.items()]


@st.composite
def correlations(draw: st.DrawFn) -> CorrelationFilter:
    fields, chosen = draw(FIELDS), draw(CHOSEN)
    if not fields and not chosen:
        fields = {message_fields.LABEL: "x"}
    return CorrelationFilter(fields, properties_of(chosen))


FILTERS: st.SearchStrategy[Filter] = st.one_of(
    correlations(),
    correlations(),
    correlations(),
    st.sampled_from(SQL).map(SqlFilter),
    st.just(TrueFilter()),
    st.just(FalseFilter()),
)
RULES = st.lists(
    st.tuples(st.integers(1, 4), FILTERS, st.sampled_from(ACTIONS), st.booleans()), max_size=40
)


@settings(max_examples=150, deadline=None)
@given(RULES, FIELDS, CHOSEN)
def test_the_index_finds_what_asking_every_rule_finds(
    drawn: list[tuple[int, Filter, SqlAction | None, bool]],
    fields: dict[int, str],
    chosen: dict[str, Value],
) -> None:
    index = RuleIndex()
    kept: list[tuple[int, Rule]] = []
    for number, (subscription, filter, action, _) in enumerate(drawn):
        index.add(subscription, Rule(f"r{number}", filter, action))
    for number, (subscription, filter, action, is_removed) in enumerate(drawn):
        if is_removed:
            index.remove(subscription, f"R{number}")
        else:
            kept.append((subscription, Rule(f"r{number}", filter, action)))
    system_values: dict[int, Value] = {**fields}
    properties = properties_of(chosen)

    matches = index.match(Sent(system_values, properties), SEED)

    told = [each for match in matches for each in _told(match, system_values, properties)]
    asked = {
        (subscription, *answer)
        for subscription, rule in kept
        for answer in _asked(rule, system_values, properties)
    }
    assert len(told) == len(set(told))
    assert set(told) == asked
    assert [match.subscription for match in matches] == sorted({each[0] for each in asked})


def _told(
    match: SubscriptionMatch, fields: dict[int, Value], properties: list[Property]
) -> list[tuple[int, str, str]]:
    found = [(match.subscription, "plain", "")] if match.is_plain else []
    for copy in match.copies:
        changes = copy.changes
        result = _shown({**fields, **changes.system}, changes.applied(properties))
        found.append((match.subscription, f"copy {copy.rule_name}", result))
    for failure in match.failures:
        found.append((match.subscription, f"failure {failure.rule_name}", ""))
    return found


def _asked(
    rule: Rule, fields: dict[int, Value], properties: list[Property]
) -> list[tuple[str, str]]:
    world = reference.World(fields, properties, [], SEED)
    try:
        if not _matches(rule.filter, world):
            return []
        if rule.action is None:
            return [("plain", "")]
        reference.run(rule.action.statements, world)
    except EvaluationError:
        return [(f"failure {rule.name}", "")]
    stamped = [*world.properties, Property("RuleName", TEXT, rule.name)]
    return [(f"copy {rule.name}", _shown(world.system, stamped))]


def _shown(fields: dict[int, Value], properties: list[Property]) -> str:
    return f"{sorted(fields.items())} {sorted(repr(each) for each in properties)}"


def _matches(filter: Filter, world: reference.World) -> bool:
    match filter:
        case TrueFilter():
            return True
        case FalseFilter():
            return False
        case SqlFilter():
            return reference.truth(filter.condition, world) is True
        case CorrelationFilter():
            fields = [(text, world.system.get(n)) for n, text in filter.fields.items()]
            named = [(each, world.find(each.name)) for each in filter.properties]
            pairs = [(each.value, None if found is None else found.value) for each, found in named]
            return all(reference.correlates(*pair) for pair in [*fields, *pairs])
