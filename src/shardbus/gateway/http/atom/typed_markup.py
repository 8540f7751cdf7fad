"""Values that keep their type, in XML: the properties and parameters of rules."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.rule_spec import TypedValue
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.markup import INSTANCE, Element, escaped, tag
from shardbus.rules.document import property_of, typed_value
from shardbus.rules.limits import PARAMETERS_MAX
from shardbus.rules.values import (
    BINARY,
    BOOLEAN,
    BYTE,
    CHAR,
    DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    LONG,
    NULL,
    OFFSET_TIMESTAMP,
    SHORT,
    SYMBOL,
    TEXT,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    UNZONED_TIMESTAMP,
    URI,
    USHORT,
    UUID,
    Duration,
    Guid,
    Moment,
    Property,
)

SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"

_PAIR: Final = "KeyValueOfstringanyType"
_TEXT_CHARACTERS_MAX: Final = 32 * 1024
_TICKS_PER_S: Final = 10_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_KINDS: Final[dict[str, int]] = {
    "boolean": BOOLEAN,
    "unsignedByte": UBYTE,
    "unsignedShort": USHORT,
    "unsignedInt": UINT,
    "unsignedLong": ULONG,
    "byte": BYTE,
    "short": SHORT,
    "int": INT,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "decimal": DECIMAL,
    "char": CHAR,
    "string": TEXT,
    "anyURI": URI,
    "dateTime": TIMESTAMP,
    "duration": DURATION,
    "guid": UUID,
    "base64Binary": BINARY,
}
_NAMES: Final[dict[int, str]] = {
    **{kind: name for name, kind in _KINDS.items()},
    SYMBOL: "string",
    OFFSET_TIMESTAMP: "dateTime",
    UNZONED_TIMESTAMP: "dateTime",
}
_SPECIAL_FLOATS: Final = {"INF": "inf", "-INF": "-inf", "NaN": "nan"}

_MOMENT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_DURATION: Final = re.compile(
    r"(-)?P(?:(\d{1,8})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,12})(?:\.(\d{1,9}))?S)?)?",
    re.ASCII,
)


def read_pairs(name: str, element: Element | None) -> list[TypedValue]:
    """The keys and values in an element; none when it is missing."""
    if element is None:
        return []
    if len(element.children) > PARAMETERS_MAX:
        raise _invalid(f"{name} has more than {PARAMETERS_MAX} values.")
    return [_read_pair(name, child) for child in element.children]


def write_pairs(name: str, values: list[TypedValue]) -> str:
    """An element with keys and values; nothing when there are none.

    One strict reader refuses an empty element, and requires the attribute `i:type` and a prefix of
    four letters.
    """
    if not values:
        return ""
    return f"<{name}>{''.join(map(_write_pair, values))}</{name}>"


def _read_pair(name: str, pair: Element) -> TypedValue:
    key, value = pair.child(CONNECT, "Key"), pair.child(CONNECT, "Value")
    if (pair.namespace, pair.name) != (CONNECT, _PAIR) or key is None or value is None:
        raise _invalid(f"{name} has an element that is not a {_PAIR} with a Key and a Value.")
    if value.is_nil():
        return typed_value(Property(key.text, NULL, None))
    # The prefix may be bound to any of several namespaces, but the names are the same in all of
    # them.
    word = value.attributes.get((INSTANCE, "type"), "string").rpartition(":")[2]
    if word not in _KINDS:
        raise _invalid(
            f"'{key.text}' in {name} has the type '{word[:60]}', which rules do not support."
        )
    if len(value.text) > _TEXT_CHARACTERS_MAX:
        raise _invalid(f"'{key.text}' in {name} is longer than {_TEXT_CHARACTERS_MAX} characters.")
    try:
        return _typed(key.text, _KINDS[word], value.text)
    except (ValueError, OverflowError, binascii.Error) as error:
        raise _invalid(f"'{key.text}' in {name} is not a valid {word}: {error}.") from error


def _typed(key: str, kind: int, text: str) -> TypedValue:
    if kind in (TEXT, URI, CHAR):
        return typed_value(Property(key, kind, text))
    stripped = text.strip()
    if kind == TIMESTAMP:
        is_zoned = stripped.endswith("Z") or stripped[-6:-5] in ("+", "-")
        written = TIMESTAMP if is_zoned else UNZONED_TIMESTAMP
        return typed_value(Property(key, written, Moment(_moment_ticks(stripped))))
    if kind == DURATION:
        return typed_value(Property(key, kind, Duration(_duration_ticks(stripped))))
    if kind == BINARY:
        return typed_value(Property(key, kind, base64.b64decode(stripped, validate=True)))
    plain = TypedValue(key, typed_value(Property(key, kind, None)).kind, _plain(kind, stripped))
    # Written again, so that there is one form of each value.
    return typed_value(property_of(plain))


def _plain(kind: int, text: str) -> str:
    if kind == BOOLEAN:
        return {"1": "true", "0": "false"}.get(text, text.lower())
    if kind == UUID:
        return text.replace("-", "")
    return _SPECIAL_FLOATS.get(text, text) if kind in (FLOAT, DOUBLE) else text


def _write_pair(value: TypedValue) -> str:
    property = property_of(value)
    head = f"<{_PAIR}>{tag('Key', property.name)}"
    if property.value is None:
        return f'{head}<Value i:nil="true"/></{_PAIR}>'
    return (
        f'{head}<Value i:type="d6p1:{_NAMES[property.kind]}" xmlns:d6p1="{SCHEMA}">'
        f"{escaped(_text_of(value, property))}</Value></{_PAIR}>"
    )


def _text_of(written: TypedValue, property: Property) -> str:
    value = property.value
    if isinstance(value, Moment):
        text = _moment_text(value.ticks)
        return text.removesuffix("Z") if property.kind == UNZONED_TIMESTAMP else text
    if isinstance(value, Duration):
        return _duration_text(value.ticks)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return {text: word for word, text in _SPECIAL_FLOATS.items()}.get(
            written.text, written.text
        )
    return str(value) if isinstance(value, Guid) else written.text


def _moment_ticks(text: str) -> int:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("it is not like 2030-12-31T23:59:59Z")
    year, month, day, hour, minute, second = (int(match.group(at)) for at in range(1, 7))
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    whole_s = (moment - _EPOCH) // timedelta(seconds=1)
    zone = match.group(8) or "Z"
    if zone != "Z":
        offset_s = (int(zone[1:3]) * 60 + int(zone[4:6])) * 60
        whole_s -= -offset_s if zone[0] == "-" else offset_s
    return whole_s * _TICKS_PER_S + _fraction_ticks(match.group(7))


def _moment_text(ticks: int) -> str:
    whole_s, rest = divmod(ticks, _TICKS_PER_S)
    try:
        moment = _EPOCH + timedelta(seconds=whole_s)
    except OverflowError:
        # Only years of four digits can be written; the nearest moment with one is shown.
        moment = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
        moment = moment if ticks > 0 else datetime(1, 1, 1, tzinfo=UTC)
    fraction = f".{rest:07}".rstrip("0") if rest else ""
    return f"{moment.strftime('%Y').rjust(4, '0')}{moment.strftime('-%m-%dT%H:%M:%S')}{fraction}Z"


def _duration_ticks(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise ValueError("it is not like PT1M or P14D")
    days, hours, minutes, seconds = (int(match.group(at) or 0) for at in range(2, 6))
    whole_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    ticks = whole_s * _TICKS_PER_S + _fraction_ticks(match.group(6))
    return -ticks if match.group(1) else ticks


def _duration_text(ticks: int) -> str:
    whole_s, rest = divmod(abs(ticks), _TICKS_PER_S)
    days, in_day_s = divmod(whole_s, 86_400)
    hours, in_hour_s = divmod(in_day_s, 3600)
    minutes, seconds = divmod(in_hour_s, 60)
    fraction = f".{rest:07}".rstrip("0") if rest else ""
    date = f"P{days}D" if days else "P"
    return f"{'-' if ticks < 0 else ''}{date}T{hours}H{minutes}M{seconds}{fraction}S"


def _fraction_ticks(digits: str | None) -> int:
    return int((digits or "").ljust(7, "0")[:7])


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
