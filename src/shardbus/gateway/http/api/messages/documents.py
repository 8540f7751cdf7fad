"""The documents of messages in the JSON API, and their bounds."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct

from shardbus.core.limits import DELAY_MS_MAX, KEY_CHARACTERS_MAX, REASON_CHARACTERS_MAX
from shardbus.gateway.http.api.messages.message import Message, SaidMessage
from shardbus.gateway.http.api.messages.resubmission import COUNT_MAX as RESUBMIT_COUNT_MAX
from shardbus.gateway.http.api.messages.values import Properties
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
Reason = Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)]
_PassedOver = Annotated[Json, told("Ignored.")]
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
    """A message to send, perhaps as it was shown: members that only the bus sets are ignored."""

    body_base64: Annotated[
        Maybe[Annotated[str, Meta(max_length=BODY_CHARACTERS_MAX)]],
        told("The bytes of a body that is not text."),
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
            "Whether the messages are a batch: stored together or not at all, even with different "
            "keys. By default each is stored independently."
        ),
    ] = False


class FailedMessage(Struct, kw_only=True):
    position: Annotated[Count, told("The index of the message, from 0.")]
    code: str
    message: str
    is_unknown: Annotated[bool, told("Whether the message may be stored nevertheless.")]


class SentMessages(Struct, kw_only=True):
    sent: Annotated[Count, told("How many messages are stored.")]
    duplicates: Annotated[Count, told("How many were dropped as duplicates.")]
    sequence_numbers: Annotated[
        list[int | None],
        told("One for each message, in order; null for a duplicate, or for one that failed."),
    ]
    failures: list[FailedMessage]


class Receive(Body, kw_only=True, frozen=True):
    count: Annotated[
        int,
        Meta(
            ge=1, le=RECEIVE_COUNT_MAX, description="The maximum number of messages.", examples=[10]
        ),
    ] = 1
    wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=WAIT_MS_MAX,
            description="How long to wait for the first message.",
            examples=[5_000],
        ),
    ] = 0
    mode: Annotated[
        Literal["peek_lock", "receive_and_delete"],
        Meta(
            description="`peek_lock` (the default) locks messages, to be settled later.",
            examples=["peek_lock"],
        ),
    ] = "peek_lock"
    session_id: Annotated[
        Maybe[_SessionId],
        told("For an entity with sessions: the session to hold. By default the next free one."),
    ] = UNSET
    session_lock_token: Maybe[
        Annotated[
            Text,
            Meta(description="Continue with a session that is held, and renew its lock."),
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
        told("The session, which is held until the given moment or until it is released."),
    ]


class Settlement(Body, kw_only=True, frozen=True):
    action: Annotated[
        Literal["complete", "abandon", "release", "defer", "dead_letter"],
        Meta(
            description="`release` abandons without counting a delivery.",
            examples=["dead_letter"],
        ),
    ]
    lock_tokens: _Tokens
    reason: Annotated[
        Maybe[Reason], Meta(description="The reason of a dead letter.", examples=["unreadable"])
    ] = UNSET
    description: Annotated[
        Maybe[Reason],
        Meta(description="The description of the reason.", examples=["The body is not JSON."]),
    ] = UNSET
    properties: Annotated[
        Maybe[Properties | None], told("Application properties to change or add.")
    ] = UNSET
    delay_ms: Annotated[
        Maybe[Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)]],
        told("How long an abandoned message is not delivered again."),
    ] = UNSET


class Settled(Struct, kw_only=True):
    settled: Count
    lost: Annotated[list[str], told("The tokens of locks that were no longer held.")]


class Renewal(Body, kw_only=True, frozen=True):
    lock_tokens: _Tokens


class Renewed(Struct, kw_only=True):
    locked_until: Moment


class HeldSession(Body, kw_only=True, frozen=True):
    session_lock_token: Annotated[
        Text,
        Meta(
            description="The `lock_token` of a held session.",
            examples=["3f2504e0-4f89-11d3-9a0c-0305e82c3301"],
        ),
    ]


class SessionReleased(Struct, kw_only=True):
    released: bool


class Purge(Body, kw_only=True, frozen=True):
    count: Annotated[
        int,
        Meta(
            ge=1,
            le=PURGE_COUNT_MAX,
            description="The maximum number of messages.",
            examples=[1_000],
        ),
    ] = PURGE_COUNT_MAX
    enqueued_before: Maybe[
        Annotated[
            Text,
            Meta(
                description="Only messages enqueued before this moment.",
                extra_json_schema={"format": "date-time"},
                examples=["2026-01-31T00:00:00Z"],
            ),
        ]
    ] = UNSET
    session_id: Annotated[Maybe[_SessionId], told("Only messages of this session.")] = UNSET


class Purged(Struct, kw_only=True):
    purged: Count
    has_more: Annotated[bool, told("Whether another request may remove more.")]


class Resubmit(Body, kw_only=True, frozen=True):
    count: Annotated[
        int,
        Meta(
            ge=1,
            le=RESUBMIT_COUNT_MAX,
            description="The maximum number of messages.",
            examples=[100],
        ),
    ] = RESUBMIT_COUNT_MAX
    sequence_numbers: Annotated[
        Maybe[Annotated[list[Count], Meta(min_length=1, max_length=RESUBMIT_COUNT_MAX)]],
        told("Only these."),
    ] = UNSET


class Resubmitted(Struct, kw_only=True):
    resubmitted: Count
    sequence_numbers: Annotated[list[Count], told("Their sequence numbers as dead letters.")]
    missing: Annotated[list[Count], told("Requested numbers that were not found, or were locked.")]
    has_more: Annotated[bool, told("Whether another request may resubmit more.")]


HOLDER: Final = (
    "the names that the receiver gave its connection and its link; empty where it is not connected "
    "to this gateway over AMQP."
)


class ListedSession(Struct, kw_only=True):
    session_id: str
    locked_until: Annotated[
        Maybe[Moment], told("For a held session: the moment until which it is held.")
    ] = UNSET
    locked_messages: Annotated[
        Maybe[Count], told("For a held session: how many of its messages are locked.")
    ] = UNSET
    holder: Annotated[Maybe[str], told(f"For a held session: {HOLDER}")] = UNSET
    messages: Annotated[Maybe[Count], told("With `counts`: the messages that were seen.")] = UNSET
    size_bytes: Annotated[Maybe[Count], told("With `counts`: their size.")] = UNSET
    oldest_at: Annotated[
        Maybe[Moment | None], told("With `counts`: when the oldest of them was enqueued.")
    ] = UNSET


class Sessions(Struct, kw_only=True):
    sessions: list[ListedSession]
    skip: Count
    is_counted: Annotated[
        Maybe[bool],
        told(
            "With `counts`: whether all messages of the entity were seen. Otherwise each session "
            "has at least as many as its `messages` says."
        ),
    ] = UNSET
