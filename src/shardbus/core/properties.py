"""Application properties that settlements changed, packed as names with values opaque to the core.

A pair is the length of its name (2 bytes, big endian), the name, the length of its value (4 bytes)
and the value as the gateway encoded it.
"""

from __future__ import annotations

from typing import Final

_NAME_LENGTH_BYTES: Final = 2
_VALUE_LENGTH_BYTES: Final = 4
NAME_BYTES_MAX: Final = (1 << 8 * _NAME_LENGTH_BYTES) - 1


def pack(properties: dict[str, bytes]) -> bytes:
    """A name longer than NAME_BYTES_MAX is a ValueError."""
    parts: list[bytes] = []
    for name, value in properties.items():
        encoded = name.encode("utf-8", "surrogatepass")
        if len(encoded) > NAME_BYTES_MAX:
            raise ValueError(
                f"a property's name has {len(encoded)} bytes, more than the maximum of "
                f"{NAME_BYTES_MAX}"
            )
        parts.append(len(encoded).to_bytes(_NAME_LENGTH_BYTES, "big"))
        parts.append(encoded)
        parts.append(len(value).to_bytes(_VALUE_LENGTH_BYTES, "big"))
        parts.append(value)
    return b"".join(parts)


def unpack(packed: bytes) -> dict[str, bytes]:
    """Read what `pack` wrote; ValueError for damaged bytes."""
    properties: dict[str, bytes] = {}
    at = 0
    while at < len(packed):
        name, at = _piece(packed, at, _NAME_LENGTH_BYTES)
        value, at = _piece(packed, at, _VALUE_LENGTH_BYTES)
        properties[name.decode("utf-8", "surrogatepass")] = value
    return properties


def merge(old: bytes, new: bytes) -> bytes:
    """The properties of both; the new value wins where both have one."""
    if not old or not new:
        return new or old
    properties = unpack(old)
    properties.update(unpack(new))
    return pack(properties)


def _piece(packed: bytes, at: int, length_bytes: int) -> tuple[bytes, int]:
    start = at + length_bytes
    end = start + int.from_bytes(packed[at:start], "big")
    if start > len(packed) or end > len(packed):
        raise ValueError("packed properties are truncated")
    return packed[start:end], end
