"""Whatever stands in a file, it is read or refused with a reason; nothing else happens."""

import tomllib
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.app.setup.arm.expressions import ExpressionError, TemplateScope
from shardbus.app.setup.files import read_json
from shardbus.app.setup.json_text import parse_json
from shardbus.app.setup.model import SetupError
from shardbus.app.setup.toml_form import read_toml

EXAMPLES_MAX = 150
# What the forms are made of.
_WORDS = (
    "UserConfig Namespaces Queues Topics Subscriptions Rules Name Properties FilterType SqlFilter "
    "CorrelationFilter SqlExpression Action Label LockDuration MaxDeliveryCount $schema resources "
    "parameters variables defaultValue type name properties copy count condition sku rights queue "
    "topic subscription rule access-rule sql label never primary-key sessions size-gb"
)
WORDS = st.sampled_from(_WORDS.split())
TYPES = st.sampled_from(["", "/queues", "/topics", "/topics/subscriptions", "/authorizationRules"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5000),
    st.floats(),
    st.text(max_size=5),
    WORDS,
    TYPES.map(lambda kind: f"Microsoft.ServiceBus/namespaces{kind}"),
    st.sampled_from(["a/b", "[parameters('a')]", "[concat('a', '/', 'b')]", "PT5S", "Sql", "["]),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=25,
)
_PARTS = (
    "concat( format( parameters( variables( if( equals( ( ) [ ] . , 'a' '' '{0}' 'b' 1 -1 true() "
    "copyIndex() length( x( resourceGroup() .id unknown ' { #"
)
PARTS = st.sampled_from(_PARTS.split())


@settings(max_examples=EXAMPLES_MAX)
@given(st.lists(TREES, max_size=3), TREES)
def test_json_is_read_or_refused(resources: list[object], other: object) -> None:
    for value in (
        other,
        {"UserConfig": other},
        {"UserConfig": {"Namespaces": [{"Queues": resources, "Topics": other}]}},
        {"$schema": "s", "parameters": other, "resources": resources},
        {"$schema": "s", "parameters": {"a": {"defaultValue": other}}, "resources": resources},
    ):
        with suppress(SetupError):
            read_json(value, "f.json", {})


@settings(max_examples=EXAMPLES_MAX)
@given(st.dictionaries(WORDS, TREES, max_size=4), TREES)
def test_toml_is_read_or_refused(tables: dict[str, object], other: object) -> None:
    topic = {"name": "t", "subscription": other}
    files: list[dict[str, object]] = [tables, {"queue": [tables]}, {"topic": [topic]}]
    for value in files:
        with suppress(SetupError):
            read_toml(value, "queue = 1\n[[queue]]\n", "f.toml", ())


@settings(max_examples=EXAMPLES_MAX)
@given(st.text(max_size=40) | st.lists(PARTS, max_size=10).map("".join))
def test_an_expression_is_worked_out_or_refused(text: str) -> None:
    scope = TemplateScope({"a": "x"}, {"a": f"[{text}]"})

    scope.worked_out(f"[{text}]")
    with suppress(ExpressionError):
        scope.name(f"[{text}]")


@settings(max_examples=EXAMPLES_MAX)
@given(st.text(st.characters(codec="utf-8") | st.sampled_from('{}[]":,/*\\\n'), max_size=60))
def test_texts_are_parsed_or_refused(text: str) -> None:
    with suppress(SetupError):
        parse_json(text, "f.json")
    with suppress(SetupError, tomllib.TOMLDecodeError):
        read_toml(tomllib.loads(text), text, "f.toml", ())
