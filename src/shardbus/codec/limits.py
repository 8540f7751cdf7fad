"""The bounds of the wire format that no configuration can widen."""

from typing import Final

# Deeper values have no use in messaging; the official SDKs refuse them at the same depth.
NESTING_MAX: Final = 64
# Elements without bytes of their own cost the sender nothing and the bus eight bytes each, so one
# value may have only a few; no client of the dialect sends any.
ZERO_WIDTH_ELEMENTS_MAX: Final = 256
# AMQP 1.0 part 2, 2.7.1: every container must accept frames of this size.
FRAME_SIZE_MIN: Final = 512
# Part 5, 5.3.1 keeps SASL frames within 512 bytes, but a token that is shown over PLAIN is longer.
SASL_FRAME_SIZE_MAX: Final = 9 * 1024
UINT_MAX: Final = 0xFFFFFFFF
# Delivery tags are at most this long (part 2, 2.8.7).
DELIVERY_TAG_MAX: Final = 32
# Pieces of a frame or delivery that are kept apart. More are joined, because a piece costs more
# than a few bytes.
PIECES_MAX: Final = 256
# Flows that may wait behind transfers for the peer's window while the peer asks for more.
FLOWS_WAITING_MAX: Final = 10_000
# Messages in one batch: each costs the sender at least five bytes and the bus a whole message.
BATCH_MESSAGES_MAX: Final = 65_536
