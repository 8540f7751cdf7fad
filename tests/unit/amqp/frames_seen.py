"""What an end wrote, taken apart with nothing but the generic decoder."""

from dataclasses import dataclass

from shardbus.codec.types import Described, Ulong, Value, value_of
from shardbus.codec.value import decode

HEADERS = (b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00")
NAMES = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
    0x40: "sasl-mechanisms",
    0x41: "sasl-init",
    0x44: "sasl-outcome",
}


@dataclass(frozen=True)
class Seen:
    """One frame, or a protocol header or heart-beat with no fields."""

    name: str
    channel: int
    fields: list[Value]
    payload: bytes

    def field(self, index: int) -> Value:
        """The plain value of a field, None when the list is shorter."""
        return value_of(self.fields[index]) if index < len(self.fields) else None


def seen(output: bytes) -> list[Seen]:
    """Every frame in what was written; fails when it is not well-formed."""
    frames: list[Seen] = []
    while output:
        if output[:8] in HEADERS:
            frames.append(Seen("header", output[4], [], b""))
            output = output[8:]
            continue
        size = int.from_bytes(output[:4], "big")
        assert 8 <= size <= len(output)
        assert output[4] == 2
        frames.append(_frame(output[:size]))
        output = output[size:]
    return frames


def _frame(frame: bytes) -> Seen:
    channel = int.from_bytes(frame[6:8], "big")
    if len(frame) == 8:
        return Seen("heartbeat", channel, [], b"")
    # The Python SDK needs every descriptor of a performative as a smallulong.
    assert frame[8:10] == b"\x00\x53"
    performative, offset = decode(frame, 8)
    assert isinstance(performative, Described)
    assert isinstance(performative.descriptor, Ulong)
    assert isinstance(performative.value, list)
    name = NAMES[performative.descriptor.value]
    return Seen(name, channel, performative.value, frame[offset:])


def names(output: bytes) -> list[str]:
    return [frame.name for frame in seen(output)]


def error_of(frame: Seen) -> str:
    """The condition in a detach, end or close."""
    error = frame.field({"detach": 2, "end": 0, "close": 0}[frame.name])
    assert isinstance(error, list)
    # Always three fields: the Python SDK indexes them.
    assert len(error) == 3
    condition = value_of(error[0])
    assert isinstance(condition, str)
    return condition
