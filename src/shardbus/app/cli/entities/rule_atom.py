"""Rules as the command line writes and reads them in ATOM documents."""

from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree

from shardbus.app.cli.entities.atom import AtomError, content_of
from shardbus.core.message_fields import COMPARED
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import ATOM
from shardbus.gateway.http.atom.markup import INSTANCE, Element

SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
TYPE: Final = f"{{{INSTANCE}}}type"

SQL: Final = "SqlFilter"
TRUE: Final = "TrueFilter"
FALSE: Final = "FalseFilter"
CORRELATION: Final = "CorrelationFilter"

FIELDS: Final = tuple(each.dialect for each in COMPARED)
# Not a namespace that the serializer declares: it writes a prefix only for names that it sees.
_PREFIX: Final = "d6p1"


@dataclass(frozen=True, slots=True)
class Typed:
    """A named value: `type` is a type of XML Schema, `text` the value in that type's form."""

    name: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class AtomRule:
    """A rule; `filter` is the name of the filter's type in the dialect, an empty action means
    none.
    """

    name: str
    filter: str = TRUE
    expression: str = ""
    parameters: tuple[Typed, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)
    properties: tuple[Typed, ...] = ()
    action: str = ""
    action_parameters: tuple[Typed, ...] = ()
    created_at: str = ""


def write_rule(rule: AtomRule, element_name: str) -> ElementTree.Element:
    """The description of a rule."""
    description = ElementTree.Element(_tag(element_name))
    filter = ElementTree.SubElement(description, _tag("Filter"), {TYPE: rule.filter})
    if rule.filter == SQL:
        _write_sql(filter, rule.expression, rule.parameters)
    elif rule.filter == CORRELATION:
        for name in FIELDS:
            if name in rule.fields:
                ElementTree.SubElement(filter, _tag(name)).text = rule.fields[name]
        _write_pairs(filter, "Properties", rule.properties)
    action = ElementTree.SubElement(description, _tag("Action"))
    action.set(TYPE, "SqlRuleAction" if rule.action else "EmptyRuleAction")
    if rule.action:
        _write_sql(action, rule.action, rule.action_parameters)
    ElementTree.SubElement(description, _tag("Name")).text = rule.name
    return description


def read_rule(entry: Element) -> AtomRule:
    """The rule of an entry; AtomError when the entry has none."""
    description = content_of(entry, "RuleDescription")
    filter = None if description is None else description.child(CONNECT, "Filter")
    if description is None or filter is None:
        raise AtomError("the answer has no rule")
    action = description.child(CONNECT, "Action")
    is_acting = action is not None and _type(action) == "SqlRuleAction"
    return AtomRule(
        name=entry.text_of(ATOM, "title") or "",
        filter=_type(filter),
        expression=filter.text_of(CONNECT, "SqlExpression") or "",
        parameters=_read_pairs(filter, "Parameters"),
        fields=_read_fields(filter),
        properties=_read_pairs(filter, "Properties"),
        action=(action.text_of(CONNECT, "SqlExpression") or "") if action is not None else "",
        action_parameters=_read_pairs(action, "Parameters") if is_acting else (),
        created_at=description.text_of(CONNECT, "CreatedAt") or "",
    )


def _write_sql(parent: ElementTree.Element, expression: str, parameters: tuple[Typed, ...]) -> None:
    ElementTree.SubElement(parent, _tag("SqlExpression")).text = expression
    _write_pairs(parent, "Parameters", parameters)


def _write_pairs(parent: ElementTree.Element, name: str, values: tuple[Typed, ...]) -> None:
    if not values:
        return
    pairs = ElementTree.SubElement(parent, _tag(name))
    for value in values:
        pair = ElementTree.SubElement(pairs, _tag("KeyValueOfstringanyType"))
        ElementTree.SubElement(pair, _tag("Key")).text = value.name
        written = ElementTree.SubElement(pair, _tag("Value"), {TYPE: f"{_PREFIX}:{value.type}"})
        written.set(f"xmlns:{_PREFIX}", SCHEMA)
        written.text = value.text


def _read_pairs(parent: Element | None, name: str) -> tuple[Typed, ...]:
    pairs = None if parent is None else parent.child(CONNECT, name)
    return tuple(
        Typed(
            pair.text_of(CONNECT, "Key") or "",
            _type(pair.child(CONNECT, "Value"), "string").rpartition(":")[2],
            pair.text_of(CONNECT, "Value") or "",
        )
        for pair in ([] if pairs is None else pairs.children)
    )


def _read_fields(filter: Element) -> dict[str, str]:
    texts = {name: filter.text_of(CONNECT, name) for name in FIELDS}
    return {name: text for name, text in texts.items() if text is not None}


def _type(element: Element | None, otherwise: str = "") -> str:
    return "" if element is None else element.attributes.get((INSTANCE, "type"), otherwise)


def _tag(name: str) -> str:
    return f"{{{CONNECT}}}{name}"
