"""SASL frames and the words of its mechanisms."""

import pytest

from shardbus.amqp import sasl
from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader
from shardbus.codec.errors import DecodeError


def _reader(encoded: bytes, code: int) -> ValueReader:
    reader = ValueReader(encoded, 0, len(encoded))
    assert reader.u8() == 0
    assert reader.descriptor_code() == code
    return reader


def test_mechanisms_are_an_array_of_symbols() -> None:
    """.NET fails when MSSBCBS is not in the list."""
    encoded = sasl.encode_mechanisms((sasl.MSSBCBS, sasl.PLAIN))

    golden = "005340 c0 13 01 e0 10 02 a3 07" + b"MSSBCBS".hex() + "05" + b"PLAIN".hex()
    assert encoded == bytes.fromhex(golden)
    assert sasl.decode_mechanisms(_reader(encoded, codes.SASL_MECHANISMS)) == ["MSSBCBS", "PLAIN"]


def test_a_single_symbol_is_a_list_of_one_mechanism() -> None:
    encoded = bytes.fromhex("005340 c0 08 01 a3 05") + b"PLAIN"

    assert sasl.decode_mechanisms(_reader(encoded, codes.SASL_MECHANISMS)) == ["PLAIN"]


def test_an_init_keeps_mechanism_response_and_host() -> None:
    encoded = sasl.encode_init(sasl.SaslInit("PLAIN", b"\0user\0key", "host"))

    back = sasl.decode_init(_reader(encoded, codes.SASL_INIT))

    assert (back.mechanism, back.response, back.hostname) == ("PLAIN", b"\0user\0key", "host")


def test_an_init_without_a_mechanism_is_refused() -> None:
    with pytest.raises(DecodeError):
        sasl.decode_init(_reader(b"\x00\x53\x41\x45", codes.SASL_INIT))


def test_an_outcome_is_a_ubyte() -> None:
    encoded = sasl.encode_outcome(sasl.AUTH_FAILED)

    assert encoded == bytes.fromhex("005344c003015001")
    assert sasl.decode_outcome(_reader(encoded, codes.SASL_OUTCOME)) == 1


def test_plain_carries_user_and_password() -> None:
    assert sasl.plain_response("rule", "key=") == b"\0rule\0key="
