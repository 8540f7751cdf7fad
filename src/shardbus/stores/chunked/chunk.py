"""The bytes of a chunk: consecutive messages of one fragment in one immutable record.

This module packs and unpacks. `writer` inserts chunks, through the view `work` of the schema.

A chunk is a *head* (what the store must know about each message) and a *body* (the payloads, one
after the other). Everything has a checksum, so that damage is found when it is read:

    head    version u16, count u16, key i64, count x record, checksum u64 of all before it
    record  enqueued at i64, expires at i64, payload bytes u32, checksum u64 of the payload

Other versions have more between the records and the checksum. If the numbers of the messages have
holes: count x position u16, which is the key minus that of the first message. If payloads are
shared with other chunks: count x (position u16, part u16, offset in the part u32), and the parts,
i64 each. If the messages were staged before: the part i64 that is the body. In an unpacked head a
hole is the empty record `HOLE`.

    state   what settlements changed of one message, see `pack_state`
    others  counters, session states, remembered ids, kept records, see `pack_counters` and below

All integers are little-endian; checksums are XXH3-64 (0.25 microseconds per KB; CRC-32 takes 1.1).
A *key* has the local number of a fragment in its upper bits and the counter of a message below.
"""
# Compiled by mypyc.

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from shardbus.core.fragment.change import Counters, LineCounters, Remember
from shardbus.core.limits import DIGEST_BYTES, SEQUENCE_COUNTER_BITS, SEQUENCE_COUNTER_MASK
from shardbus.core.message import ACTIVE, MAIN_LINE, NEVER_MS, SET_ASIDE, Entry
from shardbus.core.sessions.key import session_key
from shardbus.stores.base.record import EXPIRES_AT_MS, HOLE, SIZE_BYTES, Record

COUNTER_BITS: Final = 43
COUNTER_MAX: Final = (1 << COUNTER_BITS) - 1
LOCALS_MAX: Final = 1 << 20

CHUNK_COUNT_MAX: Final = 256
CHUNK_BYTES_MAX: Final = 256 * 1024
# The range of numbers of a chunk: when a message leaves, a bitmap of this size is written.
CHUNK_SPAN_MAX: Final = 4096
# Within one chunk, expiries this close count as one moment: messages of one batch differ by
# milliseconds, and an exact minimum would be recomputed with every removal.
DUE_SPREAD_MS: Final = 1_000

FORMAT_VERSION: Final = 1
SCATTERED_VERSION: Final = 2
SHARED_VERSION: Final = 3
ADOPTED_VERSION: Final = 4
# The version of pieces of stages that have payloads beside them.
PIECE_VERSION: Final = 2
# The version of pieces of journals that have several blocks.
BLOCKS_VERSION: Final = 3
_HEAD_START: Final = Struct("<HHq")
_RECORD: Final = Struct("<qqIQ")
# The two halves of a record: its moments, and what describes its payload.
_MOMENTS: Final = Struct("<qq")
_DESCRIBED_BYTES: Final = 12
_CHECKSUM: Final = Struct("<Q")
_STATE_START: Final = Struct("<HqBBqqIIiiIiq")
_COUNTERS: Final = Struct("<H17q")
_SESSION_STATE_START: Final = Struct("<HqqI")
_MOMENT: Final = Struct("<q")
_RECORD_START: Final = Struct("<HqqI")
_POSITION: Final = Struct("<H")
_SPOT: Final = Struct("<HHI")
_PART: Final = Struct("<q")
HEAD_START_BYTES: Final = 12
RECORD_BYTES: Final = 28
_SHARED_MARK: Final = SHARED_VERSION.to_bytes(2, "little")
_ADOPTED_MARK: Final = ADOPTED_VERSION.to_bytes(2, "little")
CHECKSUM_BYTES: Final = 8
COUNTERS_BYTES: Final = 146
"""The counters of a fragment. Bytes after them are the open piece of its journal."""

Spot = tuple[int, int, int]
"""Position of the message, index of its part, and where in the part its payload begins."""

assert COUNTER_BITS < SEQUENCE_COUNTER_BITS
assert LOCALS_MAX << COUNTER_BITS <= 1 << 63
assert _HEAD_START.size == HEAD_START_BYTES
assert _RECORD.size == RECORD_BYTES == _MOMENTS.size + _DESCRIBED_BYTES
assert CHUNK_COUNT_MAX <= CHUNK_SPAN_MAX < 1 << 16
assert _COUNTERS.size + CHECKSUM_BYTES == COUNTERS_BYTES


def key_of(local: int, counter: int) -> int:
    return local << COUNTER_BITS | counter


def local_of(key: int) -> int:
    return key >> COUNTER_BITS


def sequence_base(number: int) -> int:
    """The bits above the counter that all sequence numbers of a fragment share."""
    return number << SEQUENCE_COUNTER_BITS


def sequence_of(base: int, key: int) -> int:
    return base | key & COUNTER_MAX


def counter_of(sequence_number: int) -> int:
    return sequence_number & SEQUENCE_COUNTER_MASK


def is_plain(entry: Entry) -> bool:
    """Whether a message is as its sender left it, so that a chunk describes it completely."""
    return (
        entry.delivery_count == 0
        and entry.line == MAIN_LINE
        and entry.state == ACTIVE
        and entry.reason is None
        and entry.description is None
        and not entry.modified
        and entry.session_id is None
    )


def session_of(entry: Entry) -> bytes | None:
    """The name of the session under which a message can be found; None: under no session."""
    if entry.session_id is None or entry.line != MAIN_LINE or entry.state == SET_ASIDE:
        return None
    return session_name(entry.session_id)


def session_name(session_id: str) -> bytes:
    """The name under which a store keeps a session, for any spelling of its id."""
    return encoded(session_key(session_id))


def record_of(entry: Entry, payload: bytes) -> Record:
    digest = int(xxh3_64_intdigest(payload))
    return (entry.enqueued_at_ms, entry.expires_at_ms, len(payload), digest)


@lru_cache(maxsize=64)
def _head_struct(count: int) -> Struct:
    # One call packs everything: three times as fast as a call per record.
    return Struct("<HHq" + "qqIQ" * count)


@lru_cache(maxsize=128)
def _repeated(layout: str, count: int) -> Struct:
    return Struct("<" + layout * count)


def pack_head(key: int, records: list[Record]) -> bytes:
    head = _packed_records(FORMAT_VERSION, key, records)
    return head + _CHECKSUM.pack(xxh3_64_intdigest(head))


def pack_scattered(key: int, records: list[Record], positions: list[int]) -> bytes:
    """The head of messages whose numbers have holes; the first position is 0."""
    data = _packed_records(SCATTERED_VERSION, key, records)
    data += _repeated("H", len(positions)).pack(*positions)
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data))


def pack_shared(key: int, records: list[Record], spots: list[Spot], parts: list[int]) -> bytes:
    """The head of messages whose payloads are in these parts; `spots` in the order of `records`."""
    data = _packed_records(SHARED_VERSION, key, records)
    fields: list[int] = []
    for spot in spots:
        fields += spot
    data += _repeated("HHI", len(spots)).pack(*fields)
    data += _repeated("q", len(parts)).pack(*parts)
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data))


def pack_adopted(
    key: int, enqueued_at_ms: int, expiries_ms: list[int], described: bytes, part: int
) -> bytes:
    """The head of messages whose payloads are one part, one after the other.

    `expiries_ms` has a moment for each of them, or one for all. `described` is the second half of
    each record, as it was stored with the part: it is not unpacked to be packed again.
    """
    halves = [
        described[at : at + _DESCRIBED_BYTES] for at in range(0, len(described), _DESCRIBED_BYTES)
    ]
    data = _HEAD_START.pack(ADOPTED_VERSION, len(halves), key)
    if len(expiries_ms) == 1:
        moments: bytes = _MOMENTS.pack(enqueued_at_ms, expiries_ms[0])
        data += moments + moments.join(halves)
    else:
        records: list[bytes] = []
        for at_ms, half in zip(expiries_ms, halves, strict=True):
            records.append(_MOMENTS.pack(enqueued_at_ms, at_ms))
            records.append(half)
        data += b"".join(records)
    data += _PART.pack(part)
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data))


def _packed_records(version: int, key: int, records: list[Record]) -> bytes:
    fields: list[int] = [version, len(records), key]
    for record in records:
        fields += record
    packed: bytes = _head_struct(len(records)).pack(*fields)
    return packed


def unpack_head(key: int, head: bytes) -> list[Record] | None:
    """The records of a head, None if it is damaged or not the head of that chunk.

    In a head with holes the records are at their positions, with HOLE between them.
    """
    end = len(head) - CHECKSUM_BYTES
    if end < HEAD_START_BYTES + RECORD_BYTES:
        return None
    version, count, stored_key = _HEAD_START.unpack_from(head, 0)
    checksum = _CHECKSUM.unpack_from(head, end)[0]
    records_end = HEAD_START_BYTES + count * RECORD_BYTES
    if stored_key != key or records_end > end:
        return None
    if checksum != int(xxh3_64_intdigest(head[:end])):
        return None
    is_dense = version in (FORMAT_VERSION, ADOPTED_VERSION)
    if is_dense and end - records_end != (0 if version == FORMAT_VERSION else _PART.size):
        return None
    records: list[Record] = list(_RECORD.iter_unpack(head[HEAD_START_BYTES:records_end]))
    if is_dense:
        return records
    positions = _positions(version, count, head[records_end:end])
    return None if positions is None else _spread(records, positions)


def _positions(version: int, count: int, data: bytes) -> list[int] | None:
    if version == SCATTERED_VERSION and len(data) == count * _POSITION.size:
        return [position for (position,) in _POSITION.iter_unpack(data)]
    if version == SHARED_VERSION and len(data) >= count * _SPOT.size:
        return [spot[0] for spot in _SPOT.iter_unpack(data[: count * _SPOT.size])]
    return None


def _spread(records: list[Record], positions: list[int]) -> list[Record] | None:
    """Records at their positions; None where the positions do not ascend from 0 or are too far
    apart.
    """
    spread: list[Record] = []
    for position, record in zip(positions, records, strict=True):
        holes = position - len(spread)
        if holes < 0 or position >= CHUNK_SPAN_MAX:
            return None
        if holes > 0:
            spread += [HOLE] * holes
        spread.append(record)
    return None if not records or positions[0] != 0 else spread


def holes_of(records: list[Record]) -> int:
    """A bit for each position without a message."""
    holes = 0
    if HOLE in records:
        for position, record in enumerate(records):
            if record == HOLE:
                holes |= 1 << position
    return holes


def head_key(head: bytes) -> int:
    """The first key in a head, damaged or not; -1 if the head is too short."""
    return -1 if len(head) < HEAD_START_BYTES else int(_HEAD_START.unpack_from(head, 0)[2])


def is_shared(head: bytes) -> bool:
    """Whether the body is a list of parts instead of the payloads."""
    return head.startswith(_SHARED_MARK) or head.startswith(_ADOPTED_MARK)


def unpack_spots(head: bytes) -> tuple[list[Spot], list[int]]:
    """Where the payloads of a shared head are, in the order of its records, and the parts.

    Both are empty when the head is damaged.
    """
    if head.startswith(_ADOPTED_MARK):
        return _adopted_spots(head)
    end = len(head) - CHECKSUM_BYTES
    count = _HEAD_START.unpack_from(head, 0)[1] if end >= HEAD_START_BYTES else 0
    spots_at = HEAD_START_BYTES + count * RECORD_BYTES
    parts_at = spots_at + count * _SPOT.size
    if not is_shared(head) or end < parts_at or (end - parts_at) % _PART.size != 0:
        return [], []
    if _CHECKSUM.unpack_from(head, end)[0] != int(xxh3_64_intdigest(head[:end])):
        return [], []
    spots: list[Spot] = list(_SPOT.iter_unpack(head[spots_at:parts_at]))
    return spots, [part for (part,) in _PART.iter_unpack(head[parts_at:end])]


def _adopted_spots(head: bytes) -> tuple[list[Spot], list[int]]:
    records = unpack_head(head_key(head), head)
    if records is None:
        return [], []
    spots: list[Spot] = []
    start = 0
    for position, record in enumerate(records):
        spots.append((position, 0, start))
        start += record[SIZE_BYTES]
    return spots, [_adopted_part(head)]


def _adopted_part(head: bytes) -> int:
    part: int = _PART.unpack_from(head, len(head) - CHECKSUM_BYTES - _PART.size)[0]
    return part


def parts_of(head: bytes) -> list[int]:
    """The parts of a shared head, none when it is damaged."""
    end = len(head) - CHECKSUM_BYTES
    if not head.startswith(_ADOPTED_MARK):
        return unpack_spots(head)[1]
    if end < HEAD_START_BYTES + RECORD_BYTES + _PART.size:
        return []
    is_whole = _CHECKSUM.unpack_from(head, end)[0] == int(xxh3_64_intdigest(head[:end]))
    return [_adopted_part(head)] if is_whole else []


def assembled(head: bytes, bodies: dict[int, bytes]) -> bytes:
    """The body that a shared head would have if its chunk shared nothing.

    A missing part is replaced by zeros, so that the payloads in other parts are still found.
    """
    if head.startswith(_ADOPTED_MARK):
        adopted = parts_of(head)
        return bodies.get(adopted[0], b"") if adopted else b""
    spots, parts = unpack_spots(head)
    payloads: list[bytes] = []
    at = HEAD_START_BYTES
    for _, part, start in spots:
        size: int = _RECORD.unpack_from(head, at)[2]
        body = bodies.get(parts[part], b"") if part < len(parts) else b""
        payloads.append(body[start : start + size].ljust(size, b"\x00"))
        at += RECORD_BYTES
    return b"".join(payloads)


def due_of(records: list[Record], gone: int) -> tuple[int, bool]:
    """The earliest expiry of the remaining messages, and whether it may change when more leave.

    `gone` has a bit for each message that left the chunk.
    """
    earliest = NEVER_MS
    latest = NEVER_MS
    has_immortal = False
    for position, record in enumerate(records):
        if gone >> position & 1:
            continue
        expires_at = record[EXPIRES_AT_MS]
        if expires_at == NEVER_MS:
            has_immortal = True
            continue
        if earliest == NEVER_MS or expires_at < earliest:
            earliest = expires_at
        latest = max(latest, expires_at)
    is_mixed = earliest != NEVER_MS and (has_immortal or latest - earliest > DUE_SPREAD_MS)
    return earliest, is_mixed


def pack_gap(key: int, gone: int, count: int) -> bytes:
    """A bit for each message that left its chunk, lowest first, and a checksum."""
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
    """Everything that may change about a message, and what `read_due` needs, with a checksum."""
    reason = encoded(entry.reason)
    description = encoded(entry.description)
    session = encoded(entry.session_id)
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
            -1 if entry.session_id is None else len(session),
            entry.delayed_until_ms,
        )
        + reason
        + description
        + entry.modified
        + session
    )
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data))


def unpack_state(key: int, base: int, data: bytes) -> Entry | None:
    """The message without its payload, None if the record is damaged."""
    end = len(data) - CHECKSUM_BYTES
    if end < _STATE_START.size:
        return None
    if _CHECKSUM.unpack_from(data, end)[0] != int(xxh3_64_intdigest(data[:end])):
        return None
    (
        version,
        stored_key,
        line,
        state,
        enqueued_at_ms,
        expires_at_ms,
        size_bytes,
        delivery_count,
        reason_bytes,
        description_bytes,
        modified_bytes,
        session_bytes,
        delayed_until_ms,
    ) = _STATE_START.unpack_from(data, 0)
    if version != FORMAT_VERSION or stored_key != key:
        return None
    reason_at = _STATE_START.size
    description_at = reason_at + max(reason_bytes, 0)
    modified_at = description_at + max(description_bytes, 0)
    session_at = modified_at + modified_bytes
    return Entry(
        sequence_of(base, key),
        None,
        size_bytes,
        enqueued_at_ms=enqueued_at_ms,
        expires_at_ms=expires_at_ms,
        delivery_count=delivery_count,
        line=line,
        state=state,
        reason=_text_at(data, reason_at, reason_bytes),
        description=_text_at(data, description_at, description_bytes),
        modified=data[modified_at:session_at],
        session_id=_text_at(data, session_at, session_bytes),
        delayed_until_ms=delayed_until_ms,
    )


def spelled_in(start: bytes, end: bytes) -> bytes | None:
    """The session in the record of a message, given only the record's start and end."""
    if len(start) < _STATE_START.size:
        return None
    *_, size, _ = _STATE_START.unpack_from(start, 0)
    if not 0 <= size <= len(end) - CHECKSUM_BYTES:
        return None
    return end[len(end) - CHECKSUM_BYTES - size : len(end) - CHECKSUM_BYTES]


def pack_counters(local: int, counters: Counters) -> bytes:
    fields: list[int] = [FORMAT_VERSION, counters.last_counter]
    for line in counters.lines:
        fields += (line.count, line.size_bytes, line.deferred, line.scheduled)
    fields += (counters.set_aside, counters.states, counters.state_bytes, counters.duplicates)
    data: bytes = _COUNTERS.pack(*fields)
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data, seed=local))


def unpack_counters(local: int, data: bytes) -> Counters | None:
    """The counters of a fragment, None if the record is damaged. What follows them is ignored."""
    if len(data) < COUNTERS_BYTES:
        return None
    end = _COUNTERS.size
    if _CHECKSUM.unpack_from(data, end)[0] != int(xxh3_64_intdigest(data[:end], seed=local)):
        return None
    fields: tuple[int, ...] = _COUNTERS.unpack_from(data, 0)
    version, last_counter = fields[:2]
    set_aside, states, state_bytes, duplicates = fields[-4:]
    if version != FORMAT_VERSION:
        return None
    return Counters(
        last_counter,
        [LineCounters(*fields[at : at + 4]) for at in (2, 6, 10)],
        set_aside,
        states=states,
        state_bytes=state_bytes,
        duplicates=duplicates,
    )


def pack_session_state(local: int, name: bytes, set_at_ms: int, state: bytes) -> bytes:
    """The state of a session with the session's name, so that the record can be found without an
    index.
    """
    data = _SESSION_STATE_START.pack(FORMAT_VERSION, local, set_at_ms, len(name)) + name + state
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data))


def session_state_bytes(name: bytes, data: bytes) -> int:
    """The size of the state in a record, damaged or not."""
    return max(len(data) - _SESSION_STATE_START.size - len(name) - CHECKSUM_BYTES, 0)


class SessionState(NamedTuple):
    """The state of a session, and the spelling of the session id when it was set."""

    local: int
    name: bytes
    set_at_ms: int
    state: bytes


def unpack_session_state(data: bytes) -> SessionState | None:
    """Read what `pack_session_state` wrote; None if the record is damaged."""
    end = len(data) - CHECKSUM_BYTES
    name_at = _SESSION_STATE_START.size
    if end < name_at:
        return None
    if _CHECKSUM.unpack_from(data, end)[0] != int(xxh3_64_intdigest(data[:end])):
        return None
    version, local, set_at_ms, name_bytes = _SESSION_STATE_START.unpack_from(data, 0)
    state_at = name_at + name_bytes
    if version != FORMAT_VERSION or state_at > end:
        return None
    return SessionState(local, data[name_at:state_at], set_at_ms, data[state_at:end])


def spelled_in_state(start: bytes) -> bytes | None:
    """The session in the record of a state, given only the record's start."""
    name_at = _SESSION_STATE_START.size
    if len(start) < name_at:
        return None
    name_bytes: int = _SESSION_STATE_START.unpack_from(start, 0)[3]
    return start[name_at : name_at + name_bytes]


def pack_remembered(local: int, at_ms: int, digests: bytes) -> bytes:
    data = _MOMENT.pack(at_ms) + digests
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data, seed=local))


def unpack_remembered(local: int, data: bytes) -> Remember | None:
    """Message ids and when they were accepted, None if the record is damaged."""
    end = len(data) - CHECKSUM_BYTES
    if end < _MOMENT.size or (end - _MOMENT.size) % DIGEST_BYTES != 0:
        return None
    if _CHECKSUM.unpack_from(data, end)[0] != int(xxh3_64_intdigest(data[:end], seed=local)):
        return None
    return Remember(_MOMENT.unpack_from(data, 0)[0], data[_MOMENT.size : end])


def pack_record(local: int, kind: int, key: bytes, data: bytes) -> bytes:
    """A record of a fragment with its kind and key, so that it can be found without an index."""
    return pack_versioned(FORMAT_VERSION, local, kind, key, data)


def unpack_record(packed: bytes) -> tuple[int, int, bytes, bytes] | None:
    """Local number, kind, key and data; None if the record is damaged."""
    found = unpack_versioned(packed)
    return None if found is None or found[0] != FORMAT_VERSION else found[1:]


def pack_versioned(version: int, local: int, kind: int, key: bytes, data: bytes) -> bytes:
    packed = _RECORD_START.pack(version, local, kind, len(key)) + key + data
    return packed + _CHECKSUM.pack(xxh3_64_intdigest(packed))


def unpack_versioned(packed: bytes) -> tuple[int, int, int, bytes, bytes] | None:
    """Version, local number, kind, key and data; None if the record is damaged."""
    end = len(packed) - CHECKSUM_BYTES
    key_at = _RECORD_START.size
    if end < key_at:
        return None
    if _CHECKSUM.unpack_from(packed, end)[0] != int(xxh3_64_intdigest(packed[:end])):
        return None
    version, local, kind, key_bytes = _RECORD_START.unpack_from(packed, 0)
    data_at = key_at + key_bytes
    if not FORMAT_VERSION <= version <= BLOCKS_VERSION or data_at > end:
        return None
    return version, local, kind, packed[key_at:data_at], packed[data_at:end]


def encoded(text: str | None) -> bytes:
    # Clients may send lone surrogates; they must come back unchanged.
    return b"" if text is None else text.encode("utf-8", "surrogatepass")


def decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")


def _text_at(data: bytes, start: int, size: int) -> str | None:
    return None if size < 0 else decoded(data[start : start + size])
