"""Searches messages, shows one in full, and groups dead letters; bounded work in each request."""

from __future__ import annotations

import time
from base64 import b64encode
from typing import Annotated, Final, final

from msgspec import UNSET, Meta, Struct

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Described, Float, Symbol, Value
from shardbus.core.limits import PEEK_COUNT_MAX
from shardbus.core.message import Entry
from shardbus.core.message_fields import SENT_TEXTS
from shardbus.core.namespace.access import LISTEN
from shardbus.core.sequence import fragment_of
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.messages.message import (
    Message,
    message_document,
    time_to_live_ms,
)
from shardbus.gateway.http.api.messages.scan import CURSOR_CHARACTERS_MAX, entry_of, scan_of
from shardbus.gateway.http.api.messages.values import exact, property_document
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.api.route import NAME, NUMBER, Route
from shardbus.gateway.http.api.search.selection import (
    Condition,
    Group,
    SelectionMembers,
    group_of,
    seen_payload,
)
from shardbus.gateway.http.document import Body, Count, Json, Maybe, Moment, one_of, told
from shardbus.gateway.http.messaging.user_properties import plain
from shardbus.gateway.http.moment import format_moment
from shardbus.message.sections import decode_message, scan_message

SEARCHED_MAX: Final = 5_000
"""Messages that one request examines."""
SEARCH_MS_MAX: Final = 1_000
COUNT_DEFAULT: Final = 50
BODY_BYTES_DEFAULT: Final = 1_024
BODY_BYTES_MAX: Final = 256 * 1024
GROUPS_MAX: Final = 1_000
SAMPLES_MAX: Final = 5

_ENTITY: Final = "/api/v1/entities/{name}"
_Cursor = Annotated[
    Annotated[str, Meta(max_length=CURSOR_CHARACTERS_MAX)] | None,
    told("Where to continue: `next` of the previous page."),
]
_Next = Annotated[str | None, told("The `cursor` of the next page; null at the end.")]
_Searched = Annotated[Count, told("Number of messages examined since the first page.")]
_Total = Annotated[Count, told("Number of messages, as far as they could be counted.")]


class Search(SelectionMembers, kw_only=True, frozen=True):
    fragments: Annotated[
        Maybe[Annotated[list[Count], Meta(max_length=1_000)]], told("Only these fragments.")
    ] = UNSET
    newest_first: bool = False
    count: Annotated[int, Meta(ge=1, le=PEEK_COUNT_MAX)] = COUNT_DEFAULT
    body_bytes_max: Annotated[
        int, Meta(ge=0, le=BODY_BYTES_MAX, description="How much of each body to show.")
    ] = BODY_BYTES_DEFAULT
    cursor: _Cursor = None


class FoundMessage(Message, kw_only=True):
    number: Annotated[str, told("The sequence number as text, exact in every language.")] = ""
    fragment: Count = 0
    body_size_bytes: Count = 0
    is_body_cut: bool = False


class Found(Struct, kw_only=True):
    messages: list[FoundMessage]
    searched: _Searched
    total: _Total
    next: _Next
    unavailable_fragments: list[Count]
    errors: Annotated[Count, told("Messages on which the condition failed.")]
    first_error: str


class TypedValue(Struct, kw_only=True):
    name: str
    type: Annotated[str, told("The AMQP type.")]
    value: Annotated[Json, told("Integers beyond 2^53 as text, bytes in Base64.")]


class WholeMessage(Struct, kw_only=True):
    number: str
    sequence_number: Count
    fragment: Count
    state: str
    enqueued_at: Maybe[Moment] = UNSET
    expires_at: Maybe[Moment] = UNSET
    delivery_count: Count
    size_bytes: Count
    dead_letter_reason: Maybe[str] = UNSET
    dead_letter_description: Maybe[str] = UNSET
    dead_letter_source: Maybe[str] = UNSET
    time_to_live_ms: Maybe[Count] = UNSET
    scheduled_at: Maybe[Moment] = UNSET
    fields: Annotated[dict[str, str], told("The sender's members, by name.")]
    body_kind: Annotated[str, one_of("data", "value", "sequence", "none", "unreadable")]
    body_type: Annotated[str, told("The AMQP type of a value.")]
    body_text: Annotated[str | None, told("The body, if it is text.")]
    body_base64: Annotated[str, told("The bytes of the body; of a value its encoding.")]
    body_json: Annotated[Json, told("A value or sequence as JSON; else null.")]
    properties: list[TypedValue]
    annotations: list[TypedValue]
    resend: Annotated[Message, told("The message as it can be sent again.")]


class Groups(Body, kw_only=True, frozen=True):
    cursor: _Cursor = None


class LetterGroup(Struct, kw_only=True):
    key: str
    reason: str
    description: Annotated[str, told("Without ids, numbers and quoted texts.")]
    source: Annotated[str, told("The entity whose dead letters they were, if it is another one.")]
    count: Count
    first_at: Moment
    last_at: Moment
    samples: Annotated[list[str], told("Some of the sequence numbers.")]


class LetterGroups(Struct, kw_only=True):
    groups: list[LetterGroup]
    searched: _Searched
    total: _Total
    next: Annotated[str | None, told("Ask again with this `cursor`, and add the groups up by key.")]
    unavailable_fragments: list[Count]


@final
class Budget:
    """How many messages and bytes one request may still examine."""

    def __init__(self, count: int = SEARCHED_MAX, ms: int = SEARCH_MS_MAX) -> None:
        self._left = count
        self._ends_s = time.monotonic() + ms / 1000

    @property
    def is_left(self) -> bool:
        return self._left > 0

    def end(self) -> None:
        self._left = 0

    def spend(self) -> bool:
        """Whether there is anything left after one more message."""
        self._left -= 1
        return self._left > 0 and (self._left % 64 != 0 or time.monotonic() < self._ends_s)


@final
class SearchPages:
    """A Group of the API."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places

    def rows(self) -> list[Row]:
        return [
            takes(
                Route(
                    f"{_ENTITY}/messages/search",
                    "Messages that meet a condition, oldest or newest first. Each request examines "
                    "a bounded number; repeat it with `next`.",
                    Found,
                    method="POST",
                    right=LISTEN,
                    parameters=(NAME,),
                    identifier="searchMessages",
                ),
                Search,
                self._search,
            ),
            shows(
                Route(
                    f"{_ENTITY}/messages/{{number}}",
                    "One message in full, with the types of its values.",
                    WholeMessage,
                    right=LISTEN,
                    parameters=(NAME, NUMBER),
                ),
                self._show,
            ),
            takes(
                Route(
                    f"{_ENTITY}/dead-letters/groups",
                    "Dead letters by reason, description and source.",
                    LetterGroups,
                    method="POST",
                    right=LISTEN,
                    parameters=(NAME,),
                    identifier="groupDeadLetters",
                ),
                Groups,
                self._group,
            ),
        ]

    async def _search(self, call: Call[Search]) -> Found:
        place, body = self._places.line_of(call.name), call.body
        condition = Condition(body)
        self._places.pay(1)
        scan, total = await scan_of(
            self._places,
            place,
            fragments=None if body.fragments is UNSET else set(body.fragments),
            is_backward=body.newest_first,
            session_id=None if body.session_id is UNSET else body.session_id,
        )
        if body.cursor is not None:
            scan.resume(body.cursor)
        found: list[FoundMessage] = []
        budget = Budget()
        while budget.is_left and (batch := await scan.batch()):
            for entry in batch:
                scan.passed(entry)
                if condition.matches(entry):
                    found.append(found_document(entry, body.body_bytes_max))
                if not budget.spend() or len(found) >= body.count:
                    budget.end()
                    break
        return Found(
            messages=found,
            searched=scan.searched,
            total=max(total, scan.searched),
            next=scan.cursor,
            unavailable_fragments=scan.unavailable,
            errors=condition.errors,
            first_error=condition.first_error,
        )

    async def _show(self, call: Call[Nothing]) -> WholeMessage:
        place = self._places.line_of(call.name)
        self._places.pay(1)
        return whole_document(await entry_of(place, call.number))

    async def _group(self, call: Call[Groups]) -> LetterGroups:
        place = self._places.letters_of(call.name)
        self._places.pay(1)
        scan, total = await scan_of(self._places, place)
        if call.body.cursor is not None:
            scan.resume(call.body.cursor)
        groups: dict[str, LetterGroup] = {}
        budget = Budget()
        while budget.is_left and (batch := await scan.batch()):
            for entry in batch:
                scan.passed(entry)
                _add(groups, group_of(entry), entry)
                if not budget.spend() or len(groups) >= GROUPS_MAX:
                    budget.end()
                    break
        return LetterGroups(
            groups=sorted(groups.values(), key=lambda each: -each.count),
            searched=scan.searched,
            total=max(total, scan.searched),
            next=scan.cursor,
            unavailable_fragments=scan.unavailable,
        )


def found_document(entry: Entry, body_bytes_max: int) -> FoundMessage:
    document = message_document(
        entry, entry.payload or b"", delivery_count=entry.delivery_count, shape=FoundMessage
    )
    document.number = str(entry.sequence_number)
    document.fragment = fragment_of(entry.sequence_number)
    if isinstance(document.properties, dict):
        document.properties = {name: exact(value) for name, value in document.properties.items()}
    body = document.body
    if isinstance(body, str):
        content = body.encode()
        document.body_size_bytes = len(content)
        if len(content) > body_bytes_max:
            document.body = content[:body_bytes_max].decode(errors="ignore")
            document.is_body_cut = True
    elif isinstance(document.body_base64, str):
        document.body_size_bytes = len(document.body_base64) * 3 // 4
        if document.body_size_bytes > body_bytes_max:
            document.body_base64 = document.body_base64[: body_bytes_max // 3 * 4]
            document.is_body_cut = True
    return document


def whole_document(entry: Entry) -> WholeMessage:
    payload = entry.payload or b""
    shown = message_document(entry, payload, delivery_count=entry.delivery_count, is_exact=True)
    document = WholeMessage(
        number=str(entry.sequence_number),
        sequence_number=entry.sequence_number,
        fragment=fragment_of(entry.sequence_number),
        state=shown.state,
        enqueued_at=shown.enqueued_at,
        expires_at=shown.expires_at,
        delivery_count=entry.delivery_count,
        size_bytes=entry.size_bytes,
        dead_letter_reason=shown.dead_letter_reason,
        dead_letter_description=shown.dead_letter_description,
        dead_letter_source=shown.dead_letter_source,
        time_to_live_ms=UNSET,
        scheduled_at=shown.scheduled_at,
        fields={},
        body_kind="unreadable",
        body_type="",
        body_text=None,
        body_base64=b64encode(payload).decode(),
        body_json=None,
        properties=[],
        annotations=[],
        resend=shown,
    )
    try:
        message = decode_message(seen_payload(entry))
        head = scan_message(payload)
        annotations = _annotations(
            payload, head.message_annotations_offset, head.message_annotations_length
        )
    except DecodeError:
        return document
    document.time_to_live_ms = time_to_live_ms(head) if time_to_live_ms(head) > 0 else UNSET
    for field in SENT_TEXTS:
        text = message.head.text(field.name)
        if text is not None:
            document.fields[field.member] = text
    document.properties = [
        _typed(name, value) for name, value in message.application_properties.items()
    ]
    document.annotations = [_typed(name, value) for name, value in annotations.items()]
    _put_body(document, message.head.body_kind, message.body, payload)
    return document


def _put_body(document: WholeMessage, kind: int, body: Value, payload: bytes) -> None:
    head = scan_message(payload)
    document.body_type = type_name(body)
    if kind in (codes.AMQP_VALUE, codes.AMQP_SEQUENCE):
        document.body_kind = "value" if kind == codes.AMQP_VALUE else "sequence"
        section = payload[head.body_offset : head.body_offset + head.body_length]
        document.body_base64 = b64encode(section).decode()
        document.body_json = exact(plain(body))
        document.body_text = body if isinstance(body, str) else None
        return
    content = body if isinstance(body, bytes) else b""
    document.body_kind = "data" if isinstance(body, bytes) else "none"
    document.body_base64 = b64encode(content).decode()
    try:
        document.body_text = content.decode()
    except UnicodeDecodeError:
        document.body_text = None


def _annotations(payload: bytes, offset: int, length: int) -> dict[str, Value]:
    if not length:
        return {}
    value = ValueReader(payload, offset, offset + length).value()
    inside = value.value if isinstance(value, Described) else value
    if not isinstance(inside, dict):
        return {}
    return {
        str(key.value if isinstance(key, Symbol) else key): each for key, each in inside.items()
    }


def _typed(name: str, value: Value) -> TypedValue:
    said = exact(property_document(value))
    while isinstance(said, dict) and "value" in said:
        said = said["value"]
    return TypedValue(name=name, type=type_name(value), value=said)


_TYPES: Final = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "binary"}


def type_name(value: Value) -> str:
    """The AMQP type of a decoded value."""
    if value is None:
        return "null"
    if isinstance(value, Float):
        return "float"
    known = _TYPES.get(type(value))
    return known or {"list": "list", "dict": "map"}.get(
        type(value).__name__, type(value).__name__.lower()
    )


def _add(groups: dict[str, LetterGroup], group: Group, entry: Entry) -> None:
    at = format_moment(entry.enqueued_at_ms)
    known = groups.get(group.key)
    if known is None:
        known = groups[group.key] = LetterGroup(
            key=group.key,
            reason=group.reason,
            description=group.description,
            source=group.source,
            count=0,
            first_at=at,
            last_at=at,
            samples=[],
        )
    known.count += 1
    known.first_at, known.last_at = min(known.first_at, at), max(known.last_at, at)
    if len(known.samples) < SAMPLES_MAX:
        known.samples.append(str(entry.sequence_number))
