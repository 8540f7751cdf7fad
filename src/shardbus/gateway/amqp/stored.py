"""A stored message as clients get it, delivered or peeked (reference 5)."""

from __future__ import annotations

from typing import Final

from shardbus.amqp.encoder import encode_text
from shardbus.amqp.message import Stamp, encode_delivery, scan_message
from shardbus.core.command import Delivery
from shardbus.core.message import DEFERRED, NEVER_MS, SCHEDULED, Entry
from shardbus.core.properties import unpack
from shardbus.core.sequence import fragment_of
from shardbus.gateway.amqp.settlement import DESCRIPTION_KEY, REASON_KEY

_UINT_MAX: Final = 0xFFFFFFFF
# The last millisecond of the year 9999, beyond which SDKs have no date.
LATEST_MS: Final = 253_402_300_799_999


def encode_entry(
    entry: Entry,
    payload: bytes,
    *,
    delivery_count: int,
    locked_until_ms: int,
    is_partitioned: bool,
    lock_token: bytes | None = None,
) -> bytes:
    """`locked_until_ms` is -1 for a message that is not locked for who gets it; `lock_token` is
    empty for one that is received and deleted, None for one that is only looked at.
    """
    number = entry.sequence_number
    state = entry.state
    head = scan_message(payload)
    stamp = Stamp(
        sequence_number=number,
        enqueued_time_ms=entry.enqueued_at_ms,
        delivery_count=delivery_count,
        enqueue_sequence_number=number if head.first_number < 0 else head.first_number,
        locked_until_ms=locked_until_ms,
        partition_id=fragment_of(number) if is_partitioned else -1,
        # A delayed message is an active one to SDKs: they know no fourth state.
        message_state=state if state in (DEFERRED, SCHEDULED) else 0,
        deadletter_source=head.deadletter_source,
        lock_token=lock_token,
    )
    if entry.expires_at_ms != NEVER_MS:
        left_ms = entry.expires_at_ms - entry.enqueued_at_ms
        stamp.ttl_ms = min(max(left_ms, 0), _UINT_MAX)
        stamp.absolute_expiry_ms = min(entry.expires_at_ms, LATEST_MS)
    return encode_delivery(payload, head, stamp, overlay_of(entry))


def encode_received(delivery: Delivery, *, is_locked: bool, is_partitioned: bool) -> bytes:
    """A message that was received, locked or taken out."""
    return encode_entry(
        delivery.entry,
        delivery.payload or b"",
        delivery_count=delivery.delivery_count,
        locked_until_ms=delivery.locked_until_ms if is_locked else -1,
        is_partitioned=is_partitioned,
        lock_token=delivery.token if is_locked else b"",
    )


def overlay_of(entry: Entry) -> dict[str, bytes] | None:
    """The application properties that the bus has changed or added, encoded; None if none."""
    if entry.reason is None and entry.description is None and not entry.modified:
        return None
    overlay = unpack(entry.modified)
    if entry.reason is not None:
        overlay[REASON_KEY] = encode_text(entry.reason)
    if entry.description is not None:
        overlay[DESCRIPTION_KEY] = encode_text(entry.description)
    return overlay
