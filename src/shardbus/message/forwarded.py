"""Stored messages as they are forwarded to another entity (R27)."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from shardbus.codec.encoder import encode, encode_text
from shardbus.codec.errors import DecodeError
from shardbus.core.message import DEAD_LETTER_LINE, NEVER_MS, Entry, Message
from shardbus.core.messages.command import Delivery
from shardbus.message.revision import Revision, revise
from shardbus.message.scan import DEADLETTER_SOURCE, FIRST_NUMBER, HOPS, MessageHead
from shardbus.message.sections import scan_message
from shardbus.message.seen import overlay_of


@final
class Forwarded:
    """A message as the destination is to get it, and how often it was forwarded before."""

    def __init__(self, message: Message, hops: int) -> None:
        self.message = message
        self.hops = hops


ForwardFormat = Callable[[Delivery, str, int], Forwarded]
"""A function (delivery, name of the source, now) that makes a `Forwarded`: `forwarded`, or a
simpler one in tests.

Raises ValueError for a payload that cannot be read.
"""


def forwarded(delivery: Delivery, source: str, now_ms: int) -> Forwarded:
    """The message with its hops counted, and with the bus's knowledge about it written into it.

    Its time to live continues to run; a dead letter gets the destination's time to live. Raises
    ValueError for a payload that cannot be read.
    """
    entry, payload = delivery.entry, delivery.payload or b""
    try:
        head = scan_message(payload)
        rewritten = revise(payload, head, _revision(entry, head, source))
    except DecodeError as error:
        raise ValueError(f"The message cannot be read: {error.description}.") from error
    message = Message(
        rewritten,
        message_id=head.message_id,
        session_id=head.session_id,
        partition_key=head.partition_key,
        ttl_ms=-1 if entry.expires_at_ms == NEVER_MS else max(entry.expires_at_ms - now_ms, 0),
    )
    return Forwarded(message, head.hops)


def _revision(entry: Entry, head: MessageHead, source: str) -> Revision:
    made = Revision()
    made.annotations[HOPS.decode()] = encode(head.hops + 1)
    if head.first_number < 0:
        made.annotations[FIRST_NUMBER.decode()] = encode(entry.sequence_number)
    if entry.line == DEAD_LETTER_LINE:
        made.annotations[DEADLETTER_SOURCE.decode()] = encode_text(source)
    made.application = overlay_of(entry) or {}
    return made
