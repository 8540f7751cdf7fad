"""The SASL layer's frames and the messages of its mechanisms."""

from typing import Final, final

from shardbus.amqp.termini import symbols_of
from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import (
    encode_binary,
    encode_fields,
    encode_symbol,
    encode_symbols,
    encode_text,
)
from shardbus.codec.errors import DecodeError

MSSBCBS: Final = "MSSBCBS"
PLAIN: Final = "PLAIN"
ANONYMOUS: Final = "ANONYMOUS"
EXTERNAL: Final = "EXTERNAL"
OK: Final = 0
AUTH_FAILED: Final = 1
TEMPORARY: Final = 4


@final
class SaslInit:
    """The mechanism that a client chose and its initial response."""

    def __init__(self, mechanism: str, response: bytes, hostname: str) -> None:
        self.mechanism = mechanism
        self.response = response
        self.hostname = hostname


def encode_mechanisms(names: tuple[str, ...]) -> bytes:
    return encode_fields(codes.SASL_MECHANISMS, [encode_symbols(names)])


def decode_mechanisms(reader: ValueReader) -> list[str]:
    reader.enter_list()
    names = symbols_of(reader.value_field())
    reader.leave_list()
    return [] if names is None else names


def encode_init(init: SaslInit) -> bytes:
    fields = [
        encode_symbol(init.mechanism),
        encode_binary(init.response),
        encode_text(init.hostname or None),
    ]
    return encode_fields(codes.SASL_INIT, fields)


def decode_init(reader: ValueReader) -> SaslInit:
    reader.enter_list()
    mechanism = reader.text_field()
    if mechanism is None:
        raise DecodeError("sasl-init without a mechanism")
    response = reader.binary_field()
    hostname = reader.text_field()
    reader.leave_list()
    return SaslInit(mechanism, response or b"", hostname or "")


def encode_outcome(code: int) -> bytes:
    return encode_fields(codes.SASL_OUTCOME, [bytes([codes.UBYTE, code])])


def decode_outcome(reader: ValueReader) -> int:
    reader.enter_list()
    code = reader.uint_field(-1)
    reader.leave_list()
    if code < 0:
        raise DecodeError("sasl-outcome without a code")
    return code


def plain_response(user: str, password: str) -> bytes:
    """The initial response of PLAIN (RFC 4616)."""
    return b"\0" + user.encode() + b"\0" + password.encode()
