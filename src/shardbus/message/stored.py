"""A stored message as clients get it, delivered or peeked."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import NEVER_MS, Entry
from shardbus.core.messages.command import Delivery
from shardbus.core.sequence import fragment_of
from shardbus.message.sections import Stamp, encode_delivery, scan_message
from shardbus.message.seen import first_number, overlay_of, state_peeked, state_received

_UINT_MAX: Final = 0xFFFFFFFF
# The last millisecond of the year 9999, beyond which SDKs have no date.
LATEST_MS: Final = 253_402_300_799_999


@final
class DeliverySource:
    """What a delivered message shows about the entity it comes from."""

    def __init__(self, *, is_partitioned: bool, is_subscription: bool) -> None:
        self.is_partitioned = is_partitioned
        self.is_subscription = is_subscription


def encode_entry(
    entry: Entry,
    payload: bytes,
    source: DeliverySource,
    *,
    delivery_count: int,
    locked_until_ms: int = -1,
    lock_token: bytes | None = None,
) -> bytes:
    """The message as a client gets it. `locked_until_ms` is -1 for a message that the client has
    not locked; `lock_token` is empty for receive-and-delete, None for a peek.
    """
    number = entry.sequence_number
    head = scan_message(payload)
    stamp = Stamp(
        sequence_number=number,
        enqueued_time_ms=entry.enqueued_at_ms,
        delivery_count=delivery_count,
        enqueue_sequence_number=first_number(entry, head, is_subscription=source.is_subscription),
        locked_until_ms=locked_until_ms,
        partition_id=fragment_of(number) if source.is_partitioned else -1,
        message_state=state_peeked(entry) if lock_token is None else state_received(entry, head),
        deadletter_source=head.deadletter_source,
        lock_token=lock_token,
    )
    if entry.expires_at_ms != NEVER_MS:
        lives_ms = entry.lives_ms()
        stamp.ttl_ms = min(max(lives_ms, 0), _UINT_MAX)
        stamp.is_long = lives_ms > _UINT_MAX
        stamp.absolute_expiry_ms = min(entry.expires_at_ms, LATEST_MS)
    return encode_delivery(payload, head, stamp, overlay_of(entry))


def encode_received(delivery: Delivery, source: DeliverySource, *, is_locked: bool) -> bytes:
    """A received message, locked or removed."""
    return encode_entry(
        delivery.entry,
        delivery.payload or b"",
        source,
        delivery_count=delivery.delivery_count,
        locked_until_ms=delivery.locked_until_ms if is_locked else -1,
        lock_token=delivery.token if is_locked else b"",
    )
