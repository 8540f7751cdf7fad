"""Writing AMQP values as bytes, each in its shortest encoding."""

from collections.abc import Iterable
from typing import Final

from mypy_extensions import i64

from shardbus.codec import codes
from shardbus.codec.errors import EncodeError
from shardbus.codec.floats import write_double, write_float
from shardbus.codec.limits import NESTING_MAX, UINT_MAX
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
)

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"
LIST0: Final = b"\x45"
_BYTES: Final = [bytes([number]) for number in range(256)]
_SMALL_UINTS: Final = [b"\x43"] + [bytes([codes.SMALLUINT, number]) for number in range(1, 256)]


def encode(value: Value) -> bytes:
    """The encoded value; EncodeError when it has no AMQP type, is out of range or nested too
    deeply.
    """
    return _encode(value, 0)


def encode_uint(number: i64) -> bytes:
    if 0 <= number < 256:
        return _SMALL_UINTS[number]
    _check(number, 0, UINT_MAX, "uint")
    return b"\x70" + u32(number)


def encode_ulong(number: int) -> bytes:
    if number == 0:
        return b"\x44"
    if 0 < number < 256:
        return b"\x53" + _BYTES[number]
    return b"\x80" + _fixed(number, 8, False, "ulong")


def encode_bool(flag: bool) -> bytes:
    return TRUE if flag else FALSE


def encode_text(text: str | None) -> bytes:
    """A string, or null."""
    return NULL if text is None else _variable(0xA1, utf8(text))


def encode_utf8(content: bytes | None) -> bytes:
    """A string that is UTF-8 already, or null."""
    return NULL if content is None else _variable(0xA1, content)


def encode_symbol(name: str | None) -> bytes:
    """A symbol, or null."""
    return NULL if name is None else _variable(0xA3, _ascii(name))


def encode_binary(content: bytes | None) -> bytes:
    """Binary, or null."""
    return NULL if content is None else _variable(0xA0, content)


def encode_symbols(names: Iterable[str] | None) -> bytes:
    """An array of symbols, or null."""
    if names is None:
        return NULL
    return encode(Array(codes.SYMBOL8, [Symbol(name) for name in names]))


def encode_symbol_map(entries: dict[str, Value] | None) -> bytes:
    """A map whose keys are symbols, or null."""
    if entries is None:
        return NULL
    parts: list[bytes] = []
    for name, value in entries.items():
        parts.append(encode_symbol(name))
        parts.append(encode(value))
    return compound(codes.MAP8, parts)


def encode_fields(descriptor: i64, fields: list[bytes]) -> bytes:
    """A described list of encoded fields without trailing nulls, but with at least one field."""
    count: i64 = len(fields)
    while count > 1 and fields[count - 1] == NULL:
        count -= 1
    return b"\x00\x53" + _BYTES[descriptor] + compound(codes.LIST8, fields[:count])


def compound(narrow_code: i64, parts: list[bytes]) -> bytes:
    """A list or map of encoded elements; `narrow_code` is LIST8 or MAP8."""
    content = b"".join(parts)
    size: i64 = len(content)
    count: i64 = len(parts)
    if size < 255 and count < 256:
        return _BYTES[narrow_code] + _BYTES[size + 1] + _BYTES[count] + content
    return _BYTES[narrow_code + 0x10] + u32(size + 4) + u32(count) + content


def u32(number: i64) -> bytes:
    """Four bytes, big-endian; the caller knows that the number fits."""
    return int(number).to_bytes(4, "big")


def u64(number: int) -> bytes:
    """Eight bytes, two's complement, big-endian; the caller knows that the number fits."""
    return number.to_bytes(8, "big", signed=True)


def utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EncodeError("text with lone surrogates cannot be encoded as UTF-8") from error


def _encode(value: Value, depth: i64) -> bytes:
    if value is None:
        return NULL
    if isinstance(value, str):
        return _variable(0xA1, utf8(value))
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return _encode_long(value)
    if isinstance(value, bytes):
        return _variable(0xA0, value)
    if isinstance(value, Symbol):
        return _variable(0xA3, _ascii(value.value))
    if isinstance(value, Integer):
        return _encode_integer(value)
    return _encode_rare(value, depth)


def _encode_rare(value: Value, depth: i64) -> bytes:
    if isinstance(value, float):
        return b"\x82" + write_double(value)
    if isinstance(value, Float):
        return b"\x72" + _float32(value.value)
    if isinstance(value, Opaque):
        return _BYTES[_opaque_code(value)] + _element(value, _opaque_code(value), depth)
    if depth >= NESTING_MAX:
        raise EncodeError(f"values are nested deeper than {NESTING_MAX}")
    if isinstance(value, list):
        return _encode_list(value, depth)
    if isinstance(value, dict):
        return _encode_pairs(list(value.items()), depth)
    if isinstance(value, Map):
        return _encode_pairs(value.pairs, depth)
    if isinstance(value, Described):
        return b"\x00" + _encode(value.descriptor, depth + 1) + _encode(value.value, depth + 1)
    if isinstance(value, Array):
        return _encode_array(value, depth)
    raise EncodeError(f"{type(value).__name__} is not an AMQP type")


def _encode_list(values: list[Value], depth: i64) -> bytes:
    if not values:
        return LIST0
    return compound(codes.LIST8, [_encode(value, depth + 1) for value in values])


def _encode_pairs(pairs: list[tuple[Value, Value]], depth: i64) -> bytes:
    parts: list[bytes] = []
    for key, value in pairs:
        parts.append(_encode(key, depth + 1))
        parts.append(_encode(value, depth + 1))
    return compound(codes.MAP8, parts)


def _encode_long(number: int) -> bytes:
    if -128 <= number < 128:
        return b"\x55" + _BYTES[number & 0xFF]
    return b"\x81" + _fixed(number, 8, True, "long")


def _encode_integer(value: Integer) -> bytes:
    number = value.value
    if isinstance(value, Uint):
        return encode_uint(_check(number, 0, UINT_MAX, "uint"))
    if isinstance(value, Ulong):
        return encode_ulong(number)
    if isinstance(value, Int) and -128 <= number < 128:
        return b"\x54" + _BYTES[number & 0xFF]
    code = _integer_code(value)
    return _BYTES[code] + _element(value, code, 0)


def _integer_code(value: Integer) -> int:
    if isinstance(value, Timestamp):
        return codes.TIMESTAMP
    if isinstance(value, Int):
        return codes.INT
    if isinstance(value, Ushort):
        return codes.USHORT
    if isinstance(value, Ubyte):
        return codes.UBYTE
    if isinstance(value, Short):
        return codes.SHORT
    if isinstance(value, Byte):
        return codes.BYTE
    if isinstance(value, Char):
        return codes.CHAR
    raise EncodeError(f"{type(value).__name__} is not an AMQP type")


def _opaque_code(value: Opaque) -> int:
    if isinstance(value, Uuid):
        return codes.UUID
    if isinstance(value, Decimal32):
        return codes.DECIMAL32
    if isinstance(value, Decimal64):
        return codes.DECIMAL64
    if isinstance(value, Decimal128):
        return codes.DECIMAL128
    raise EncodeError(f"{type(value).__name__} is not an AMQP type")


def _encode_array(array: Array, depth: i64) -> bytes:
    constructor = b"".join([b"\x00" + _encode(item, depth + 1) for item in array.descriptors])
    parts: list[bytes] = [constructor, _BYTES[_array_code(array.code)]]
    for value in array.values:
        parts.append(_element(value, array.code, depth + 1))
    content = b"".join(parts)
    size: i64 = len(content)
    count: i64 = len(array.values)
    if size < 255 and count < 256:
        return b"\xe0" + _BYTES[size + 1] + _BYTES[count] + content
    return b"\xf0" + u32(size + 4) + u32(count) + content


def _array_code(code: int) -> int:
    if code not in _ELEMENT_TYPES:
        raise EncodeError(f"0x{code:02x} is not an AMQP type")
    return code


# The Python type of an array's elements and the bytes of each; 0 means none or variable.
_ELEMENT_TYPES: Final[dict[int, tuple[type[object], int]]] = {
    codes.NULL: (type(None), 0),
    codes.TRUE: (bool, 0),
    codes.FALSE: (bool, 0),
    codes.UINT0: (Uint, 0),
    codes.ULONG0: (Ulong, 0),
    codes.LIST0: (list, 0),
    codes.UBYTE: (Ubyte, 1),
    codes.BYTE: (Byte, 1),
    codes.SMALLUINT: (Uint, 1),
    codes.SMALLULONG: (Ulong, 1),
    codes.SMALLINT: (Int, 1),
    codes.SMALLLONG: (int, 1),
    codes.BOOLEAN: (bool, 1),
    codes.USHORT: (Ushort, 2),
    codes.SHORT: (Short, 2),
    codes.UINT: (Uint, 4),
    codes.INT: (Int, 4),
    codes.FLOAT: (Float, 4),
    codes.CHAR: (Char, 4),
    codes.DECIMAL32: (Decimal32, 4),
    codes.ULONG: (Ulong, 8),
    codes.LONG: (int, 8),
    codes.DOUBLE: (float, 8),
    codes.TIMESTAMP: (Timestamp, 8),
    codes.DECIMAL64: (Decimal64, 8),
    codes.DECIMAL128: (Decimal128, 16),
    codes.UUID: (Uuid, 16),
    codes.BINARY8: (bytes, 0),
    codes.STRING8: (str, 0),
    codes.SYMBOL8: (Symbol, 0),
    codes.BINARY32: (bytes, 0),
    codes.STRING32: (str, 0),
    codes.SYMBOL32: (Symbol, 0),
    codes.LIST8: (list, 0),
    codes.MAP8: (object, 0),
    codes.LIST32: (list, 0),
    codes.MAP32: (object, 0),
    codes.ARRAY8: (Array, 0),
    codes.ARRAY32: (Array, 0),
}


def _element(value: Value, code: int, depth: i64) -> bytes:
    """The value without a constructor, in exactly the encoding `code`."""
    kind, width = _ELEMENT_TYPES[code]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise EncodeError(f"{type(value).__name__} in an array of 0x{code:02x}")
    if width == 0:
        return _unsized_element(value, code, depth)
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if isinstance(value, Opaque):
        if len(value.value) != width:
            raise EncodeError(f"{type(value).__name__} takes {width} bytes")
        return value.value
    if isinstance(value, Float):
        return _float32(value.value)
    if isinstance(value, float):
        return write_double(value)
    number = value.value if isinstance(value, Integer) else value
    assert isinstance(number, int)
    if code == codes.CHAR:
        _check(number, 0, 0x10FFFF, "char")
    return _fixed(number, width, code in _SIGNED_CODES, f"0x{code:02x}")


_SIGNED_CODES: Final = frozenset(
    {codes.BYTE, codes.SMALLINT, codes.SMALLLONG, codes.SHORT, codes.INT, codes.LONG}
    | {codes.TIMESTAMP}
)


def _unsized_element(value: Value, code: int, depth: i64) -> bytes:
    if code < 0x50:
        if _encode(value, depth) != _BYTES[code]:
            raise EncodeError(f"{value!r} in an array of 0x{code:02x}")
        return b""
    if code < 0xC0:
        content = _variable_content(value)
        return _sized(content, code < 0xB0)
    encoded = _encode(value, depth)
    return _recoded(encoded, code)


def _variable_content(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return utf8(value)
    assert isinstance(value, Symbol)
    return _ascii(value.value)


def _recoded(encoded: bytes, code: int) -> bytes:
    """The content of an encoded list, map or array, its size and count in the width of `code`."""
    own: i64 = encoded[0]
    if own == codes.LIST0:
        encoded, own = b"\xc0\x01\x00", codes.LIST8
    if own & 0x0F != code & 0x0F or (own >= 0xE0) != (code >= 0xE0):
        raise EncodeError(f"0x{int(own):02x} in an array of 0x{code:02x}")
    wants_narrow = (code >> 4) & 1 == 0
    if own == code:
        return encoded[1:]
    if wants_narrow:
        raise EncodeError(f"an element too large for an array of 0x{code:02x}")
    return u32(int(encoded[1]) + 3) + u32(encoded[2]) + encoded[3:]


def _variable(narrow_code: i64, content: bytes) -> bytes:
    size: i64 = len(content)
    if size < 256:
        return _BYTES[narrow_code] + _BYTES[size] + content
    return _BYTES[narrow_code + 0x10] + u32(size) + content


def _sized(content: bytes, is_narrow: bool) -> bytes:
    size: i64 = len(content)
    if not is_narrow:
        return u32(size) + content
    if size > 255:
        raise EncodeError("an element too large for its array")
    return _BYTES[size] + content


def _float32(number: float) -> bytes:
    try:
        return write_float(number)
    except OverflowError as error:
        raise EncodeError(f"{number} does not fit in 32 bits") from error


def _fixed(number: int, width: int, signed: bool, name: str) -> bytes:
    try:
        return number.to_bytes(width, "big", signed=signed)
    except OverflowError as error:
        raise EncodeError(f"{number} is out of range for {name}") from error


def _ascii(name: str) -> bytes:
    try:
        return name.encode("ascii")
    except UnicodeEncodeError as error:
        raise EncodeError(f"a symbol must be ASCII, not {name!r}") from error


def _check(number: int, low: int, high: int, name: str) -> int:
    if not low <= number <= high:
        raise EncodeError(f"{number} is out of range for {name}")
    return number
