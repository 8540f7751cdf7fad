"""A namespace in our own TOML format."""

import json
import re
from typing import Final

from shardbus.app.cli.duration import FOREVER_ISO, to_words
from shardbus.app.cli.entities.atom import QUEUE, TOPIC
from shardbus.app.cli.entities.entity_options import MB_PER_GB
from shardbus.app.cli.entities.rule_atom import FALSE, SQL, AtomRule, Typed
from shardbus.app.setup.canonical import typed_form
from shardbus.app.setup.model import (
    Blueprint,
    DeclaredAccessRule,
    DeclaredEntity,
    DeclaredPipeline,
)
from shardbus.app.setup.pipeline_form import pipeline_values
from shardbus.app.setup.toml_form import FIELD_KEYS
from shardbus.core.namespace.property import DURATION, FLAG, MEGABYTES, NUMBER, EntityProperty

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_CONTROL: Final = re.compile("[\x7f]")


def write_toml(blueprint: Blueprint, *, with_keys: bool) -> str:
    """The file; without keys access rules have none, and the bus generates new ones."""
    blocks = [_access("access-rule", rule, with_keys) for rule in blueprint.access_rules]
    for queue in blueprint.of_kind(QUEUE):
        blocks += _entity("queue", queue, with_keys)
    for topic in blueprint.of_kind(TOPIC):
        blocks += _entity("topic", topic, with_keys)
        for subscription in blueprint.subscriptions_of(topic):
            blocks += _entity("topic.subscription", subscription, with_keys)
    blocks += map(_pipeline, blueprint.pipelines)
    return "\n".join(blocks)


def _entity(header: str, entity: DeclaredEntity, with_keys: bool) -> list[str]:
    lines = [("name", _text(entity.name))]
    for each in entity.kind.options:
        if each.element in entity.elements:
            lines.append((each.option, _element(each, entity.elements[each.element])))
    if entity.rules is not None and not entity.rules:
        lines.append(("rule", "[]"))
    blocks = [_block(header, lines)]
    blocks += [_rule(f"{header}.rule", rule) for rule in entity.rules or ()]
    blocks += [_access(f"{header}.access-rule", rule, with_keys) for rule in entity.access_rules]
    return blocks


def _rule(header: str, rule: AtomRule) -> str:
    lines = [("name", _text(rule.name))]
    if rule.filter == SQL:
        lines.append(("sql", _text(rule.expression)))
    if rule.filter == FALSE:
        lines.append(("never", "true"))
    lines += [(FIELD_KEYS[name], _text(text)) for name, text in rule.fields.items()]
    if rule.action:
        lines.append(("action", _text(rule.action)))
    bags = (
        ("parameters", rule.parameters),
        ("properties", rule.properties),
        ("action-parameters", rule.action_parameters),
    )
    lines += [(key, _table(values)) for key, values in bags if values]
    return _block(header, lines)


def _access(header: str, rule: DeclaredAccessRule, with_keys: bool) -> str:
    rights = ", ".join(map(_text, rule.rights))
    lines = [("name", _text(rule.name)), ("rights", f"[{rights}]")]
    if with_keys:
        keys = (("primary-key", rule.primary_key), ("secondary-key", rule.secondary_key))
        lines += [(name, _text(key)) for name, key in keys if key]
    return _block(header, lines)


def _pipeline(declared: DeclaredPipeline) -> str:
    values = pipeline_values(declared)
    return _block("pipeline", [(key, _value(value)) for key, value in values.items()])


def _value(value: object) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(str(name))} = {_value(each)}" for name, each in value.items())
        return f"{{ {inside} }}"
    return json.dumps(value) if isinstance(value, bool | int) else _text(str(value))


def _block(header: str, lines: list[tuple[str, str]]) -> str:
    return f"[[{header}]]\n" + "".join(f"{key} = {value}\n" for key, value in lines)


def _element(each: EntityProperty, text: str) -> str:
    if each.form in (FLAG, NUMBER):
        return text
    if each.form == MEGABYTES:
        return str(int(text) // MB_PER_GB)
    if each.form == DURATION:
        # One unit is shorter than ISO; two units could not be read back.
        words = "forever" if text == FOREVER_ISO else to_words(text)
        return _text(text if " " in words or "." in words else words)
    return _text(text)


def _table(values: tuple[Typed, ...]) -> str:
    inside = ", ".join(f"{_key(value.name)} = {_typed(typed_form(value))}" for value in values)
    return f"{{ {inside} }}"


def _typed(value: Typed) -> str:
    match value.type:
        case "string":
            return _text(value.text)
        case "int" | "boolean" | "double":
            return value.text
    return f"{{ type = {_text(value.type)}, value = {_text(value.text)} }}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    # A JSON text is a TOML text, except for one character that TOML requires escaped.
    return _CONTROL.sub("\\\\u007f", json.dumps(text, ensure_ascii=False))
