"""The bytes of a chunk: consecutive messages of one fragment in one immutable record.

A chunk is a *head* (what the store needs to know of each message) and a *body* (the payloads, one
after the other). Everything carries a checksum, so that damage is found where it is read:

    head    version u16, count u16, key i64, count x record, checksum u64 of all before it
    record  enqueued at i64, expires at i64, payload bytes u32, checksum u64 of the payload
    state   what settling changed of one message, see `pack_state`

All integers are little endian; checksums are XXH3-64 (0.25 microseconds per KB where CRC-32 takes
1.1). A *key* is the local number of a fragment above the counter of a message.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest

from shardbus.core.change import Counters, LineCounters
from shardbus.core.limits import SEQUENCE_COUNTER_BITS, SEQUENCE_COUNTER_MASK
from shardbus.core.message import ACTIVE, MAIN_LINE, NEVER_MS, SET_ASIDE, Entry

COUNTER_BITS: Final = 43
COUNTER_MAX: Final = (1 << COUNTER_BITS) - 1
LOCALS_MAX: Final = 1 << 20

CHUNK_COUNT_MAX: Final = 256
CHUNK_BYTES_MAX: Final = 256 * 1024
# Within one chunk expiries this close count as one moment: messages of one batch differ by
# milliseconds, and a minimum that must be exact would be computed anew with every removal.
DUE_SPREAD_MS: Final = 1_000

FORMAT_VERSION: Final = 1
_HEAD_START: Final = Struct("<HHq")
_RECORD: Final = Struct("<qqIQ")
_CHECKSUM: Final = Struct("<Q")
_STATE_START: Final = Struct("<HqBBqqIIiiI")
_COUNTERS: Final = Struct("<H8q")
HEAD_START_BYTES: Final = 12
RECORD_BYTES: Final = 28
CHECKSUM_BYTES: Final = 8

Record = tuple[int, int, int, int]
"""Enqueued at, expires at, payload bytes, checksum of the payload."""

assert COUNTER_BITS < SEQUENCE_COUNTER_BITS
assert LOCALS_MAX << COUNTER_BITS <= 1 << 63
assert _HEAD_START.size == HEAD_START_BYTES
assert _RECORD.size == RECORD_BYTES
assert CHUNK_COUNT_MAX < 1 << 16


def key_of(local: int, counter: int) -> int:
    return local << COUNTER_BITS | counter


def local_of(key: int) -> int:
    return key >> COUNTER_BITS


def sequence_base(number: int) -> int:
    """What all sequence numbers of a fragment have above their counters."""
    return number << SEQUENCE_COUNTER_BITS


def sequence_of(base: int, key: int) -> int:
    return base | key & COUNTER_MAX


def counter_of(sequence_number: int) -> int:
    return sequence_number & SEQUENCE_COUNTER_MASK


def is_plain(entry: Entry) -> bool:
    """Whether a message is as its sender left it, so that a chunk says everything about it."""
    return (
        entry.delivery_count == 0
        and entry.line == MAIN_LINE
        and entry.state == ACTIVE
        and entry.reason is None
        and entry.description is None
        and not entry.modified
    )


def due_at(entry: Entry) -> int:
    """When a message is due, NEVER_MS if it cannot expire where it is."""
    if entry.line != MAIN_LINE or entry.state == SET_ASIDE:
        return NEVER_MS
    return entry.expires_at_ms


def record_of(entry: Entry, payload: bytes) -> Record:
    digest = int(xxh3_64_intdigest(payload))
    return (entry.enqueued_at_ms, entry.expires_at_ms, len(payload), digest)


@lru_cache(maxsize=64)
def _head_struct(count: int) -> Struct:
    # One call that packs everything: three times as fast as a call per record.
    return Struct("<HHq" + "qqIQ" * count)


def pack_head(key: int, records: list[Record]) -> bytes:
    fields: list[int] = [FORMAT_VERSION, len(records), key]
    for record in records:
        fields += record
    head: bytes = _head_struct(len(records)).pack(*fields)
    return head + _CHECKSUM.pack(xxh3_64_intdigest(head))


def unpack_head(key: int, head: bytes) -> list[Record] | None:
    """The records of a head, None if it is damaged or not the head of that chunk."""
    end = len(head) - CHECKSUM_BYTES
    if end < HEAD_START_BYTES or (end - HEAD_START_BYTES) % RECORD_BYTES != 0:
        return None
    version, count, stored_key = _HEAD_START.unpack_from(head, 0)
    checksum = _CHECKSUM.unpack_from(head, end)[0]
    if version != FORMAT_VERSION or stored_key != key:
        return None
    if count != (end - HEAD_START_BYTES) // RECORD_BYTES:
        return None
    if checksum != int(xxh3_64_intdigest(head[:end])):
        return None
    return list(_RECORD.iter_unpack(head[HEAD_START_BYTES:end]))


def is_intact(payload: bytes, digest: int) -> bool:
    return int(xxh3_64_intdigest(payload)) == digest


def due_of(records: list[Record], gone: int) -> tuple[int, bool]:
    """The earliest expiry of what is left, and whether it may change when more leaves.

    `gone` is a bit per message that left the chunk.
    """
    earliest = NEVER_MS
    latest = NEVER_MS
    has_immortal = False
    for position, record in enumerate(records):
        if gone >> position & 1:
            continue
        expires_at = record[1]
        if expires_at == NEVER_MS:
            has_immortal = True
            continue
        if earliest == NEVER_MS or expires_at < earliest:
            earliest = expires_at
        latest = max(latest, expires_at)
    is_mixed = earliest != NEVER_MS and (has_immortal or latest - earliest > DUE_SPREAD_MS)
    return earliest, is_mixed


def pack_gap(key: int, gone: int, count: int) -> bytes:
    """A bit per message that left its chunk, lowest first, and a checksum."""
    bitmap = gone.to_bytes((count + 7) // 8, "little")
    return bitmap + _CHECKSUM.pack(xxh3_64_intdigest(bitmap, seed=key))


def unpack_gap(key: int, gap: bytes) -> int:
    """The bits, -1 if the record is damaged."""
    end = len(gap) - CHECKSUM_BYTES
    if end < 1:
        return -1
    checksum = _CHECKSUM.unpack_from(gap, end)[0]
    if checksum != int(xxh3_64_intdigest(gap[:end], seed=key)):
        return -1
    return int.from_bytes(gap[:end], "little")


def pack_state(key: int, entry: Entry) -> bytes:
    """All that may change about a message, and what `read_due` tells of it, with a checksum."""
    reason = _encoded(entry.reason)
    description = _encoded(entry.description)
    data = (
        _STATE_START.pack(
            FORMAT_VERSION,
            key,
            entry.line,
            entry.state,
            entry.enqueued_at_ms,
            entry.expires_at_ms,
            entry.size_bytes,
            entry.delivery_count,
            -1 if entry.reason is None else len(reason),
            -1 if entry.description is None else len(description),
            len(entry.modified),
        )
        + reason
        + description
        + entry.modified
    )
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data))


def unpack_state(key: int, base: int, data: bytes) -> Entry | None:
    """The message without its payload, None if the record is damaged."""
    end = len(data) - CHECKSUM_BYTES
    if end < _STATE_START.size:
        return None
    checksum = _CHECKSUM.unpack_from(data, end)[0]
    fields = _STATE_START.unpack_from(data, 0)
    if checksum != int(xxh3_64_intdigest(data[:end])):
        return None
    if fields[0] != FORMAT_VERSION or fields[1] != key:
        return None
    reason_bytes: int = fields[8]
    description_bytes: int = fields[9]
    reason_end = _STATE_START.size + max(reason_bytes, 0)
    description_end = reason_end + max(description_bytes, 0)
    return Entry(
        sequence_of(base, key),
        None,
        fields[6],
        enqueued_at_ms=fields[4],
        expires_at_ms=fields[5],
        delivery_count=fields[7],
        line=fields[2],
        state=fields[3],
        reason=_decoded(data, _STATE_START.size, reason_bytes),
        description=_decoded(data, reason_end, description_bytes),
        modified=data[description_end:end],
    )


def pack_counters(local: int, counters: Counters) -> bytes:
    main, dead, transfer = counters.lines
    data = _COUNTERS.pack(
        FORMAT_VERSION,
        counters.last_counter,
        main.count,
        main.size_bytes,
        dead.count,
        dead.size_bytes,
        transfer.count,
        transfer.size_bytes,
        counters.set_aside,
    )
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data, seed=local))


def unpack_counters(local: int, data: bytes) -> Counters | None:
    """The counters of a fragment, None if the record is damaged."""
    end = _COUNTERS.size
    if len(data) != end + CHECKSUM_BYTES:
        return None
    if _CHECKSUM.unpack_from(data, end)[0] != int(xxh3_64_intdigest(data[:end], seed=local)):
        return None
    fields = _COUNTERS.unpack_from(data, 0)
    if fields[0] != FORMAT_VERSION:
        return None
    lines = [LineCounters(fields[at], fields[at + 1]) for at in (2, 4, 6)]
    return Counters(fields[1], lines, fields[8])


def _encoded(text: str | None) -> bytes:
    # Clients may send lone surrogates; they must come back as they came.
    return b"" if text is None else text.encode("utf-8", "surrogatepass")


def _decoded(data: bytes, start: int, size: int) -> str | None:
    return None if size < 0 else data[start : start + size].decode("utf-8", "surrogatepass")
