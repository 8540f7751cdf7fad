"""Reading AMQP values from bytes: `ValueReader` walks one buffer and never past its end."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from shardbus.codec import codes
from shardbus.codec.errors import DecodeError
from shardbus.codec.floats import read_double, read_float
from shardbus.codec.limits import NESTING_MAX, UINT_MAX, ZERO_WIDTH_ELEMENTS_MAX
from shardbus.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Integer,
    Map,
    Opaque,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    Uuid,
    Value,
    text_of,
)

# The existing constructor codes, so that skipping refuses what decoding would refuse.
_PRIMITIVE_CODES: Final = frozenset(
    {0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x61}
    | {0x70, 0x71, 0x72, 0x73, 0x74, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98, 0xA0, 0xA1, 0xA3}
    | {0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0}
)
KNOWN_CODES: Final = bytes(1 if code in _PRIMITIVE_CODES else 0 for code in range(256))
# Bytes after the code, by its upper half; the sizes of variable types (0xA and up) are on the wire.
_FIXED_WIDTHS: Final = bytes((0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 1, 4, 1, 4, 1, 4))


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class ValueReader:
    """A position in a buffer, advanced by every read. After a DecodeError the reader must not be
    used.

    The `*_field` methods read the next field of the list entered last and return the default for
    null and for fields that a shortened list leaves out.
    """

    def __init__(self, buffer: bytes, position: i64, end: i64) -> None:
        self.buffer: bytes = buffer
        self.position: i64 = position
        self.end: i64 = end
        self.fields_left: i64 = 0
        self.list_end: i64 = position
        self.depth: i64 = 0
        self.zero_width_left: i64 = ZERO_WIDTH_ELEMENTS_MAX
        # Whether the reader met an encoding that it understands although the specification forbids
        # it.
        self.is_loose: bool = False

    def require(self, size: i64) -> None:
        if size > self.end - self.position:
            raise DecodeError(
                f"a value needs {size} bytes, but only {self.end - self.position} are left"
            )

    def u8(self) -> i64:
        position: i64 = self.position
        if position >= self.end:
            raise DecodeError("a value ends before its last byte")
        self.position = position + 1
        return self.buffer[position]

    def u16(self) -> i64:
        self.require(2)
        position: i64 = self.position
        buffer = self.buffer
        self.position = position + 2
        high: i64 = buffer[position]
        return (high << 8) | buffer[position + 1]

    def u32(self) -> i64:
        self.require(4)
        position: i64 = self.position
        self.position = position + 4
        return u32_at(self.buffer, position)

    def s64(self) -> i64:
        high: i64 = self.u32()
        low: i64 = self.u32()
        if high >= 0x80000000:
            high -= 0x100000000
        return high * 0x100000000 + low

    def u64(self) -> int:
        high: int = self.u32()
        low: int = self.u32()
        return (high << 32) | low

    def take(self, size: i64) -> bytes:
        self.require(size)
        start: i64 = self.position
        self.position = start + size
        return self.buffer[start : start + size]

    def value(self) -> Value:
        """The next value, whatever it is."""
        return self._value_of_code(self.u8())

    def skip(self) -> None:
        """Move past the next value without looking inside containers."""
        code: i64 = self.u8()
        if code == 0:
            self._descend()
            self.skip()
            self.skip()
            self.depth -= 1
        else:
            self.skip_content(code)

    def skip_content(self, code: i64) -> None:
        """Skip the content after the constructor `code`."""
        if KNOWN_CODES[code] == 0:
            raise DecodeError(f"0x{int(code):02x} is not an AMQP type")
        size: i64 = _FIXED_WIDTHS[code >> 4]
        if code >= 0xA0:
            size = self.u8() if size == 1 else self.u32()
            if code >= 0xC0 and size == 0:
                raise DecodeError("a compound value has no count")
        self.require(size)
        self.position += size

    def raw(self) -> bytes:
        """The next value in its encoded form."""
        start: i64 = self.position
        self.skip()
        return self.buffer[start : self.position]

    def _descend(self) -> None:
        self.depth += 1
        if self.depth > NESTING_MAX:
            raise DecodeError(f"values are nested deeper than {NESTING_MAX}")

    def _value_of_code(self, code: i64) -> Value:
        kind: i64 = code >> 4
        if kind >= 0xC:
            return self._compound(code)
        if kind >= 0xA:
            return self._variable(code)
        if kind == 4:
            return self._empty(code)
        if kind == 5:
            return self._one_byte(code)
        if kind >= 6:
            return self._wide(code)
        if code == 0:
            return self._described()
        raise DecodeError(f"0x{int(code):02x} is not an AMQP type")

    def _described(self) -> Value:
        self._descend()
        descriptor = self.value()
        value = self.value()
        self.depth -= 1
        return Described(descriptor, value)

    def _empty(self, code: i64) -> Value:
        if code == codes.NULL:
            return None
        if code == codes.TRUE:
            return True
        if code == codes.FALSE:
            return False
        if code == codes.UINT0:
            return Uint(0)
        if code == codes.ULONG0:
            return Ulong(0)
        if code == codes.LIST0:
            empty: list[Value] = []
            return empty
        raise DecodeError(f"0x{int(code):02x} is not an AMQP type")

    def _one_byte(self, code: i64) -> Value:
        byte: i64 = self.u8()
        signed: i64 = byte - 256 if byte >= 128 else byte
        if code == codes.SMALLUINT:
            return Uint(byte)
        if code == codes.SMALLULONG:
            return Ulong(byte)
        if code == codes.SMALLINT:
            return Int(signed)
        if code == codes.SMALLLONG:
            return int(signed)
        if code == codes.BOOLEAN:
            return _boolean(byte)
        if code == codes.UBYTE:
            return Ubyte(byte)
        if code == codes.BYTE:
            return Byte(signed)
        raise DecodeError(f"0x{int(code):02x} is not an AMQP type")

    def _wide(self, code: i64) -> Value:
        kind: i64 = code >> 4
        if kind == 7:
            return self._four_bytes(code)
        if kind == 8:
            return self._eight_bytes(code)
        if code == codes.USHORT:
            return Ushort(self.u16())
        if code == codes.SHORT:
            number: i64 = self.u16()
            return Short(number - 0x10000 if number >= 0x8000 else number)
        if code == codes.UUID:
            return Uuid(self.take(16))
        if code == codes.DECIMAL128:
            return Decimal128(self.take(16))
        raise DecodeError(f"0x{int(code):02x} is not an AMQP type")

    def _four_bytes(self, code: i64) -> Value:
        if code == codes.FLOAT:
            return Float(read_float(self.take(4)))
        if code == codes.DECIMAL32:
            return Decimal32(self.take(4))
        number: i64 = self.u32()
        if code == codes.UINT:
            return Uint(number)
        if code == codes.INT:
            return Int(number - 0x100000000 if number >= 0x80000000 else number)
        if code == codes.CHAR:
            if number > 0x10FFFF:
                raise DecodeError(f"0x{int(number):x} is not a Unicode code point")
            return Char(number)
        raise DecodeError(f"0x{int(code):02x} is not an AMQP type")

    def _eight_bytes(self, code: i64) -> Value:
        if code == codes.LONG:
            return int(self.s64())
        if code == codes.ULONG:
            return Ulong(self.u64())
        if code == codes.TIMESTAMP:
            return Timestamp(self.s64())
        if code == codes.DOUBLE:
            return read_double(self.take(8))
        if code == codes.DECIMAL64:
            return Decimal64(self.take(8))
        raise DecodeError(f"0x{int(code):02x} is not an AMQP type")

    def _variable(self, code: i64) -> Value:
        content = self.take(self.u8() if code < 0xB0 else self.u32())
        kind: i64 = code & 0x0F
        if kind == 1:
            return utf8(content)
        if kind == 0:
            return content
        if kind == 3:
            return Symbol(ascii_text(content))
        raise DecodeError(f"0x{int(code):02x} is not an AMQP type")

    def _compound(self, code: i64) -> Value:
        """A list, map or array. While it is read, `end` is its own end, and it must be read
        completely.
        """
        if KNOWN_CODES[code] == 0:
            raise DecodeError(f"0x{int(code):02x} is not an AMQP type")
        self._descend()
        is_narrow = (code >> 4) & 1 == 0
        size: i64 = self.u8() if is_narrow else self.u32()
        self.require(size)
        outer_end = self.end
        self.end = self.position + size
        count: i64 = self.u8() if is_narrow else self.u32()
        if code >= codes.ARRAY8:
            value: Value = self._array(count)
        else:
            if count > self.end - self.position:
                raise DecodeError(
                    f"{count} elements do not fit in {self.end - self.position} bytes"
                )
            value = self._list(count) if code & 0x0F == 0 else self._map(count)
        if self.position != self.end:
            raise DecodeError("a compound value is longer than its elements")
        self.end = outer_end
        self.depth -= 1
        return value

    def _list(self, count: i64) -> Value:
        values: list[Value] = []
        for _ in range(count):
            values.append(self.value())
        return values

    def _map(self, count: i64) -> Value:
        if count & 1 != 0:
            raise DecodeError("a map has a key without a value")
        entries: dict[Value, Value] = {}
        pairs: list[tuple[Value, Value]] = []
        is_plain = True
        for _ in range(count >> 1):
            key = self.value()
            value = self.value()
            pairs.append((key, value))
            if not is_plain_key(key):
                is_plain = False
            elif key in entries:
                raise DecodeError("a map has the same key twice")
            else:
                entries[key] = value
        return entries if is_plain else Map(pairs)

    def _array(self, count: i64) -> Value:
        values: list[Value] = []
        if count == 0 and self.position == self.end:
            return Array(codes.NULL, values)
        descriptors: list[Value] = []
        code: i64 = self.u8()
        while code == 0:
            descriptors.append(self.value())
            code = self.u8()
        self._bound_array(code, count)
        for _ in range(count):
            values.append(self._value_of_code(code))
        return Array(code, values, descriptors)

    def _bound_array(self, code: i64, count: i64) -> None:
        if KNOWN_CODES[code] == 0:
            raise DecodeError(f"0x{int(code):02x} is not an AMQP type")
        width: i64 = _FIXED_WIDTHS[code >> 4]
        if width == 0:
            self.zero_width_left -= count
            if self.zero_width_left < 0:
                raise DecodeError("an array has too many elements without bytes")
        elif count * width > self.end - self.position:
            raise DecodeError(f"{count} elements do not fit in {self.end - self.position} bytes")

    def enter_list(self) -> None:
        """Enter a list of fields; `leave_list` skips those that were not read."""
        code: i64 = self.u8()
        if code == codes.LIST0:
            self.fields_left = 0
            self.list_end = self.position
            return
        if code != codes.LIST8 and code != codes.LIST32:
            raise DecodeError(f"a list of fields was expected, not 0x{int(code):02x}")
        is_narrow = code == codes.LIST8
        size: i64 = self.u8() if is_narrow else self.u32()
        self.require(size)
        self.list_end = self.position + size
        count: i64 = self.u8() if is_narrow else self.u32()
        if self.position > self.list_end or count > self.list_end - self.position:
            raise DecodeError("a list has more fields than bytes")
        self.fields_left = count

    def leave_list(self) -> None:
        """Check that the fields read are inside the list, and go to its end."""
        while self.fields_left > 0:
            self.fields_left -= 1
            self.skip()
        if self.position != self.list_end:
            raise DecodeError("the size of a list does not match its fields")

    def enter_described_list(self) -> i64:
        """Enter a described list; returns the descriptor code, -1 for an unknown symbol."""
        if self.u8() != 0:
            raise DecodeError("a described list was expected")
        code: i64 = self.descriptor_code()
        self.enter_list()
        return code

    def descriptor_code(self) -> i64:
        """The next descriptor as a number; -1 for an unknown one."""
        code: i64 = self.u8()
        if code == codes.SMALLULONG:
            return self.u8()
        if code == codes.ULONG0:
            return 0
        if code == codes.ULONG:
            self.is_loose = True
            number = self.u64()
            return -1 if number > 0xFF else number
        if code == codes.SYMBOL8:
            self.is_loose = True
            return codes.BY_NAME.get(self.take(self.u8()), -1)
        self._descend()
        if code == 0:
            raise DecodeError("a descriptor is itself described")
        self.skip_content(code)
        self.depth -= 1
        return -1

    def uint_field(self, default: i64) -> i64:
        """An unsigned integer of up to 32 bits, encoded in any width."""
        if self.fields_left == 0:
            return default
        self.fields_left -= 1
        code: i64 = self.u8()
        if code == codes.SMALLUINT:
            return self.u8()
        if code == codes.UINT0:
            return 0
        if code == codes.UINT:
            return self.u32()
        if code == codes.NULL:
            return default
        number = self._integer(code)
        if number < 0 or number > UINT_MAX:
            raise DecodeError(f"{number} is not an unsigned 32-bit number")
        return number

    def ulong_field(self, default: int) -> int:
        """An unsigned integer of up to 64 bits, encoded in any width."""
        number = self.integer_field(default)
        if number < 0 and number != default:
            raise DecodeError(f"{number} is not an unsigned number")
        return number

    def integer_field(self, default: int) -> int:
        """An integer or timestamp of any width."""
        if self.fields_left == 0:
            return default
        self.fields_left -= 1
        code: i64 = self.u8()
        if code == codes.NULL:
            return default
        return self._integer(code)

    def _integer(self, code: i64) -> int:
        if code == codes.TIMESTAMP or code == codes.LONG:
            return self.s64()
        value = self._value_of_code(code) if code >= 0x43 and code < 0x90 else None
        if isinstance(value, (Uint, Ulong, Int, Ushort, Ubyte, Short, Byte)):
            return value.value
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise DecodeError("an integer was expected")

    def bool_field(self, default: bool) -> bool:
        flag: i64 = self.flag_field()
        return default if flag < 0 else flag > 0

    def flag_field(self) -> i64:
        """0 is false, 1 true, and -1 null."""
        if self.fields_left == 0:
            return -1
        self.fields_left -= 1
        code: i64 = self.u8()
        if code == codes.TRUE:
            return 1
        if code == codes.FALSE:
            return 0
        if code == codes.NULL:
            return -1
        if code == codes.BOOLEAN:
            return 1 if _boolean(self.u8()) else 0
        raise DecodeError("a boolean was expected")

    def binary_field(self) -> bytes | None:
        if self.fields_left == 0:
            return None
        self.fields_left -= 1
        code: i64 = self.u8()
        if code == codes.BINARY8:
            return self.take(self.u8())
        if code == codes.BINARY32:
            return self.take(self.u32())
        if code == codes.NULL:
            return None
        raise DecodeError("binary was expected")

    def text_field(self) -> str | None:
        """A string or symbol: peers confuse them, and no field gives them different meanings."""
        if self.fields_left == 0:
            return None
        self.fields_left -= 1
        code: i64 = self.u8()
        if code == codes.NULL:
            return None
        return self.text_of_code(code)

    def text_of_code(self, code: i64) -> str:
        """The string or symbol whose constructor was just read; binary is accepted in its place."""
        if code == codes.STRING8 or code == codes.SYMBOL8:
            content = self.take(self.u8())
        elif code == codes.STRING32 or code == codes.SYMBOL32:
            content = self.take(self.u32())
        elif code == codes.BINARY8 or code == codes.BINARY32:
            # The Python SDK sends text that it received as binary.
            self.is_loose = True
            return utf8(self.take(self.u8() if code == codes.BINARY8 else self.u32()))
        else:
            raise DecodeError("text was expected")
        return utf8(content) if code & 0x0F == 1 else ascii_text(content)

    def raw_field(self) -> bytes | None:
        """The next field as it is encoded; None for null."""
        if self.fields_left == 0:
            return None
        self.fields_left -= 1
        self.require(1)
        if self.buffer[self.position] == codes.NULL:
            self.position += 1
            return None
        return self.raw()

    def value_field(self) -> Value:
        if self.fields_left == 0:
            return None
        self.fields_left -= 1
        return self.value()


def u32_at(buffer: bytes, position: i64) -> i64:
    """Four bytes as an unsigned number; the caller knows that they are there."""
    first: i64 = buffer[position]
    second: i64 = buffer[position + 1]
    third: i64 = buffer[position + 2]
    return (first << 24) | (second << 16) | (third << 8) | buffer[position + 3]


def utf8(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("a string is not UTF-8") from error


def ascii_text(content: bytes) -> str:
    try:
        return content.decode("ascii")
    except UnicodeDecodeError as error:
        raise DecodeError("a symbol is not ASCII") from error


def is_plain_key(key: Value) -> bool:
    """Whether a dict distinguishes the key from all others: to a dict True, 1 and 1.0 are one
    key.
    """
    return key is None or (
        isinstance(key, (str, Symbol, bytes, int, Integer, Opaque)) and not isinstance(key, bool)
    )


def _boolean(byte: i64) -> bool:
    if byte > 1:
        raise DecodeError("a boolean is neither 0 nor 1")
    return byte == 1


def text_map_of(value: Value) -> dict[str, Value] | None:
    """A map with symbols or strings as keys, by the text of the key; None for null."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise DecodeError("a map with symbols as keys was expected")
    entries: dict[str, Value] = {}
    for key, item in value.items():
        name = text_of(key)
        if name is None:
            raise DecodeError("a map with symbols as keys was expected")
        entries[name] = item
    return entries
