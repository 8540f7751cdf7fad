"""What the emulator's file and ARM templates share: properties and rules of the dialect."""

from typing import Final

from shardbus.app.cli.entities.atom import EntityKind
from shardbus.app.cli.entities.rule_atom import (
    CORRELATION,
    FALSE,
    FIELDS,
    SQL,
    TRUE,
    AtomRule,
    Typed,
)
from shardbus.app.setup.canonical import INT_MAX, INT_MIN, element_text, rule_form
from shardbus.app.setup.node import PlacedValue
from shardbus.core.namespace.property import DESTINATION, TEXT, WORD

# Read-only properties, and properties that mean nothing to this bus.
_PASSED_OVER: Final = (
    "AccessedAt",
    "ClientAffineProperties",
    "CountDetails",
    "CreatedAt",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableSubscriptionPartitioning",
    "EntityAvailabilityStatus",
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "IsClientAffine",
    "MessageCount",
    "SizeInBytes",
    "SubscriptionCount",
    "SupportOrdering",
    "UpdatedAt",
)
_FILTERS: Final = {"sql": SQL, "correlation": CORRELATION, "true": TRUE, "false": FALSE}
_RULE_MEMBERS: Final = ("FilterType", "SqlFilter", "CorrelationFilter", "Action")
_SQL_MEMBERS: Final = ("SqlExpression", "CompatibilityLevel", "RequiresPreprocessing")
_OTHER_NAMES: Final = {"Label": "Subject", "To": "SendTo"}
_BAGS: Final = ("Properties", "ApplicationProperties")
_CORRELATION_MEMBERS: Final = (
    *FIELDS,
    *_OTHER_NAMES.values(),
    *_BAGS,
    "RequiresPreprocessing",
)


def read_elements(
    kind: EntityKind, properties: PlacedValue | None, warnings: list[str]
) -> dict[str, str]:
    """The properties of an entity; unknown ones give a warning."""
    elements: dict[str, str] = {}
    if properties is None:
        return elements
    for each in kind.options:
        node = properties.get(each.element)
        if node is None or (each.form not in (WORD, TEXT, DESTINATION) and node.value == ""):
            continue
        try:
            elements[each.element] = element_text(each, node.plain())
        except ValueError as error:
            raise node.wrong(str(error)) from error
    known = [each.element for each in kind.options]
    warn_unknown(properties, [*known, *_PASSED_OVER], warnings)
    return elements


def read_rule(name: str, properties: PlacedValue | None, warnings: list[str]) -> AtomRule:
    """A rule; without a filter every message matches."""
    if properties is None:
        return AtomRule(name)
    warn_unknown(properties, _RULE_MEMBERS, warnings)
    kind = _filter_kind(properties, warnings)
    action = properties.get("Action")
    return rule_form(
        AtomRule(
            name,
            filter=kind,
            expression=_expression(properties.need("SqlFilter"), warnings) if kind == SQL else "",
            fields=_fields(properties, warnings) if kind == CORRELATION else {},
            properties=_bag(properties) if kind == CORRELATION else (),
            action="" if action is None else _action(action, warnings),
        )
    )


def warn_unknown(
    node: PlacedValue, known: tuple[str, ...] | list[str], warnings: list[str]
) -> None:
    for unknown in node.unknown(known):
        warnings.append(f"{unknown.place}: this is unknown and ignored")


def typed_value(node: PlacedValue, name: str) -> Typed:
    """A value of JSON or TOML with its type there."""
    value = node.value
    if isinstance(value, bool):
        return Typed(name, "boolean", "true" if value else "false")
    if isinstance(value, int):
        return Typed(name, "int" if INT_MIN <= value <= INT_MAX else "long", str(value))
    if isinstance(value, float):
        return Typed(name, "double", repr(value))
    return Typed(name, "string", node.text())


def _filter_kind(properties: PlacedValue, warnings: list[str]) -> str:
    sql, correlation = properties.get("SqlFilter"), properties.get("CorrelationFilter")
    said = properties.get("FilterType")
    if said is None:
        return SQL if sql is not None else CORRELATION if correlation is not None else TRUE
    kind = _FILTERS.get(said.text().lower().removesuffix("filter"))
    if kind is None:
        allowed = "Sql or SqlFilter, Correlation or CorrelationFilter"
        raise said.wrong(f"{said.text()!r} is not a type of filter; types are {allowed}")
    if kind == SQL and sql is None and correlation is not None:
        # Some tools write the type of the other filter beside a correlation filter.
        warnings.append(f"{said.place}: there is only a CorrelationFilter, which is used")
        return CORRELATION
    if kind == CORRELATION and correlation is None:
        raise properties.wrong("CorrelationFilter is missing")
    return kind


def _expression(node: PlacedValue, warnings: list[str]) -> str:
    warn_unknown(node, _SQL_MEMBERS, warnings)
    return node.need("SqlExpression").text()


def _action(node: PlacedValue, warnings: list[str]) -> str:
    warn_unknown(node, _SQL_MEMBERS, warnings)
    expression = node.get("SqlExpression")
    return "" if expression is None else expression.text()


def _fields(properties: PlacedValue, warnings: list[str]) -> dict[str, str]:
    filter = properties.need("CorrelationFilter")
    warn_unknown(filter, _CORRELATION_MEMBERS, warnings)
    fields: dict[str, str] = {}
    for name in FIELDS:
        node = filter.get(name) or filter.get(_OTHER_NAMES.get(name, name))
        if node is not None:
            fields[name] = node.text()
    return fields


def _bag(properties: PlacedValue) -> tuple[Typed, ...]:
    bags = [properties.need("CorrelationFilter").get(name) for name in _BAGS]
    return tuple(
        typed_value(node, name)
        for bag in bags
        if bag is not None
        for name, node in bag.members().items()
    )
