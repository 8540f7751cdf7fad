"""The JSON of readers and claims."""

from __future__ import annotations

from typing import Final

from shardbus.core.limits import (
    CLAIM_COUNT_MAX,
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    READER_NAME_CHARACTERS_MAX,
)
from shardbus.gateway.http.documents_schema import (
    COUNT,
    FLAG,
    MOMENT,
    TEXT,
    Schema,
    body_of,
    described,
    list_of,
    object_of,
    reference,
)

CLAIMS_AT_ONCE_MAX: Final = 4_096

_NAME: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": READER_NAME_CHARACTERS_MAX,
}
_OWNER: Final[Schema] = {
    "type": "string",
    "maxLength": 128,
    "description": "What whoever drives the reader calls itself; another is kept out.",
}
_NUMBER: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 0xFFFF}
_ORDINAL: Final[Schema] = {"type": "integer", "minimum": 1}
_WHO: Final[dict[str, Schema]] = {"reader": _NAME, "owner": _OWNER}
_CLAIM: Final[dict[str, Schema]] = {
    "ordinal": COUNT,
    "count": COUNT,
    "size_bytes": COUNT,
    "first": described(COUNT, "The lowest sequence number."),
    "last": described(COUNT, "The highest sequence number."),
}
_IDENTITY: Final[dict[str, Schema]] = {
    "entity_id": COUNT,
    "incarnation": described(TEXT, "Another one when the entity was made anew."),
}
_READER_ID: Final[Schema] = described(
    TEXT, "Another one when the reader was dropped and made anew; empty for one without."
)
_MISSING: Final[Schema] = list_of(reference("MissingFragment"))

SCHEMAS: Final[dict[str, Schema]] = {
    "MissingFragment": object_of({"number": COUNT, "message": TEXT}),
    "Bulk": object_of(
        {
            "entity": TEXT,
            **_IDENTITY,
            "stamp": described(TEXT, "Another one when something came or went."),
            "requires_session": FLAG,
            "fragments": list_of(reference("BulkFragment")),
        }
    ),
    "BulkFragment": object_of(
        {
            "number": COUNT,
            "broker": TEXT,
            "state": TEXT,
            "is_counted": described(FLAG, "False: the numbers behind this are not known."),
            "first": described(COUNT, "No sequence number is lower."),
            "next": described(COUNT, "All sequence numbers so far are lower."),
            "waiting": described(COUNT, "Active messages, locked and claimed ones among them."),
            "size_bytes": COUNT,
        }
    ),
    "Reader": body_of(_WHO, ("reader", "owner")),
    "DroppedReader": body_of({"reader": _NAME}, ("reader",)),
    "OpenReader": body_of(
        {
            **_WHO,
            "lease_ms": {
                "type": "integer",
                "minimum": LEASE_MS_MIN,
                "maximum": LEASE_MS_MAX,
                "description": f"Claims are lost after so long unheard; {LEASE_MS_DEFAULT}.",
            },
        },
        ("reader", "owner"),
    ),
    "OpenClaim": object_of(_CLAIM),
    "OpenedFragment": object_of(
        {
            "number": COUNT,
            "reader_id": _READER_ID,
            "completed": described(COUNT, "Claims up to this ordinal are done."),
            "last": described(COUNT, "The ordinal of the last claim."),
            "lost": described(COUNT, "Claims up to this ordinal that are not done were lost."),
            "claims": list_of(reference("OpenClaim")),
        }
    ),
    "ReaderOpened": object_of(
        {**_IDENTITY, "fragments": list_of(reference("OpenedFragment")), "missing": _MISSING}
    ),
    "ReaderReached": object_of({"reader": TEXT, "missing": _MISSING}),
    "NewClaim": body_of(
        {
            "fragment": _NUMBER,
            "ordinal": described(_ORDINAL, "One more than the last, or one that is open."),
            "count_max": {"type": "integer", "minimum": 1, "maximum": CLAIM_COUNT_MAX},
            "bytes_max": _ORDINAL,
        },
        ("fragment", "ordinal"),
    ),
    "NewClaims": body_of(
        {
            **_WHO,
            "claims": list_of(reference("NewClaim")),
            "done": described(
                list_of(reference("DoneClaim")),
                "What to complete on the way: a claim that is made completes one by its commit.",
            ),
        },
        ("reader", "owner", "claims"),
    ),
    "MadeClaim": object_of(
        {
            "fragment": COUNT,
            **_CLAIM,
            "is_made": described(FLAG, "False: nothing waited, and the ordinal is still free."),
            "is_more": described(FLAG, "Whether the next claim may find something."),
        }
    ),
    "Claims": object_of(
        {
            "claims": list_of(reference("MadeClaim")),
            "completed": list_of(reference("CompletedFragment")),
            "missing": _MISSING,
        }
    ),
    "DoneClaim": body_of({"fragment": _NUMBER, "ordinal": COUNT}, ("fragment", "ordinal")),
    "DoneClaims": body_of(
        {**_WHO, "claims": list_of(reference("DoneClaim"))}, ("reader", "owner", "claims")
    ),
    "CompletedFragment": object_of({"fragment": COUNT, "ordinal": COUNT}),
    "Completed": object_of(
        {"completed": list_of(reference("CompletedFragment")), "missing": _MISSING}
    ),
    "AskedClaims": body_of(
        {
            "reader": _NAME,
            "fragment": _NUMBER,
            "first_ordinal": _ORDINAL,
            "last_ordinal": _ORDINAL,
            "reader_id": described(TEXT, "Refused when the reader is another one by now."),
        },
        ("reader", "fragment", "first_ordinal"),
    ),
    "RunsOfClaim": object_of(
        {
            "ordinal": COUNT,
            "runs": described(
                list_of(list_of(COUNT)), "The first and the last of successive sequence numbers."
            ),
            "size_bytes": COUNT,
        }
    ),
    "ClaimRuns": object_of(
        {**_IDENTITY, "broker": TEXT, "claims": list_of(reference("RunsOfClaim"))}
    ),
    "CheckedClaims": object_of({"count": described(COUNT, "How many messages are whole.")}),
    "ReaderFragment": object_of(
        {
            "number": COUNT,
            "reader_id": _READER_ID,
            "lease_ms": COUNT,
            "heard_at": MOMENT,
            "completed": COUNT,
            "last": COUNT,
            "lost": COUNT,
            "open_claims": COUNT,
            "claimed": COUNT,
            "claimed_bytes": COUNT,
            "waiting": COUNT,
            "waiting_bytes": COUNT,
        }
    ),
    "NamedReader": object_of({"reader": TEXT, "fragments": list_of(reference("ReaderFragment"))}),
    "Readers": object_of({"readers": list_of(reference("NamedReader")), "missing": _MISSING}),
}
