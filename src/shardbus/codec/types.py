"""AMQP values for which Python has no type.

null, boolean, string, binary, list, map, double and long are None, bool, str, bytes, list, dict,
float and int. Every other type is wrapped, so that a decoded value is encoded to the same type
again; wrapped values are equal when both type and value are.
"""

from typing import TypeAlias, final

# What `encode` accepts and `decode` returns. Containers are invariant in Python's type system, so
# the closed union would refuse a plain `dict[str, int]`; `encode` refuses other values.
Value: TypeAlias = object


class Integer:
    """A wrapped integer; the subclass says its AMQP type."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Integer) and type(self) is type(other) and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"


@final
class Ubyte(Integer):
    """0 to 2**8 - 1."""


@final
class Ushort(Integer):
    """0 to 2**16 - 1."""


@final
class Uint(Integer):
    """0 to 2**32 - 1."""


@final
class Ulong(Integer):
    """0 to 2**64 - 1."""


@final
class Byte(Integer):
    """-2**7 to 2**7 - 1."""


@final
class Short(Integer):
    """-2**15 to 2**15 - 1."""


@final
class Int(Integer):
    """-2**31 to 2**31 - 1."""


@final
class Timestamp(Integer):
    """Milliseconds since the Unix epoch, signed 64 bits."""


@final
class Char(Integer):
    """One Unicode code point, 0 to 0x10FFFF."""


@final
class Float:
    """A 32-bit binary floating point number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Float) and self.value == other.value

    def __hash__(self) -> int:
        return hash(("Float", self.value))

    def __repr__(self) -> str:
        return f"Float({self.value!r})"


@final
class Symbol:
    """A name from a constrained domain: ASCII text."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and self.value == other.value

    def __hash__(self) -> int:
        return hash(("Symbol", self.value))

    def __repr__(self) -> str:
        return f"Symbol({self.value!r})"


class Opaque:
    """A fixed number of bytes kept as they are; the subclass says its AMQP type."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and type(self) is type(other) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value.hex()})"


@final
class Uuid(Opaque):
    """16 bytes, RFC 4122 (network) order."""


@final
class Decimal32(Opaque):
    """4 bytes, IEEE 754 decimal32."""


@final
class Decimal64(Opaque):
    """8 bytes, IEEE 754 decimal64."""


@final
class Decimal128(Opaque):
    """16 bytes, IEEE 754 decimal128."""


@final
class Described:
    """A value with a descriptor in front that says what it means."""

    def __init__(self, descriptor: Value, value: Value) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Described)
            and self.descriptor == other.descriptor
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash(("Described", self.descriptor))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


@final
class Array:
    """Values of one type: `code` is their constructor (one of `codes`), written once.

    When the elements are described, `descriptors` come before the constructor, outermost first, and
    `values` are the elements without them.
    """

    def __init__(
        self, code: int, values: list[Value], descriptors: list[Value] | None = None
    ) -> None:
        self.code = code
        self.values = values
        self.descriptors: list[Value] = [] if descriptors is None else descriptors

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Array)
            and self.code == other.code
            and self.descriptors == other.descriptors
            and self.values == other.values
        )

    def __hash__(self) -> int:
        return hash(("Array", self.code, len(self.values)))

    def __repr__(self) -> str:
        return f"Array(0x{self.code:02x}, {self.values!r}, {self.descriptors!r})"


@final
class Map:
    """A map whose keys a dict cannot distinguish (true, 1 and 1.0) or cannot hold (lists, maps)."""

    def __init__(self, pairs: list[tuple[Value, Value]]) -> None:
        self.pairs = pairs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Map) and self.pairs == other.pairs

    def __hash__(self) -> int:
        return hash(("Map", len(self.pairs)))

    def __repr__(self) -> str:
        return f"Map({self.pairs!r})"


def value_of(value: Value) -> Value:
    """The plain Python value inside a wrapper; arrays become lists, any other value is returned
    unchanged.

    Descriptors are dropped, containers keep their elements wrapped.
    """
    if isinstance(value, (Integer, Float, Symbol, Opaque)):
        return value.value
    if isinstance(value, Described):
        return value_of(value.value)
    if isinstance(value, Array):
        return value.values
    return value


def text_of(value: Value) -> str | None:
    """The text of a string or symbol, None for anything else."""
    plain = value_of(value)
    return plain if isinstance(plain, str) else None


def integer_of(value: Value) -> int | None:
    """The number in an integer of any AMQP width or a timestamp, None for anything else."""
    plain = value_of(value)
    if isinstance(plain, bool) or not isinstance(plain, int):
        return None
    return plain
