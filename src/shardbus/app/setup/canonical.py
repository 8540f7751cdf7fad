"""One spelling for each value, so that a file and the bus can be compared."""

import re
from datetime import UTC, datetime
from typing import Final

from shardbus.app.cli.entities.atom import SUBSCRIPTION, AtomDescription, EntityKind
from shardbus.app.cli.entities.rule_atom import CORRELATION, FALSE, SQL, TRUE, AtomRule, Typed
from shardbus.app.setup.model import RIGHTS
from shardbus.core.errors import Refused
from shardbus.core.namespace.address import path_of
from shardbus.core.namespace.property import (
    DESTINATION,
    DURATION,
    FLAG,
    MEGABYTES,
    NUMBER,
    EntityProperty,
)
from shardbus.gateway.http.moment import format_duration, parse_duration

FRAGMENTS_ELSEWHERE: Final = 16
INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
_INTEGERS: Final = (
    "byte",
    "short",
    "int",
    "long",
    "unsignedByte",
    "unsignedShort",
    "unsignedInt",
    "unsignedLong",
)
TYPES: Final = (
    "string",
    "boolean",
    *_INTEGERS,
    "float",
    "double",
    "decimal",
    "char",
    "anyURI",
    "dateTime",
    "duration",
    "guid",
    "base64Binary",
)
"""Types of values in rules, which SDKs may set."""

_NUMBER: Final = re.compile(r"-?\d{1,20}", re.ASCII)
# .NET's form of a time span in older templates: days.hours:minutes:seconds.fraction.
_TIME_SPAN: Final = re.compile(r"(?:(\d{1,8})\.)?(\d\d):(\d\d):(\d\d)(?:\.(\d{1,7}))?", re.ASCII)
_FINE_MOMENT: Final = re.compile(r"\.\d{7}")
_FINE_DURATION: Final = re.compile(r"\.\d{4}")
_SAME_FILTERS: Final = {"1=1": TRUE, "1=0": FALSE}


def element_text(each: EntityProperty, text: str) -> str:
    """The canonical text of an element; ValueError with what is allowed for an invalid one."""
    if each.form == DURATION:
        return duration_text(text)
    if each.form == FLAG:
        return switch_text(text)
    if each.form in (NUMBER, MEGABYTES):
        return number_text(text)
    return path_of(text) if each.form == DESTINATION else text


def duration_text(text: str) -> str:
    try:
        return format_duration(parse_duration("duration", _span_as_iso(text.strip())))
    except Refused as refusal:
        raise ValueError(f"{text!r} is not a duration: write it like PT30S or P14D") from refusal


def switch_text(text: str) -> str:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered


def number_text(text: str) -> str:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 18):
        raise ValueError(f"{text!r} is not a whole number")
    return str(int(stripped))


def described_elements(kind: EntityKind, described: AtomDescription) -> dict[str, str]:
    """The bus's description of an entity, as far as a file can express it; sizes are of each
    fragment.
    """
    elements = {
        each.element: element_text(each, described.elements[each.element])
        for each in kind.options
        if described.elements.get(each.element)
    }
    if kind is not SUBSCRIPTION and described.size_max_mb:
        # The live service tells no number of fragments; a partitioned entity has 16 there.
        each_mb = described.size_max_mb // (described.fragment_count or FRAGMENTS_ELSEWHERE)
        elements["MaxSizeInMegabytes"] = str(each_mb)
    return elements


def rule_form(rule: AtomRule) -> AtomRule:
    """The canonical form of a rule, without its creation time."""
    filter, expression = rule.filter, rule.expression
    if filter == SQL and not rule.parameters:
        filter = _SAME_FILTERS.get(expression.replace(" ", ""), filter)
    is_sql, is_correlation = filter == SQL, filter == CORRELATION
    return AtomRule(
        rule.name,
        filter,
        expression if is_sql else "",
        _parameters(rule.parameters) if is_sql else (),
        dict(sorted(rule.fields.items())) if is_correlation else {},
        _typed_values(rule.properties) if is_correlation else (),
        rule.action,
        _parameters(rule.action_parameters) if rule.action else (),
    )


def typed_form(value: Typed) -> Typed:
    """The canonical form of a typed value; an invalid one is left for the bus to refuse."""
    try:
        kind, text = _typed_text(value.type, value.text)
    except ValueError:
        return value
    return Typed(value.name, kind, text)


def rights_form(rights: list[str]) -> tuple[str, ...]:
    """Rights in their order; Manage includes the other two. ValueError for an unknown word."""
    known = {right.lower(): right for right in RIGHTS}
    unknown = [right for right in rights if right.lower() not in known]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a right; rights are {', '.join(RIGHTS)}")
    if not rights:
        raise ValueError(f"no right is given; rights are {', '.join(RIGHTS)}")
    said = {known[right.lower()] for right in rights}
    return RIGHTS if "Manage" in said else tuple(right for right in RIGHTS if right in said)


def _span_as_iso(text: str) -> str:
    span = _TIME_SPAN.fullmatch(text)
    if span is None:
        return text
    days, hours, minutes, seconds, fraction = span.groups()
    return f"P{days or 0}DT{hours}H{minutes}M{seconds}.{fraction or 0}S"


def _typed_values(values: tuple[Typed, ...]) -> tuple[Typed, ...]:
    return tuple(sorted((typed_form(value) for value in values), key=lambda value: value.name))


def _parameters(values: tuple[Typed, ...]) -> tuple[Typed, ...]:
    # A parameter is `@name` in an expression; the name is given with or without the @.
    return _typed_values(
        tuple(Typed(value.name.removeprefix("@"), value.type, value.text) for value in values)
    )


def _typed_text(kind: str, text: str) -> tuple[str, str]:
    if kind in _INTEGERS and _NUMBER.fullmatch(text.strip()):
        number = int(text)
        # The bus shows every integer that fits as an int, whatever its original type.
        return ("int" if INT_MIN <= number <= INT_MAX else kind), str(number)
    if kind in ("double", "float"):
        return kind, repr(float(text))
    if kind == "boolean":
        return kind, {"1": "true", "0": "false"}.get(text.strip()) or switch_text(text)
    # Values finer than these forms can express stay as they are written.
    if kind == "dateTime" and not _FINE_MOMENT.search(text):
        return kind, _moment_text(text.strip())
    if kind == "duration" and not _FINE_DURATION.search(text):
        return kind, duration_text(text)
    return kind, text


def _moment_text(text: str) -> str:
    moment = datetime.fromisoformat(text)
    in_utc = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return in_utc.isoformat().replace("+00:00", "Z")
