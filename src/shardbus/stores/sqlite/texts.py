"""Rows as SQLite joins them into one text, and back.

Python gives up the interpreter lock for every row it takes from SQLite and may wait for it
behind a busy event loop. So each query answers one row, in which SQLite has joined what belongs
together.
"""
# Compiled by mypyc.

from __future__ import annotations

from shardbus.stores.chunked.chunk import CHUNK_SPAN_MAX, unpack_gap
from shardbus.stores.chunked.directory import Chunk
from shardbus.stores.chunked.page import ChunkRow, EntryRow


def chunk_rows(text: str | None) -> list[ChunkRow]:
    """Rows of `first span size chunk gap-in-hex`, in rising order of their first keys."""
    rows: list[ChunkRow] = []
    if not text:
        return rows
    for line in text.split(";"):
        first, span, size, number, gap = line.split(" ")
        key = int(first)
        gone = unpack_gap(key, bytes.fromhex(gap)) if gap else 0
        rows.append(ChunkRow(key, min(int(span), CHUNK_SPAN_MAX), int(size), int(number), gone))
    rows.sort(key=_first)
    return rows


def _first(row: ChunkRow) -> int:
    return row.first


def entry_rows(text: str | None) -> list[EntryRow]:
    """Rows of `key size chunk state-in-hex`."""
    rows: list[EntryRow] = []
    if not text:
        return rows
    for line in text.split(";"):
        key, size, number, data = line.split(" ")
        rows.append(EntryRow(int(key), int(size), int(number), bytes.fromhex(data)))
    return rows


def cut(text: str | None, heads: bytes, bodies: bytes) -> dict[int, tuple[bytes, bytes]]:
    """Heads and bodies by number, from rows of `number head-bytes body-bytes` and both joined."""
    found: dict[int, tuple[bytes, bytes]] = {}
    if not text:
        return found
    head_at = 0
    body_at = 0
    for line in text.split(";"):
        number, head_bytes, body_bytes = line.split(" ")
        head_end = head_at + int(head_bytes)
        body_end = body_at + int(body_bytes)
        found[int(number)] = (heads[head_at:head_end], bodies[body_at:body_end])
        head_at = head_end
        body_at = body_end
    return found


def listed_chunks(text: str | None, *, is_recent: bool) -> list[Chunk]:
    """Rows of `first span size chunk due mixed gap-in-hex`."""
    chunks: list[Chunk] = []
    for line in text.split(";") if text else ():
        first, span, size, number, due_at, mixed, gap = line.split(" ")
        chunk = Chunk(int(number), int(first), int(span), int(size), int(due_at), mixed == "1")
        chunk.is_recent = is_recent
        chunk.has_gap = gap != ""
        # Of a damaged gap nothing is known: whoever reads the chunk sees all of it as damaged.
        chunk.gone = max(unpack_gap(chunk.first, bytes.fromhex(gap)), 0) if gap else 0
        chunks.append(chunk)
    return chunks
