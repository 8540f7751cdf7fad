"""What the message part of the JSON API takes and answers, and its bounds."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct

from shardbus.core.limits import DELAY_MS_MAX, KEY_CHARACTERS_MAX, REASON_CHARACTERS_MAX
from shardbus.gateway.http.api.message_document import Message, SaidMessage
from shardbus.gateway.http.api.property_document import Properties
from shardbus.gateway.http.api.resubmission import COUNT_MAX as RESUBMIT_COUNT_MAX
from shardbus.gateway.http.document import Body, Count, Json, Maybe, Moment, Text, told
from shardbus.gateway.http.messaging.requests import WAIT_MS_MAX

SEND_COUNT_MAX: Final = 1_000
RECEIVE_COUNT_MAX: Final = 250
SETTLE_COUNT_MAX: Final = 1_000
PURGE_COUNT_MAX: Final = 10_000
PEEK_COUNT_DEFAULT: Final = 20
SESSION_PAGE_DEFAULT: Final = 100
BODY_CHARACTERS_MAX: Final = 1024 * 1024

_SessionId = Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]
_Reason = Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)]
_PassedOver = Annotated[Json, told("Passed over, whatever it is.")]
_Token = Annotated[
    Text,
    Meta(extra_json_schema={"format": "uuid"}, examples=["3f2504e0-4f89-11d3-9a0c-0305e82c3301"]),
]
_Tokens = Annotated[
    list[_Token],
    Meta(
        min_length=1, max_length=SETTLE_COUNT_MAX, description="The `lock_token` of each message."
    ),
]


class Messages(Struct, kw_only=True):
    messages: list[Message]
    next: Annotated[str | None, told("The `cursor` of the next page; null when there is none.")]


class NewMessage(SaidMessage, kw_only=True, forbid_unknown_fields=True):
    """A message, perhaps as it was shown: what the bus stamped on it then is passed over."""

    body_base64: Annotated[
        Maybe[Annotated[str, Meta(max_length=BODY_CHARACTERS_MAX)]],
        told("The bytes of a body that is no text."),
    ] = UNSET
    sequence_number: _PassedOver = UNSET
    state: _PassedOver = UNSET
    enqueued_at: _PassedOver = UNSET
    expires_at: _PassedOver = UNSET
    delivery_count: _PassedOver = UNSET
    size_bytes: _PassedOver = UNSET
    dead_letter_reason: _PassedOver = UNSET
    dead_letter_description: _PassedOver = UNSET
    dead_letter_source: _PassedOver = UNSET
    lock_token: _PassedOver = UNSET
    locked_until: _PassedOver = UNSET


class NewMessages(Body, kw_only=True, frozen=True):
    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=SEND_COUNT_MAX)]
    all_or_none: Annotated[
        bool,
        told(
            "Whether they are a batch: stored together or not at all, whatever their keys. Unless "
            "that is said each stands for itself."
        ),
    ] = False


class FailedMessage(Struct, kw_only=True):
    position: Annotated[Count, told("Which of the messages, from 0.")]
    code: str
    message: str
    is_unknown: Annotated[bool, told("Whether it may be stored nevertheless.")]


class SentMessages(Struct, kw_only=True):
    sent: Annotated[Count, told("How many are stored.")]
    duplicates: Annotated[Count, told("How many the entity had before, and dropped.")]
    sequence_numbers: Annotated[
        list[int | None],
        told("One for each message, in order; null for a duplicate, or one that failed."),
    ]
    failures: list[FailedMessage]


class Receive(Body, kw_only=True, frozen=True):
    count: Annotated[
        int, Meta(ge=1, le=RECEIVE_COUNT_MAX, description="At most so many.", examples=[10])
    ] = 1
    wait_ms: Annotated[
        int,
        Meta(ge=0, le=WAIT_MS_MAX, description="How long to wait for the first.", examples=[5_000]),
    ] = 0
    mode: Annotated[
        Literal["peek_lock", "receive_and_delete"],
        Meta(
            description="`peek_lock`, to be settled, unless the other is said.",
            examples=["peek_lock"],
        ),
    ] = "peek_lock"
    session_id: Annotated[
        Maybe[_SessionId],
        told("Of an entity with sessions: which one. Otherwise the next that is free."),
    ] = UNSET
    session_lock_token: Maybe[
        Annotated[
            Text,
            Meta(
                description="Go on with a session that is held, and hold it longer.",
                extra_json_schema={"format": "uuid"},
            ),
        ]
    ] = UNSET


class ReceivedSession(Struct, kw_only=True):
    lock_token: str
    locked_until: Moment
    session_id: Maybe[str] = UNSET


class ReceivedMessages(Struct, kw_only=True):
    messages: list[Message]
    session: Annotated[
        ReceivedSession | None,
        told("The session that is held now, until then or until it is released."),
    ]


class Settlement(Body, kw_only=True, frozen=True):
    action: Annotated[
        Literal["complete", "abandon", "release", "defer", "dead_letter"],
        Meta(
            description="`release` is to abandon without counting it as a delivery.",
            examples=["dead_letter"],
        ),
    ]
    lock_tokens: _Tokens
    reason: Annotated[
        Maybe[_Reason], Meta(description="Why it is dead-lettered.", examples=["unreadable"])
    ] = UNSET
    description: Annotated[
        Maybe[_Reason],
        Meta(description="The same at length.", examples=["The body is no JSON."]),
    ] = UNSET
    properties: Annotated[Maybe[Properties | None], told("Custom properties to change or add.")] = (
        UNSET
    )
    delay_ms: Annotated[
        Maybe[Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)]],
        told("How long an abandoned message is not delivered again."),
    ] = UNSET


class Settled(Struct, kw_only=True):
    settled: Count
    lost: Annotated[list[str], told("The tokens of locks that were not held any more.")]


class Renewal(Body, kw_only=True, frozen=True):
    lock_tokens: _Tokens


class Renewed(Struct, kw_only=True):
    locked_until: Moment


class HeldSession(Body, kw_only=True, frozen=True):
    session_lock_token: Annotated[_Token, told("The `lock_token` of a session that is held.")]


class SessionReleased(Struct, kw_only=True):
    released: bool


class Purge(Body, kw_only=True, frozen=True):
    count: Annotated[
        int, Meta(ge=1, le=PURGE_COUNT_MAX, description="At most so many.", examples=[1_000])
    ] = PURGE_COUNT_MAX
    enqueued_before: Maybe[
        Annotated[
            Text,
            Meta(
                description="Only what was enqueued before this moment.",
                extra_json_schema={"format": "date-time"},
                examples=["2026-01-31T00:00:00Z"],
            ),
        ]
    ] = UNSET
    session_id: Annotated[Maybe[_SessionId], told("Only what is of this session.")] = UNSET


class Purged(Struct, kw_only=True):
    purged: Count
    has_more: Annotated[bool, told("Whether asking again may remove more.")]


class Resubmit(Body, kw_only=True, frozen=True):
    count: Annotated[
        int, Meta(ge=1, le=RESUBMIT_COUNT_MAX, description="At most so many.", examples=[100])
    ] = RESUBMIT_COUNT_MAX
    sequence_numbers: Annotated[
        Maybe[Annotated[list[Count], Meta(min_length=1, max_length=RESUBMIT_COUNT_MAX)]],
        told("Only these."),
    ] = UNSET


class Resubmitted(Struct, kw_only=True):
    resubmitted: Count
    sequence_numbers: Annotated[list[Count], told("The numbers that they had as dead letters.")]
    missing: Annotated[list[Count], told("Numbers that were asked for and not found, or locked.")]
    has_more: Annotated[bool, told("Whether asking again may resubmit more.")]


class ListedSession(Struct, kw_only=True):
    session_id: str
    locked_until: Annotated[
        Maybe[Moment], told("Only of a session that somebody holds: until then.")
    ] = UNSET
    locked_messages: Annotated[
        Maybe[Count], told("Only of a session that somebody holds: how many of its messages.")
    ] = UNSET


class Sessions(Struct, kw_only=True):
    sessions: list[ListedSession]
    skip: Count
