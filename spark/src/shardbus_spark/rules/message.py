"""The properties of a message with their types, which rules need and columns do not have.

Reads the sections of an AMQP message before its body, and not the body. Each
value becomes its kind and a text, in the forms that the documents of rules use for constants.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from shardbus_spark.errors import OptionError
from shardbus_spark.rules.decimals import sort_key

HEADER: Final = 0x70
ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
_BODY: Final = (0x75, 0x76, 0x77)

VIA_PARTITION_KEY: Final = "ViaPartitionKey"
TIME_TO_LIVE: Final = "TimeToLive"
SCHEDULED: Final = "ScheduledEnqueueTimeUtc"
FORCE_PERSISTENCE: Final = "ForcePersistence"
_ANNOTATED: Final = {"x-opt-via-partition-key": "via", "x-opt-scheduled-enqueue-time": "scheduled"}

_TICKS_PER_MS: Final = 10_000
# From the year 1, where the ticks of a datetime-offset begin, to the Unix epoch.
_EPOCH_TICKS: Final = 621_355_968_000_000_000
_UINT_MAX: Final = 0xFFFFFFFF
_TTL_MS_MAX: Final = 2**63 - 1

Scalar = bool | int | float | str | bytes | Decimal | None


class Typed(NamedTuple):
    """A value as a rule sees it: the name of its kind, and its text."""

    kind: str
    text: str


NOTHING: Final = Typed("null", "")


class View(NamedTuple):
    """Application properties by folded name, and system properties by their names in rules."""

    properties: dict[str, Typed]
    system: dict[str, Typed]


def view_of(message: bytes) -> View:
    """Raises ValueError for bytes that are not a message."""
    found = View({}, {FORCE_PERSISTENCE: Typed("boolean", "false")})
    times: dict[str, int] = {}
    try:
        for code, content in _sections(memoryview(message)):
            if code == APPLICATION_PROPERTIES:
                found.properties.update(_application_properties(content))
            elif code == HEADER:
                _read_header(content, found, times)
            elif code == PROPERTIES:
                _read_times(content, times)
            elif code == ANNOTATIONS:
                _read_annotations(content, found)
    except (IndexError, struct.error, UnicodeDecodeError, KeyError) as error:
        raise ValueError(f"the column amqp has bytes that are not a message: {error}") from error
    ttl_ms = _time_to_live(times)
    if ttl_ms is not None:
        found.system[TIME_TO_LIVE] = Typed("timespan", str(ttl_ms * _TICKS_PER_MS))
    return found


def _read_header(content: memoryview, found: View, times: dict[str, int]) -> None:
    fields = [value for _, value in _items(content)]
    if fields and fields[0] is True:
        found.system[FORCE_PERSISTENCE] = Typed("boolean", "true")
    if len(fields) > 2 and isinstance(fields[2], int):
        times["ttl"] = fields[2]


def _read_times(content: memoryview, times: dict[str, int]) -> None:
    fields = [value for _, value in _items(content)]
    for name, place in (("expiry", 8), ("creation", 9)):
        value = fields[place] if len(fields) > place else None
        if isinstance(value, int):
            times[name] = value


def _time_to_live(times: Mapping[str, int]) -> int | None:
    """In milliseconds, as the bus computes it."""
    ttl_ms = times.get("ttl")
    expiry, creation = times.get("expiry", -1), times.get("creation", -1)
    if ttl_ms == _UINT_MAX and expiry >= 0 and creation >= 0:
        return min(max(0, expiry - creation), _TTL_MS_MAX)
    return ttl_ms


def _read_annotations(content: memoryview, found: View) -> None:
    items = list(_items(content))
    for (_, name), (code, value) in zip(items[::2], items[1::2], strict=True):
        what = _ANNOTATED.get(name) if isinstance(name, str) else None
        if what == "via" and isinstance(value, str):
            found.system[VIA_PARTITION_KEY] = Typed("string", value)
        elif what == "scheduled" and isinstance(value, int) and code == 0x83 and value >= 0:
            found.system[SCHEDULED] = Typed("timestamp", str(value * _TICKS_PER_MS))


def _application_properties(content: memoryview) -> Iterator[tuple[str, Typed]]:
    items = list(_items(content))
    for (_, name), (code, value) in zip(items[::2], items[1::2], strict=True):
        if isinstance(name, str):
            yield name.lower(), _typed(code, value)


def _typed(code: int, value: Scalar) -> Typed:
    """Of two properties whose names differ only by case the last one counts, as in the bus."""
    make = _KINDS.get(code)
    if make is None or value is None:
        return NOTHING
    kind, text = make
    return Typed(kind, text(value))


def _whole(value: Scalar) -> str:
    return str(value)


def _flag(value: Scalar) -> str:
    return "true" if value else "false"


def _moment(value: Scalar) -> str:
    assert isinstance(value, int)
    return str(value * _TICKS_PER_MS)


def _offset_moment(value: Scalar) -> str:
    assert isinstance(value, int)
    return str(value - _EPOCH_TICKS)


def _hex(value: Scalar) -> str:
    assert isinstance(value, bytes)
    return value.hex()


def _decimal(value: Scalar) -> str:
    assert isinstance(value, Decimal)
    return sort_key(value)


# Made up for described values, which have no code of their own.
_TIMESPAN: Final = 0x100
_URI: Final = 0x101
_DATETIME_OFFSET: Final = 0x102
_DESCRIBED: Final = {
    "com.microsoft:timespan": (_TIMESPAN, int),
    "com.microsoft:uri": (_URI, str),
    "com.microsoft:datetime-offset": (_DATETIME_OFFSET, int),
}
_OPAQUE: Final = -1

_Kind = tuple[str, Callable[[Scalar], str]]
_KINDS: Final[dict[int, _Kind]] = {
    **dict.fromkeys((0x41, 0x42, 0x56), ("boolean", _flag)),
    0x50: ("ubyte", _whole),
    0x60: ("ushort", _whole),
    **dict.fromkeys((0x70, 0x52, 0x43), ("uint", _whole)),
    **dict.fromkeys((0x80, 0x53, 0x44), ("ulong", _whole)),
    0x51: ("byte", _whole),
    0x61: ("short", _whole),
    **dict.fromkeys((0x71, 0x54), ("int", _whole)),
    **dict.fromkeys((0x81, 0x55), ("long", _whole)),
    0x72: ("float", _whole),
    0x82: ("double", _whole),
    **dict.fromkeys((0x74, 0x84, 0x94), ("decimal", _decimal)),
    0x73: ("char", _whole),
    0x83: ("timestamp", _moment),
    0x98: ("uuid", _hex),
    **dict.fromkeys((0xA0, 0xB0), ("binary", _hex)),
    **dict.fromkeys((0xA1, 0xB1), ("string", _whole)),
    **dict.fromkeys((0xA3, 0xB3), ("symbol", _whole)),
    _TIMESPAN: ("timespan", _whole),
    _URI: ("uri", _whole),
    _DATETIME_OFFSET: ("datetime-offset", _offset_moment),
}

_FIXED: Final[dict[int, str]] = {
    0x50: ">B", 0x60: ">H", 0x70: ">I", 0x52: ">B", 0x80: ">Q", 0x53: ">B", 0x51: ">b",
    0x61: ">h", 0x71: ">i", 0x54: ">b", 0x81: ">q", 0x55: ">b", 0x72: ">f", 0x82: ">d", 0x83: ">q",
}  # fmt: skip
_PLAIN: Final[dict[int, Scalar]] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def _sections(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The sections before the body: their codes, and their values."""
    at = 0
    while at < len(message):
        if message[at] != 0:
            raise ValueError("the column amqp has bytes that are not a message")
        is_small = message[at + 1] == 0x53
        code = message[at + 2] if is_small else message[at + 9]
        if code in _BODY:
            return
        at += 3 if is_small else 10
        end = _end(message, at)
        yield code, message[at:end]
        at = end


def _items(content: memoryview) -> Iterator[tuple[int, Scalar]]:
    """The elements of a list or map: the code of each, and its value."""
    code = content[0]
    if code == 0x45:
        return
    wide = code in (0xD0, 0xD1)
    count = struct.unpack_from(">I", content, 5)[0] if wide else content[2]
    at = 9 if wide else 3
    for _ in range(count):
        end = _end(content, at)
        yield _described(content[at:end]) if content[at] == 0 else _value(content[at:end])
        at = end


def _described(value: memoryview) -> tuple[int, Scalar]:
    at = _end(value, 1)
    _, descriptor = _value(value[1:at])
    known = _DESCRIBED.get(descriptor) if isinstance(descriptor, str) else None
    inner_code, inner = _value(value[at:]) if value[at] != 0 else (_OPAQUE, None)
    is_long = inner_code in (0x81, 0x55)
    if known is None or (known[1] is int and not is_long) or not isinstance(inner, known[1]):
        return _OPAQUE, None
    return known[0], inner


def _value(value: memoryview) -> tuple[int, Scalar]:
    """The code and the value; None for lists, maps and arrays."""
    code = value[0]
    if code in _PLAIN:
        return code, _PLAIN[code]
    if code == 0x56:
        return code, value[1] == 1
    if code in _FIXED:
        return code, struct.unpack_from(_FIXED[code], value, 1)[0]
    if code == 0x73:
        return code, chr(struct.unpack_from(">I", value, 1)[0])
    if code in (0x74, 0x84, 0x94):
        return code, _decimal_of(bytes(value[1:]))
    if code == 0x98:
        return code, bytes(value[1:])
    if 0xA0 <= code < 0xC0:
        content = bytes(value[2 if code < 0xB0 else 5 :])
        return code, content if code in (0xA0, 0xB0) else content.decode()
    return _OPAQUE, None


def _end(buffer: memoryview, at: int) -> int:
    """Where the value that begins here ends."""
    code = buffer[at]
    if code == 0:
        return _end(buffer, _end(buffer, at + 1))
    family = code >> 4
    if family in _WIDTHS:
        return at + 1 + _WIDTHS[family]
    if family in (0xA, 0xC, 0xE):
        return at + 2 + int(buffer[at + 1])
    if family in (0xB, 0xD, 0xF):
        return at + 5 + int(struct.unpack_from(">I", buffer, at + 1)[0])
    raise ValueError(f"the column amqp has a value of the unknown type 0x{code:02x}")


# By the number of bytes: the bits of the exponent, its bias, and the digits (IEEE 754, 3.5.2).
_LAYOUTS: Final = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}


def _decimal_of(content: bytes) -> Decimal | None:
    """None for an infinity and for what is not a number."""
    width = len(content) * 8
    exponent_bits, bias, digits_max = _LAYOUTS[len(content)]
    bits = int.from_bytes(content, "big")
    trailing = width - 1 - exponent_bits
    leading = 0
    if bits >> (width - 3) & 0b11 == 0b11:
        if bits >> (width - 5) & 0b1111 == 0b1111:
            return None
        trailing -= 2
        leading = 0b100 << trailing
    coefficient = leading | bits & ((1 << trailing) - 1)
    exponent = (bits >> trailing & ((1 << exponent_bits) - 1)) - bias
    digits = str(coefficient if coefficient < 10**digits_max else 0)
    return Decimal((bits >> (width - 1), tuple(map(int, digits)), exponent))


def checked_view(message: bytes | None) -> View | None:
    """As `view_of`; None without a message, OptionError for a damaged one."""
    try:
        return None if message is None else view_of(message)
    except ValueError as error:
        raise OptionError(str(error)) from error
