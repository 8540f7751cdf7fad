"""Rules as stored: the texts and typed values that a client gave.

The rule language (`shardbus.rules`) turns a RuleSpec into a rule that matches messages; for the
rest of the bus it is a document.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.document import Fields

SQL_FILTER: Final = "sql"
TRUE_FILTER: Final = "true"
FALSE_FILTER: Final = "false"
CORRELATION_FILTER: Final = "correlation"

FILTER_KINDS: Final = (SQL_FILTER, TRUE_FILTER, FALSE_FILTER, CORRELATION_FILTER)

DEFAULT_RULE_NAME: Final = "$Default"


@final
class TypedValue:
    """A named value that keeps its type: `kind` is a word of `rules.values.KIND_NAMES`, `text` the
    value in the one form that `rules.document` gives it.
    """

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self.kind = kind
        self.text = text

    def to_document(self) -> list[str]:
        return [self.name, self.kind, self.text]


@final
class FilterSpec:
    """A filter. SQL has an `expression` and `parameters`; correlation has `fields`, by the names of
    system properties (`CorrelationId`, `Label`, ...), and application `properties`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.expression = ""
        self.parameters: list[TypedValue] = []
        self.fields: dict[str, str] = {}
        self.properties: list[TypedValue] = []

    def to_document(self) -> dict[str, object]:
        document: dict[str, object] = {"kind": self.kind}
        if self.kind == SQL_FILTER:
            document["expression"] = self.expression
            document["parameters"] = _documents(self.parameters)
        elif self.kind == CORRELATION_FILTER:
            document["fields"] = dict(self.fields)
            document["properties"] = _documents(self.properties)
        return document


@final
class RuleSpec:
    """A rule of a subscription, to be treated as a value. An empty `action` means that it has
    none.
    """

    def __init__(self, name: str, filter: FilterSpec, created_at_ms: int) -> None:
        self.name = name
        self.filter = filter
        self.created_at_ms = created_at_ms
        self.action = ""
        self.action_parameters: list[TypedValue] = []

    def to_document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "created_at_ms": self.created_at_ms,
            "filter": self.filter.to_document(),
            "action": self.action,
            "action_parameters": _documents(self.action_parameters),
        }


def sql_filter(expression: str, parameters: list[TypedValue] | None = None) -> FilterSpec:
    spec = FilterSpec(SQL_FILTER)
    spec.expression = expression
    spec.parameters = [] if parameters is None else parameters
    return spec


def correlation_filter(
    fields: dict[str, str], properties: list[TypedValue] | None = None
) -> FilterSpec:
    spec = FilterSpec(CORRELATION_FILTER)
    spec.fields = fields
    spec.properties = [] if properties is None else properties
    return spec


def default_rule(now_ms: int) -> RuleSpec:
    """The rule of a subscription whose creator gave none: it matches every message."""
    return RuleSpec(DEFAULT_RULE_NAME, FilterSpec(TRUE_FILTER), now_ms)


def rule_spec_from_document(value: object) -> RuleSpec:
    """Read a rule that `to_document` wrote; ValueError when the document is not a rule."""
    fields = Fields(value, "rule")
    rule = RuleSpec(
        fields.text("name"),
        _filter_from_document(fields.value("filter")),
        fields.integer("created_at_ms"),
    )
    rule.action = fields.text("action")
    rule.action_parameters = _typed_values(fields, "action_parameters")
    return rule


def _filter_from_document(value: object) -> FilterSpec:
    fields = Fields(value, "filter")
    kind = fields.text("kind")
    if kind not in FILTER_KINDS:
        raise ValueError(f"'{kind}' is not a filter; filters are {', '.join(FILTER_KINDS)}")
    spec = FilterSpec(kind)
    if kind == SQL_FILTER:
        spec.expression = fields.text("expression")
        spec.parameters = _typed_values(fields, "parameters")
    elif kind == CORRELATION_FILTER:
        spec.fields = _texts(fields.value("fields"))
        spec.properties = _typed_values(fields, "properties")
    return spec


def _documents(values: list[TypedValue]) -> list[list[str]]:
    return [value.to_document() for value in values]


def _typed_values(fields: Fields, name: str) -> list[TypedValue]:
    found: list[TypedValue] = []
    for value in fields.values(name):
        parts: list[object] = value if isinstance(value, list) else []
        words = [part for part in parts if isinstance(part, str)]
        if len(parts) != 3 or len(words) != 3:
            raise ValueError(f"field '{name}' of the rule holds a value that is not a typed value")
        found.append(TypedValue(words[0], words[1], words[2]))
    return found


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("the fields of a correlation filter are not an object")
    texts: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError("a field of a correlation filter is not text")
        texts[name] = text
    return texts
