"""Peeking page by page over HTTP, without state on the server."""

from __future__ import annotations

import re
from typing import Final, final

from shardbus.broker.operations.browse import START_MAX, BrowseCursor
from shardbus.core.limits import KEY_CHARACTERS_MAX, PEEK_COUNT_MAX
from shardbus.core.message import Entry
from shardbus.gateway.http.api.call import Call, Nothing
from shardbus.gateway.http.api.messages.documents import PEEK_COUNT_DEFAULT, Messages
from shardbus.gateway.http.api.messages.message import Message, message_document
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.document import INTEGER_MAX
from shardbus.gateway.http.server.refusal import invalid, shown

# The cursor of a walk is the number at which it continues; that of a merge has a number for each
# fragment.
_WALK: Final = "w"
_MERGE: Final = "m"
_CURSOR: Final = re.compile(r"[wm]([0-9a-f]{1,16}(?:-[0-9a-f]{1,16})*)", re.ASCII)
_CURSOR_CHARACTERS_MAX: Final = 32 * 1024
# The start of a continued merge: no message, and not the beginning.
_CONTINUED: Final = START_MAX + 1


@final
class Browsing:
    """Shows the messages of entities."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places

    async def show(self, call: Call[Nothing]) -> Messages:
        place = self._places.place(call.name)
        top = call.query.integer("top", PEEK_COUNT_DEFAULT, PEEK_COUNT_MAX, least=1)
        session_id = _session_id(call)
        start, cursor = _begin(call, place)
        self._places.pay(1)
        entries = await place.handle.operations.peek(
            place.line, start=start, count_max=top, cursor=cursor, session_id=session_id
        )
        is_merge = session_id is None and start <= _CONTINUED
        return Messages(
            messages=[_document(entry) for entry in entries],
            next=_next(entries, cursor if is_merge else None),
        )


def _document(entry: Entry) -> Message:
    return message_document(entry, entry.payload or b"", delivery_count=entry.delivery_count)


def _session_id(call: Call[Nothing]) -> str | None:
    if not call.query.has("session"):
        return None
    session_id = call.query.text("session")
    if len(session_id) > KEY_CHARACTERS_MAX:
        raise invalid(f"session has more than {KEY_CHARACTERS_MAX} characters.")
    return session_id


def _begin(call: Call[Nothing], place: EntityPlace) -> tuple[int, BrowseCursor]:
    cursor = BrowseCursor()
    if not call.query.has("cursor"):
        return call.query.integer("from", 0, INTEGER_MAX), cursor
    if call.query.has("from"):
        raise invalid("A page continues from a cursor or begins with from: give only one of them.")
    text = call.query.text("cursor")
    found = _CURSOR.fullmatch(text) if len(text) <= _CURSOR_CHARACTERS_MAX else None
    positions = [] if found is None else [int(part, 16) for part in found[1].split("-")]
    expected = len(place.handle.runners) if text.startswith(_MERGE) else 1
    if len(positions) != expected or max(positions) > INTEGER_MAX:
        raise invalid(f"cursor is {shown(text)}; it must be the member next of an earlier page.")
    if text.startswith(_WALK):
        return max(positions[0], _CONTINUED + 1), cursor
    cursor.note(_CONTINUED, positions)
    return _CONTINUED, cursor


def _next(entries: list[Entry], cursor: BrowseCursor | None) -> str | None:
    if not entries:
        return None
    if cursor is None:
        return f"{_WALK}{entries[-1].sequence_number + 1:x}"
    return _MERGE + "-".join(f"{position:x}" for position in cursor.positions)
