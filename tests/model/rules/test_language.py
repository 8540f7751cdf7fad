"""The compiled plan says what the reference says, and a rendered tree is parsed to itself."""

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from shardbus.core.errors import Refused
from shardbus.rules.action import SqlAction
from shardbus.rules.errors import EvaluationError
from shardbus.rules.filter import SqlFilter
from shardbus.rules.limits import EXPRESSION_CHARACTERS_MAX
from shardbus.rules.parser import parse_action, parse_filter
from shardbus.rules.tree import Condition, Statement
from shardbus.rules.values import Property, Value
from tests.model.rules import draw, reference
from tests.model.rules.shape import shape
from tests.support.render import render_action, render_filter
from tests.unit.rules.messages import SEED, TRUTHS, Sent, scope_of

FAILED = "failed"


@settings(max_examples=300, deadline=None)
@given(draw.CONDITIONS)
def test_a_filter_that_is_rendered_and_parsed_again_is_the_same_tree(tree: Condition) -> None:
    text = render_filter(tree)
    assume(len(text) <= EXPRESSION_CHARACTERS_MAX)

    again = parse_filter(text)

    assert shape(again) == shape(tree)
    assert render_filter(again) == text


@settings(max_examples=100, deadline=None)
@given(draw.STATEMENTS)
def test_an_action_that_is_rendered_and_parsed_again_is_the_same_tree(
    statements: list[Statement],
) -> None:
    text = render_action(statements)
    assume(len(text) <= EXPRESSION_CHARACTERS_MAX)

    assert shape(parse_action(text)) == shape(statements)


@settings(max_examples=600, deadline=None)
@given(draw.CONDITIONS, draw.SYSTEM, draw.PROPERTIES, draw.GIVEN)
@example(parse_filter("a + 1 > 0"), {}, [Property("A", 9, 2**63 - 1)], [])
@example(parse_filter("FALSE AND 1 / 0 = 1 OR a IN (1 / 0)"), {}, [], [])
def test_a_compiled_filter_agrees_with_the_reference_also_in_failing(
    tree: Condition, system: dict[int, Value], properties: list[Property], given: list[Property]
) -> None:
    text = render_filter(tree)
    assume(len(text) <= EXPRESSION_CHARACTERS_MAX)
    try:
        check = SqlFilter(text, given).check
    except Refused as refusal:
        # The one thing that only shows when it is compiled: a constant pattern that is not one.
        assert (
            "ESCAPE must have one" in refusal.message or "ends with its escape" in refusal.message
        )
        return

    compiled: object
    try:
        compiled = TRUTHS[check.truth(scope_of(Sent(system, properties)))]
    except EvaluationError:
        compiled = FAILED

    assert compiled == _referred(tree, reference.World(system, properties, given, SEED))


def _referred(tree: Condition, world: reference.World) -> object:
    try:
        return reference.truth(tree, world)
    except EvaluationError:
        return FAILED


@settings(max_examples=300, deadline=None)
@given(draw.STATEMENTS, draw.SYSTEM, draw.PROPERTIES, draw.GIVEN)
def test_a_compiled_action_agrees_with_the_reference_also_in_failing(
    statements: list[Statement],
    system: dict[int, Value],
    properties: list[Property],
    given: list[Property],
) -> None:
    text = render_action(statements)
    assume(len(text) <= EXPRESSION_CHARACTERS_MAX)
    world = reference.World(system, properties, given, SEED)
    try:
        reference.run(statements, world)
    except EvaluationError:
        world.system, world.properties = {-1: FAILED}, []

    message = Sent(system, properties)
    try:
        changes = SqlAction(text, given).run(scope_of(message))
    except EvaluationError:
        assert world.system == {-1: FAILED}
        return

    assert _comparable(changes.applied(properties)) == _comparable(world.properties)
    assert {**system, **changes.system} == world.system


def _comparable(properties: list[Property]) -> list[str]:
    """In any order; by their text, because a NaN is not equal to itself."""
    return sorted(repr(each) for each in properties)


@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=12), st.text("ab%_!", max_size=10))
def test_like_agrees_with_the_reference_on_patterns_of_wildcards(text: str, pattern: str) -> None:
    assume(not pattern.endswith("!"))
    tree = parse_filter(f"'{text}' LIKE '{pattern}' ESCAPE '!'")

    compiled = SqlFilter(f"a LIKE '{pattern}' ESCAPE '!'").check
    scope = scope_of(Sent({}, [Property("a", 14, text)]))

    assert TRUTHS[compiled.truth(scope)] == reference.truth(tree, reference.World({}, [], [], SEED))
