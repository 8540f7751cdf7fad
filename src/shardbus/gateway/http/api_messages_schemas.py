"""What the message part of the JSON API takes and answers, and its bounds."""

from __future__ import annotations

from typing import Final

from shardbus.core.limits import DELAY_MS_MAX, KEY_CHARACTERS_MAX, REASON_CHARACTERS_MAX
from shardbus.gateway.http.documents_schema import (
    COUNT,
    FLAG,
    MOMENT,
    TEXT,
    TEXT_OR_NONE,
    Schema,
    body_of,
    described,
    list_of,
    object_of,
    one_of,
    reference,
)
from shardbus.gateway.http.message_document import MESSAGE, SENT_MEMBERS, STAMPED_MEMBERS
from shardbus.gateway.http.messaging import WAIT_MS_MAX
from shardbus.gateway.http.property_document import PROPERTIES_SCHEMA
from shardbus.gateway.http.resubmission import COUNT_MAX as RESUBMIT_COUNT_MAX

SEND_COUNT_MAX: Final = 1_000
RECEIVE_COUNT_MAX: Final = 250
SETTLE_COUNT_MAX: Final = 1_000
PURGE_COUNT_MAX: Final = 10_000
PEEK_COUNT_DEFAULT: Final = 20
SESSION_PAGE_DEFAULT: Final = 100

PEEK_LOCK: Final = "peek_lock"
RECEIVE_AND_DELETE: Final = "receive_and_delete"
MODES: Final = (PEEK_LOCK, RECEIVE_AND_DELETE)
ACTIONS: Final = ("complete", "abandon", "release", "defer", "dead_letter")

_SESSION_ID: Final[Schema] = {"type": "string", "maxLength": KEY_CHARACTERS_MAX}
_TOKEN: Final[Schema] = {"type": "string", "format": "uuid"}
_PASSED_OVER: Final[Schema] = {"description": "Passed over, whatever it is."}
_SESSION_TOKEN: Final = described(_TOKEN, "The `lock_token` of a session that is held.")
_TOKENS: Final[Schema] = {
    "type": "array",
    "items": _TOKEN,
    "minItems": 1,
    "maxItems": SETTLE_COUNT_MAX,
    "description": "The `lock_token` of each message.",
}


def _number(most: int, *, least: int = 1) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _text(most: int) -> Schema:
    return {"type": "string", "maxLength": most}


SCHEMAS: Final[dict[str, Schema]] = {
    "Message": MESSAGE,
    "Messages": object_of(
        {
            "messages": list_of(reference("Message")),
            "next": described(
                TEXT_OR_NONE, "The `cursor` of the next page; null when there is none."
            ),
        }
    ),
    "NewMessage": {
        **body_of({**SENT_MEMBERS, **dict.fromkeys(STAMPED_MEMBERS, _PASSED_OVER)}),
        "description": "A message, perhaps as it was shown: what the bus stamped on it then is "
        "passed over.",
    },
    "NewMessages": body_of(
        {
            "messages": {
                "type": "array",
                "items": reference("NewMessage"),
                "minItems": 1,
                "maxItems": SEND_COUNT_MAX,
            },
            "all_or_none": described(
                FLAG,
                "Whether they are a batch: stored together or not at all, whatever their keys. "
                "Unless that is said each stands for itself.",
            ),
        },
        ("messages",),
    ),
    "SentMessages": object_of(
        {
            "sent": described(COUNT, "How many are stored."),
            "duplicates": described(COUNT, "How many the entity had before, and dropped."),
            "sequence_numbers": described(
                list_of({"type": ["integer", "null"]}),
                "One for each message, in order; null for a duplicate, or one that failed.",
            ),
            "failures": list_of(
                object_of(
                    {
                        "position": described(COUNT, "Which of the messages, from 0."),
                        "code": TEXT,
                        "message": TEXT,
                        "is_unknown": described(FLAG, "Whether it may be stored nevertheless."),
                    }
                )
            ),
        }
    ),
    "Receive": body_of(
        {
            "count": described(_number(RECEIVE_COUNT_MAX), "At most so many; 1 unless said."),
            "wait_ms": described(
                _number(WAIT_MS_MAX, least=0), "How long to wait for the first; 0 unless said."
            ),
            "mode": described(
                one_of(*MODES), f"`{PEEK_LOCK}`, to be settled, unless the other is said."
            ),
            "session_id": described(
                _SESSION_ID,
                "Of an entity with sessions: which one. Otherwise the next that is free.",
            ),
            "session_lock_token": described(
                _TOKEN, "Go on with a session that is held, and hold it longer."
            ),
        }
    ),
    "ReceivedMessages": object_of(
        {
            "messages": list_of(reference("Message")),
            "session": described(
                {
                    "type": ["object", "null"],
                    "required": ["lock_token", "locked_until"],
                    "properties": {
                        "session_id": TEXT,
                        "lock_token": TEXT,
                        "locked_until": MOMENT,
                    },
                },
                "The session that is held now, until then or until it is released.",
            ),
        }
    ),
    "Settlement": body_of(
        {
            "action": described(
                one_of(*ACTIONS), "`release` is to abandon without counting it as a delivery."
            ),
            "lock_tokens": _TOKENS,
            "reason": described(_text(REASON_CHARACTERS_MAX), "Why it is dead-lettered."),
            "description": described(_text(REASON_CHARACTERS_MAX), "The same at length."),
            "properties": described(PROPERTIES_SCHEMA, "Custom properties to change or add."),
            "delay_ms": described(
                _number(DELAY_MS_MAX, least=0),
                "How long an abandoned message is not delivered again.",
            ),
        },
        ("action", "lock_tokens"),
    ),
    "Settled": object_of(
        {
            "settled": COUNT,
            "lost": described(list_of(TEXT), "The tokens of locks that were not held any more."),
        }
    ),
    "Renewal": body_of({"lock_tokens": _TOKENS}, ("lock_tokens",)),
    "Renewed": object_of({"locked_until": MOMENT}),
    "HeldSession": body_of({"session_lock_token": _SESSION_TOKEN}, ("session_lock_token",)),
    "SessionReleased": object_of({"released": FLAG}),
    "Purge": body_of(
        {
            "count": described(
                _number(PURGE_COUNT_MAX), f"At most so many; {PURGE_COUNT_MAX} unless said."
            ),
            "enqueued_before": described(MOMENT, "Only what was enqueued before this moment."),
            "session_id": described(_SESSION_ID, "Only what is of this session."),
        }
    ),
    "Purged": object_of(
        {
            "purged": COUNT,
            "has_more": described(FLAG, "Whether asking again may remove more."),
        }
    ),
    "Resubmit": body_of(
        {
            "count": described(
                _number(RESUBMIT_COUNT_MAX), f"At most so many; {RESUBMIT_COUNT_MAX} unless said."
            ),
            "sequence_numbers": {
                "type": "array",
                "items": COUNT,
                "minItems": 1,
                "maxItems": RESUBMIT_COUNT_MAX,
                "description": "Only these.",
            },
        }
    ),
    "Resubmitted": object_of(
        {
            "resubmitted": COUNT,
            "sequence_numbers": described(
                list_of(COUNT), "The numbers that they had as dead letters."
            ),
            "missing": described(
                list_of(COUNT), "Numbers that were asked for and not found, or locked."
            ),
            "has_more": described(FLAG, "Whether asking again may resubmit more."),
        }
    ),
    "Sessions": object_of(
        {
            "sessions": list_of(
                object_of(
                    {
                        "session_id": TEXT,
                        "locked_until": described(
                            MOMENT, "Only of a session that somebody holds: until then."
                        ),
                        "locked_messages": described(
                            COUNT,
                            "Only of a session that somebody holds: how many of its messages.",
                        ),
                    },
                    ("locked_until", "locked_messages"),
                )
            ),
            "skip": COUNT,
        }
    ),
}
