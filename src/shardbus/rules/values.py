"""The values that rules compute with, the kinds they are sent as, and properties that have both.

Computing needs few types (all integers are one), but a property keeps the type that its sender gave
it: its kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final, TypeAlias, final

NULL: Final = 0
BOOLEAN: Final = 1
UBYTE: Final = 2
USHORT: Final = 3
UINT: Final = 4
ULONG: Final = 5
BYTE: Final = 6
SHORT: Final = 7
INT: Final = 8
LONG: Final = 9
FLOAT: Final = 10
DOUBLE: Final = 11
DECIMAL: Final = 12
CHAR: Final = 13
TEXT: Final = 14
SYMBOL: Final = 15
URI: Final = 16
TIMESTAMP: Final = 17
OFFSET_TIMESTAMP: Final = 18
DURATION: Final = 19
UUID: Final = 20
BINARY: Final = 21
# A moment that was written without a zone: it is read as UTC and shown as it was written.
UNZONED_TIMESTAMP: Final = 22

KIND_NAMES: Final = (
    "null", "boolean", "ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "float",
    "double", "decimal", "char", "string", "symbol", "uri", "timestamp", "datetime-offset",
    "timespan", "uuid", "binary", "timestamp-unzoned",
)  # fmt: skip
"""The name of each kind, for texts."""
RANGES: Final[dict[int, tuple[int, int]]] = {
    UBYTE: (0, (1 << 8) - 1),
    USHORT: (0, (1 << 16) - 1),
    UINT: (0, (1 << 32) - 1),
    ULONG: (0, (1 << 64) - 1),
    BYTE: (-(1 << 7), (1 << 7) - 1),
    SHORT: (-(1 << 15), (1 << 15) - 1),
    INT: (-(1 << 31), (1 << 31) - 1),
    LONG: (-(1 << 63), (1 << 63) - 1),
}
"""The least and the greatest whole number of a kind."""

_TICKS_PER_MS: Final = 10_000


@final
class Guid:
    """16 bytes in network order, as AMQP's uuid."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guid) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        text = self.value.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def __repr__(self) -> str:
        return f"Guid({self})"


@final
class Moment:
    """A point in time: ticks of 100 ns since the Unix epoch."""

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and self.ticks == other.ticks

    def __hash__(self) -> int:
        return hash(("Moment", self.ticks))

    def __repr__(self) -> str:
        return f"Moment({self.ticks})"


@final
class Duration:
    """A length of time: ticks of 100 ns, also negative."""

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.ticks == other.ticks

    def __hash__(self) -> int:
        return hash(("Duration", self.ticks))

    def __repr__(self) -> str:
        return f"Duration({self.ticks})"


Value: TypeAlias = bool | int | float | str | bytes | Decimal | Guid | Moment | Duration | None
"""None is a null as well as a missing value: only EXISTS distinguishes them."""


@final
class Property:
    """A named value of a kind: an application property, or a parameter of an expression."""

    def __init__(self, name: str, kind: int, value: Value) -> None:
        self.name = name
        self.kind = kind
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Property)
            and self.name == other.name
            and self.kind == other.kind
            and type(self.value) is type(other.value)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((self.name, self.kind))

    def __repr__(self) -> str:
        return f"Property({self.name!r}, {self.kind}, {self.value!r})"


def moment_of_ms(moment_ms: int) -> Moment:
    return Moment(moment_ms * _TICKS_PER_MS)


def duration_of_ms(duration_ms: int) -> Duration:
    return Duration(duration_ms * _TICKS_PER_MS)


def ms_of(time: Moment | Duration) -> int:
    """Whole milliseconds, rounded down."""
    return time.ticks // _TICKS_PER_MS


def fold(name: str) -> str:
    """The form in which names are compared, without regard to case."""
    return name.lower()


def by_name(properties: Iterable[Property]) -> dict[str, Property]:
    """Properties by their folded names; of two that differ only by case the last one counts."""
    return {fold(each.name): each for each in properties}


def kind_of(value: Value) -> int:
    """The kind in which a value is sent when nothing says otherwise."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return LONG if value <= 0x7FFF_FFFF_FFFF_FFFF else ULONG
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, str):
        return TEXT
    if isinstance(value, bytes):
        return BINARY
    if isinstance(value, Decimal):
        return DECIMAL
    if isinstance(value, Guid):
        return UUID
    return TIMESTAMP if isinstance(value, Moment) else DURATION


assert len(KIND_NAMES) == UNZONED_TIMESTAMP + 1
