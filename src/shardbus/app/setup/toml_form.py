"""Our own format: entities in TOML, with the names of the command line's options."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date, datetime, time
from typing import Final, final

from shardbus.app.cli.duration import to_iso
from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC, EntityKind
from shardbus.app.cli.entities.entity_options import MB_PER_GB
from shardbus.app.cli.entities.rule_atom import (
    CORRELATION,
    FALSE,
    FIELDS,
    SQL,
    TRUE,
    AtomRule,
    Typed,
)
from shardbus.app.setup.canonical import TYPES, element_text, rights_form, rule_form
from shardbus.app.setup.model import (
    SUBSCRIPTIONS_SEGMENT,
    Blueprint,
    DeclaredAccessRule,
    DeclaredEntity,
    checked,
)
from shardbus.app.setup.node import PlacedValue
from shardbus.app.setup.pipeline_form import read_pipeline
from shardbus.app.setup.theirs import typed_value
from shardbus.core.namespace.property import DURATION, FLAG, MEGABYTES, NUMBER, EntityProperty

ENTITY_KEYS: Final = ("queue", "topic", "access-rule", "pipeline")
"""What a file may have besides settings."""

FIELD_KEYS: Final = {name: re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower() for name in FIELDS}
RULE_KEYS: Final = (
    "name",
    "sql",
    "parameters",
    *FIELD_KEYS.values(),
    "properties",
    "never",
    "action",
    "action-parameters",
)
ACCESS_KEYS: Final = ("name", "rights", "primary-key", "secondary-key")
_BELOW: Final = {
    QUEUE.word: ("access-rule",),
    TOPIC.word: ("access-rule", "subscription"),
    SUBSCRIPTION.word: ("rule",),
}
_HEADER: Final = re.compile(r"\s*\[(\[)?\s*([^\[\]]+?)\s*\]?\]")


def read_toml(
    tables: dict[str, object], text: str, file: str, others: Collection[str]
) -> Blueprint:
    """The entities in a file; `others` are keys for other readers."""
    lines = _Lines(text, file)
    root = PlacedValue(tables, "", lines.locate)
    root.refuse_unknown([*ENTITY_KEYS, *others])
    blueprint = Blueprint(says_pipelines=True)
    for queue in root.items_of("queue"):
        blueprint.entities.append(_entity(QUEUE, queue, ""))
    for topic in root.items_of("topic"):
        entity = _entity(TOPIC, topic, "")
        blueprint.entities.append(entity)
        for subscription in topic.items_of("subscription"):
            prefix = entity.path + SUBSCRIPTIONS_SEGMENT
            blueprint.entities.append(_entity(SUBSCRIPTION, subscription, prefix))
    blueprint.access_rules = [_access_rule(node) for node in root.items_of("access-rule")]
    blueprint.pipelines = [read_pipeline(node) for node in root.items_of("pipeline")]
    tier = root.get("tier")
    blueprint.tier = "" if tier is None else tier.text()
    return checked(blueprint)


def _entity(kind: EntityKind, node: PlacedValue, prefix: str) -> DeclaredEntity:
    known = [each.option for each in kind.options]
    node.refuse_unknown(["name", *known, *_BELOW[kind.word]])
    elements: dict[str, str] = {}
    for each in kind.options:
        value = node.get(each.option)
        if value is not None:
            elements[each.element] = _element(each, value)
    return DeclaredEntity(
        kind,
        prefix + node.need("name").name(),
        elements,
        _rules(node) if kind is SUBSCRIPTION else None,
        tuple(_access_rule(rule) for rule in node.items_of("access-rule"))
        if kind is not SUBSCRIPTION
        else (),
        place=node.place,
    )


def _element(each: EntityProperty, node: PlacedValue) -> str:
    try:
        if each.form == FLAG:
            return "true" if node.switch() else "false"
        if each.form == NUMBER:
            return element_text(each, str(node.number()))
        if each.form == MEGABYTES:
            return element_text(each, str(node.number() * MB_PER_GB))
        if each.form == DURATION:
            return element_text(each, to_iso(node.text()))
        return element_text(each, node.text())
    except ValueError as error:
        raise node.wrong(str(error)) from error


def _rules(node: PlacedValue) -> tuple[AtomRule, ...] | None:
    """None when the file says nothing about rules; an empty list means that there are none."""
    return None if node.get("rule") is None else tuple(map(_rule, node.items_of("rule")))


def _rule(node: PlacedValue) -> AtomRule:
    node.refuse_unknown(RULE_KEYS)
    sql, never, action = node.get("sql"), node.get("never"), node.get("action")
    fields = {
        name: value.text()
        for name, key in FIELD_KEYS.items()
        if (value := node.get(key)) is not None
    }
    properties = _typed_values(node, "properties")
    is_never = never is not None and never.switch()
    ways = (sql is not None, bool(fields or properties), is_never)
    if sum(ways) > 1:
        raise node.wrong("a rule can have only one filter: sql, or fields and properties, or never")
    kinds = (SQL, CORRELATION, FALSE)
    rule = AtomRule(
        node.need("name").name(),
        next((kind for kind, is_it in zip(kinds, ways, strict=True) if is_it), TRUE),
        "" if sql is None else sql.text(),
        _typed_values(node, "parameters"),
        fields,
        properties,
        "" if action is None else action.text(),
        _typed_values(node, "action-parameters"),
    )
    if rule.parameters and sql is None:
        raise node.wrong("parameters set the @names in sql: give sql too")
    if rule.action_parameters and not rule.action:
        raise node.wrong("action-parameters set the @names in action: give action too")
    return rule_form(rule)


def _typed_values(node: PlacedValue, key: str) -> tuple[Typed, ...]:
    table = node.get(key)
    members = {} if table is None else table.members()
    return tuple(_typed(name, value) for name, value in members.items())


def _typed(name: str, node: PlacedValue) -> Typed:
    value = node.value
    if isinstance(value, datetime):
        return Typed(name, "dateTime", value.isoformat())
    if isinstance(value, date | time):
        raise node.wrong("a date alone or a time alone is not a value of a message")
    if not isinstance(value, dict):
        return typed_value(node, name)
    node.refuse_unknown(["type", "value"])
    kind = node.need("type")
    if kind.text() not in TYPES:
        raise kind.wrong(f"{kind.text()!r} is not a type; types are {', '.join(TYPES)}")
    return Typed(name, kind.text(), node.need("value").text())


def _access_rule(node: PlacedValue) -> DeclaredAccessRule:
    node.refuse_unknown(ACCESS_KEYS)
    rights = node.need("rights")
    try:
        said = rights_form([right.text() for right in rights.items()])
    except ValueError as error:
        raise rights.wrong(str(error)) from error
    keys = [node.get(key) for key in ACCESS_KEYS[2:]]
    primary, secondary = ("" if key is None else key.text() for key in keys)
    if secondary and not primary:
        raise node.wrong("secondary-key without primary-key")
    return DeclaredAccessRule(node.need("name").name(), said, primary, secondary, node.place)


@final
class _Lines:
    """Finds the line of a path such as `queue[1].lock-duration`, which the parser does not
    report.
    """

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._lines = text.split("\n")
        self._headers: dict[str, int] = {}
        counts: dict[str, int] = {}
        for at, line in enumerate(self._lines):
            header = _HEADER.match(line)
            if header is not None:
                path = _header_path(header.group(2), header.group(1) is not None, counts)
                self._headers[path] = at

    def locate(self, path: str) -> str:
        if not path:
            return self._file
        at = self._line(path)
        return f"{self._file}: {path}" if at is None else f"{self._file}, line {at + 1}: {path}"

    def _line(self, path: str) -> int | None:
        if f"{path}[0]" in self._headers:
            return self._headers[f"{path}[0]"]
        head, key = path, ""
        while head and head not in self._headers:
            head, _, key = head.rpartition(".")
        start = self._headers.get(head, -1)
        if not key:
            return start if start >= 0 else None
        pattern = re.compile(rf"""\s*["']?{re.escape(key.partition("[")[0])}["']?\s*[.=]""")
        for at in range(start + 1, len(self._lines)):
            if _HEADER.match(self._lines[at]):
                break
            if pattern.match(self._lines[at]):
                return at
        return start if start >= 0 else None


def _header_path(name: str, is_list: bool, counts: dict[str, int]) -> str:
    """The path of a header; `counts` has the number of items of each list so far."""
    path = ""
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    for part in parts[:-1]:
        path = f"{path}.{part}".removeprefix(".")
        if path in counts:
            path = f"{path}[{counts[path] - 1}]"
    path = f"{path}.{parts[-1]}".removeprefix(".")
    if not is_list:
        return path
    counts[path] = counts.get(path, 0) + 1
    return f"{path}[{counts[path] - 1}]"
