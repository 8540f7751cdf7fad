"""The fields of a frame as bytes: big-endian integers, UTF-8 texts, lengths in four bytes."""
# Compiled by mypyc.

from __future__ import annotations

from struct import Struct
from typing import Final, final

from shardbus.stores.base.store import FragmentId

# A premium message of 100 MiB must fit with its envelope.
FRAME_BYTES_MAX: Final = 128 * 1024 * 1024

HEAD: Final = Struct(">IB")
LENGTH: Final = Struct(">I")
U16: Final = Struct(">H")
I64: Final = Struct(">q")
FRAGMENT: Final = Struct(">qH")

# Which optional fields of a record follow.
HAS_FIRST: Final = 1
HAS_SECOND: Final = 2
HAS_THIRD: Final = 4
HAS_FOURTH: Final = 8
HAS_FIFTH: Final = 16
HAS_SIXTH: Final = 32


# Of writers and readers that are told no version: everything that this build knows.
ALL_VERSIONS: Final = 1 << 16


class WireError(Exception):
    """The other side sent an invalid frame, or something does not fit in a frame."""


@final
class TooNew(WireError):
    """The version of the protocol on this connection cannot say this; nothing was sent."""

    def __init__(self, what: str, since: int) -> None:
        super().__init__(f"{what} needs version {since} of the protocol")
        self.what = what
        self.since = since


@final
class FieldWriter:
    """Collects the fields of one frame, for a process that speaks this version."""

    def __init__(self, version: int = ALL_VERSIONS) -> None:
        self.version = version
        self.parts: list[bytes] = [b""]

    def frame(self, kind: int) -> bytes:
        length = 1
        for part in self.parts:
            length += len(part)
        if length > FRAME_BYTES_MAX:
            raise WireError(f"{length} bytes are more than the {FRAME_BYTES_MAX} of a frame")
        self.parts[0] = HEAD.pack(length, kind)
        return b"".join(self.parts)

    def reserve(self) -> int:
        """Reserve the place of a part that is known only after those that follow it."""
        self.parts.append(b"")
        return len(self.parts) - 1

    def u8(self, value: int) -> None:
        self.parts.append(value.to_bytes(1, "big"))

    def u16(self, value: int) -> None:
        self.parts.append(U16.pack(value))

    def i64(self, value: int) -> None:
        self.parts.append(I64.pack(value))

    def count(self, value: int) -> None:
        self.parts.append(LENGTH.pack(value))

    def data(self, value: bytes) -> None:
        self.parts.append(LENGTH.pack(len(value)))
        self.parts.append(value)

    def text(self, value: str) -> None:
        self.data(value.encode("utf-8", "surrogatepass"))

    def fixed(self, value: bytes, size: int) -> None:
        if len(value) != size:
            raise WireError(f"a field has {len(value)} bytes instead of {size}")
        self.parts.append(value)

    def optional_texts(self, first: str | None, second: str | None) -> None:
        if first is not None:
            self.text(first)
        if second is not None:
            self.text(second)


def flags_of(first: str | None, second: str | None, third: str | None = None) -> int:
    flags = 0 if first is None else HAS_FIRST
    if second is not None:
        flags |= HAS_SECOND
    return flags if third is None else flags | HAS_THIRD


@final
class FieldReader:
    """Walks the fields of one frame of this version, and never past its end."""

    def __init__(self, data: bytes, version: int = ALL_VERSIONS) -> None:
        self.version = version
        self.buffer = data
        self.position = 0

    def left(self) -> int:
        return len(self.buffer) - self.position

    def end(self) -> None:
        if self.left():
            raise WireError(f"{self.left()} bytes follow the last field of a frame")

    def step(self, size: int) -> int:
        """Advance; returns where the skipped field begins."""
        start = self.position
        if size > len(self.buffer) - start:
            raise WireError("a frame ends in the middle of a field")
        self.position = start + size
        return start

    def u8(self) -> int:
        return self.buffer[self.step(1)]

    def flag(self) -> bool:
        value = self.u8()
        if value > 1:
            raise WireError(f"{value} is neither true nor false")
        return value == 1

    def small(self, top: int, noun: str) -> int:
        value = self.u8()
        self.check_small(value, top, noun)
        return value

    def check_small(self, value: int, top: int, noun: str) -> None:
        if value > top:
            raise WireError(f"there is no {noun} {value}")

    def bits(self, known: int, noun: str) -> int:
        """Which of the optional fields of a record follow."""
        value = self.u8()
        self.check_bits(value, known, noun)
        return value

    def check_bits(self, value: int, known: int, noun: str) -> None:
        if value > known:
            raise WireError(f"{value} has unknown bits for a {noun}")

    def u16(self) -> int:
        value: int = U16.unpack_from(self.buffer, self.step(2))[0]
        return value

    def u32(self) -> int:
        value: int = LENGTH.unpack_from(self.buffer, self.step(4))[0]
        return value

    def i64(self) -> int:
        value: int = I64.unpack_from(self.buffer, self.step(8))[0]
        return value

    def count(self, size_min: int) -> int:
        """The number of elements that follow, checked against the bytes left."""
        value = self.u32()
        if value * size_min > self.left():
            raise WireError(f"{value} elements do not fit in the {self.left()} bytes left")
        return value

    def fixed(self, size: int) -> bytes:
        start = self.step(size)
        return self.buffer[start : start + size]

    def data(self) -> bytes:
        return self.fixed(self.u32())

    def text(self) -> str:
        try:
            return self.data().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise WireError(f"a text is not UTF-8: {error}") from error

    def flags(self) -> list[bool]:
        return [value != 0 for value in self.data()]

    def fragment(self) -> FragmentId:
        entity_id: int
        number: int
        entity_id, number = FRAGMENT.unpack_from(self.buffer, self.step(FRAGMENT.size))
        return FragmentId(entity_id, number)
