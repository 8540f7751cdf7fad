"""Where a link starts and ends: source, target and the transaction coordinator."""

from typing import TypeAlias, final

from mypy_extensions import i64

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader, text_map_of
from shardbus.codec.encoder import (
    NULL,
    TRUE,
    encode_fields,
    encode_symbol,
    encode_symbol_map,
    encode_symbols,
    encode_text,
    encode_uint,
)
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Array, Value, text_of


@final
class Source:
    """Where messages come from. Set the attributes that matter; the rest keep their defaults."""

    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout_s: int = 0
    dynamic: bool = False
    distribution_mode: str | None = None
    # filter: symbol -> value; kept as decoded, keys as text.
    filters: dict[str, Value] | None = None
    capabilities: list[str] | None = None


@final
class Target:
    """Where messages go to."""

    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout_s: int = 0
    dynamic: bool = False
    capabilities: list[str] | None = None


@final
class Coordinator:
    """The target of a link that declares and discharges transactions."""

    capabilities: list[str] | None = None


Terminus: TypeAlias = Source | Target | Coordinator


def encode_terminus(terminus: Terminus | None) -> bytes:
    """The described terminus, at least its first field written, or null."""
    if terminus is None:
        return NULL
    if isinstance(terminus, Coordinator):
        return encode_fields(codes.COORDINATOR, [encode_symbols(terminus.capabilities)])
    fields = _common_fields(terminus)
    if isinstance(terminus, Source):
        fields.append(encode_symbol(terminus.distribution_mode))
        fields.append(encode_symbol_map(terminus.filters))
        fields.extend((NULL, NULL))
    fields.append(encode_symbols(terminus.capabilities))
    return encode_fields(codes.SOURCE if isinstance(terminus, Source) else codes.TARGET, fields)


def decode_terminus(raw: bytes | None) -> Terminus | None:
    """The terminus in `raw`, None for null. Raises DecodeError."""
    if raw is None:
        return None
    reader = ValueReader(raw, 0, len(raw))
    code: i64 = reader.enter_described_list()
    terminus: Terminus
    if code == codes.SOURCE:
        terminus = _source(reader)
    elif code == codes.TARGET:
        terminus = _target(reader)
    elif code == codes.COORDINATOR:
        terminus = Coordinator()
        terminus.capabilities = symbols_of(reader.value_field())
    else:
        raise DecodeError("a source, target or coordinator was expected")
    reader.leave_list()
    return terminus


def symbols_of(value: Value) -> list[str] | None:
    """The names in a symbol or an array of symbols (`multiple` in the specification)."""
    if value is None:
        return None
    items = value.values if isinstance(value, Array) else [value]
    names = [name for name in map(text_of, items) if name is not None]
    if len(names) != len(items):
        raise DecodeError("symbols were expected")
    return names


def _common_fields(terminus: Source | Target) -> list[bytes]:
    return [
        encode_text(terminus.address),
        encode_uint(terminus.durable) if terminus.durable else NULL,
        NULL if terminus.expiry_policy == "session-end" else encode_symbol(terminus.expiry_policy),
        encode_uint(terminus.timeout_s) if terminus.timeout_s else NULL,
        TRUE if terminus.dynamic else NULL,
        NULL,
    ]


def _source(reader: ValueReader) -> Source:
    source = Source()
    source.address = reader.text_field()
    source.durable = reader.uint_field(0)
    source.expiry_policy = reader.text_field() or "session-end"
    source.timeout_s = reader.uint_field(0)
    source.dynamic = reader.bool_field(False)
    reader.raw_field()
    source.distribution_mode = reader.text_field()
    source.filters = text_map_of(reader.value_field())
    reader.raw_field()
    reader.raw_field()
    source.capabilities = symbols_of(reader.value_field())
    return source


def _target(reader: ValueReader) -> Target:
    target = Target()
    target.address = reader.text_field()
    target.durable = reader.uint_field(0)
    target.expiry_policy = reader.text_field() or "session-end"
    target.timeout_s = reader.uint_field(0)
    target.dynamic = reader.bool_field(False)
    reader.raw_field()
    target.capabilities = symbols_of(reader.value_field())
    return target
