"""Written and read again a namespace is the same, unless the form says that it could not say it."""

import json
import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC, EntityKind
from shardbus.app.cli.entities.rule_atom import (
    CORRELATION,
    FALSE,
    FIELDS,
    SQL,
    TRUE,
    AtomRule,
    Typed,
)
from shardbus.app.setup.arm.writer import write_template
from shardbus.app.setup.canonical import duration_text, rights_form, rule_form
from shardbus.app.setup.emulator import write_emulator
from shardbus.app.setup.files import read_json
from shardbus.app.setup.model import (
    RIGHTS,
    SUBSCRIPTIONS_SEGMENT,
    Blueprint,
    DeclaredAccessRule,
    DeclaredEntity,
)
from shardbus.app.setup.toml_form import read_toml
from shardbus.app.setup.toml_writer import write_toml
from shardbus.core.namespace.property import DESTINATION, DURATION, FLAG, MEGABYTES, NUMBER

EXAMPLES_MAX = 60
LETTERS = "abcXYZ019"
NAMES = st.text(LETTERS + "-_.", min_size=1, max_size=12).map(lambda name: f"n{name}n")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t\"'[]{}#=\\"))
RULE_NAMES = st.text(LETTERS + "$ '[]()~", min_size=1, max_size=12).map(lambda name: f"r{name}r")
# The emulator's form may say less than 20 s, and means 20 s by it.
DURATIONS = st.integers(20, 10**10).map(lambda seconds: duration_text(f"PT{seconds}S"))
TYPED = st.one_of(
    st.tuples(st.just("string"), TEXTS),
    st.tuples(st.just("int"), st.integers(-(2**31), 2**31 - 1).map(str)),
    st.tuples(st.just("long"), st.integers(-(2**63), 2**63 - 1).map(str)),
    st.tuples(st.just("double"), st.floats(allow_nan=False).map(str)),
    st.tuples(st.just("boolean"), st.sampled_from(["true", "false"])),
    st.tuples(st.just("duration"), DURATIONS),
    st.tuples(st.just("guid"), st.uuids().map(str)),
    st.tuples(st.just("dateTime"), st.datetimes().map(lambda moment: moment.isoformat())),
)


TEXTS_OF = {
    FLAG: st.sampled_from(["true", "false"]),
    NUMBER: st.integers(0, 10**9).map(str),
    MEGABYTES: st.integers(1, 80).map(lambda gigabytes: str(gigabytes * 1024)),
    DURATION: DURATIONS,
    DESTINATION: PATHS | st.just(""),
}


def elements_of(kind: EntityKind) -> st.SearchStrategy[dict[str, str]]:
    every = {each.element: TEXTS_OF.get(each.form, TEXTS) for each in kind.options}
    return st.fixed_dictionaries({}, optional=every)


def typed_values() -> st.SearchStrategy[tuple[Typed, ...]]:
    values = st.dictionaries(TEXTS.filter(lambda name: not name.startswith("@")), TYPED, max_size=3)
    return values.map(
        lambda found: tuple(Typed(name, kind, text) for name, (kind, text) in found.items())
    )


@st.composite
def rules(draw: st.DrawFn) -> AtomRule:
    rule = AtomRule(
        draw(RULE_NAMES),
        draw(st.sampled_from([SQL, CORRELATION, TRUE, FALSE])),
        draw(TEXTS),
        draw(typed_values()),
        draw(st.dictionaries(st.sampled_from(FIELDS), TEXTS, min_size=1)),
        draw(typed_values()),
        draw(TEXTS),
        draw(typed_values()),
    )
    return rule_form(rule)


@st.composite
def access_rules(draw: st.DrawFn) -> DeclaredAccessRule:
    rights = rights_form(draw(st.lists(st.sampled_from(RIGHTS), min_size=1)))
    keys = draw(st.sampled_from([("", ""), ("one", ""), ("one", "two")]))
    return DeclaredAccessRule(draw(NAMES), rights, *keys)


def lists(
    each: st.SearchStrategy[DeclaredAccessRule],
) -> st.SearchStrategy[tuple[DeclaredAccessRule, ...]]:
    return st.lists(each, max_size=2, unique_by=lambda rule: rule.name.lower()).map(tuple)


@st.composite
def blueprints(draw: st.DrawFn) -> Blueprint:
    names = draw(st.lists(PATHS, max_size=4, unique_by=str.lower))
    at = draw(st.integers(0, len(names)))
    whole = Blueprint(access_rules=list(draw(lists(access_rules()))))
    for name in names[:at]:
        access = draw(lists(access_rules()))
        whole.entities.append(
            DeclaredEntity(QUEUE, name, draw(elements_of(QUEUE)), access_rules=access)
        )
    for name in names[at:]:
        access = draw(lists(access_rules()))
        whole.entities.append(
            DeclaredEntity(TOPIC, name, draw(elements_of(TOPIC)), access_rules=access)
        )
        for below in draw(st.lists(NAMES, max_size=2, unique_by=str.lower)):
            made = st.lists(rules(), max_size=2, unique_by=lambda rule: rule.name.lower())
            whole.entities.append(
                DeclaredEntity(
                    SUBSCRIPTION,
                    name + SUBSCRIPTIONS_SEGMENT + below,
                    draw(elements_of(SUBSCRIPTION)),
                    draw(st.none() | made.map(tuple)),
                )
            )
    return whole


def plainer(whole: Blueprint) -> Blueprint:
    """What both of their forms can say."""
    entities = [
        DeclaredEntity(
            entity.kind,
            entity.path,
            {
                name: text
                for name, text in entity.elements.items()
                if name not in ("UserMetadata", "SupportOrdering")
            },
            tuple(map(plain_rule, entity.rules or ())) or None,
        )
        for entity in whole.entities
    ]
    return Blueprint(entities)


def plain_rule(rule: AtomRule) -> AtomRule:
    kinds = ("string", "int", "boolean")
    properties = tuple(value for value in rule.properties if value.type in kinds)
    return AtomRule(
        rule.name, rule.filter, rule.expression, (), rule.fields, properties, rule.action
    )


def read(text: str) -> Blueprint:
    value: object = json.loads(text)
    return read_json(value, "f.json", {})


@settings(max_examples=EXAMPLES_MAX)
@given(blueprints())
def test_our_own_form_says_everything(whole: Blueprint) -> None:
    text = write_toml(whole, with_keys=True)

    again = read_toml(tomllib.loads(text), text, "f.toml", ())

    assert again.entities == whole.entities
    assert again.access_rules == whole.access_rules


@settings(max_examples=EXAMPLES_MAX)
@given(blueprints())
def test_our_own_form_without_keys_has_none_of_them(whole: Blueprint) -> None:
    text = write_toml(whole, with_keys=False)

    assert "primary-key =" not in text
    assert "secondary-key =" not in text


@settings(max_examples=EXAMPLES_MAX)
@given(blueprints())
def test_the_emulators_form_is_the_same_or_says_why_not(whole: Blueprint) -> None:
    text, losses = write_emulator(whole)

    again = read(text)

    # Empty metadata are as good as none, so that nothing is said of them and nothing is lost.
    is_blank = any(entity.elements.get("UserMetadata") == "" for entity in whole.entities)
    if not losses and not is_blank:
        assert again.entities == whole.entities
    assert [entity.path for entity in again.entities] == [e.path for e in whole.entities]


@settings(max_examples=EXAMPLES_MAX)
@given(blueprints())
def test_a_template_is_the_same_or_says_why_not(whole: Blueprint) -> None:
    text, losses = write_template(whole, with_keys=True)

    again = read(text)

    if not losses:
        assert again.entities == whole.entities
        assert again.access_rules == whole.access_rules
    assert [entity.path for entity in again.entities] == [e.path for e in whole.entities]


@settings(max_examples=EXAMPLES_MAX)
@given(blueprints())
def test_nothing_is_lost_of_what_their_forms_can_say(whole: Blueprint) -> None:
    plain = plainer(whole)
    (emulator, no_losses), (template, none_either) = (
        write_emulator(plain),
        write_template(plain, with_keys=True),
    )

    assert (no_losses, none_either) == ([], [])
    assert read(emulator).entities == plain.entities
    assert read(template).entities == plain.entities
