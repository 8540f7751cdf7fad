"""What is sent to the JSON API, by example: one for each schema of a request's body."""

from __future__ import annotations

from typing import Final

from shardbus.gateway.http.documents_schema import Document

_LOCK_TOKEN: Final = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
_READER: Final[Document] = {"reader": "nightly-report", "owner": "driver-1"}

BODIES: Final[dict[str, Document]] = {
    "NewMessages": {
        "messages": [
            {"body": "hello", "message_id": "1", "session_id": "customer-7"},
            {"body_base64": "AAEC", "content_type": "application/octet-stream"},
        ]
    },
    "Receive": {"count": 10, "wait_ms": 5000, "mode": "peek_lock"},
    "Settlement": {
        "action": "dead_letter",
        "lock_tokens": [_LOCK_TOKEN],
        "reason": "unreadable",
        "description": "The body is no JSON.",
    },
    "Renewal": {"lock_tokens": [_LOCK_TOKEN]},
    "HeldSession": {"session_lock_token": _LOCK_TOKEN},
    "Purge": {"count": 1000, "enqueued_before": "2026-01-31T00:00:00Z"},
    "Resubmit": {"count": 100},
    "AccessRuleChange": {"rights": ["Send", "Listen"]},
    "KeyRotation": {"key": "primary"},
    "OrphanRemoval": {"entity_id": 41},
    "OrphanRecovery": {"entity_id": 41, "name": "rescued"},
    "OpenReader": {**_READER, "lease_ms": 600_000},
    "Reader": _READER,
    "NewClaims": {
        **_READER,
        "claims": [{"fragment": 0, "ordinal": 1, "count_max": 1000, "bytes_max": 8_000_000}],
    },
    "AskedClaims": {
        "reader": "nightly-report",
        "fragment": 0,
        "first_ordinal": 1,
        "last_ordinal": 1,
    },
    "DoneClaims": {**_READER, "claims": [{"fragment": 0, "ordinal": 1}]},
    "DroppedReader": {"reader": "nightly-report"},
    "Publication": {
        "producer": "nightly-import",
        "batch": 1,
        "stages": [{"stage": "reader", "count": 1}],
        "fingerprint": "1:8f14e45fceea167a5a36dedd4bea2543",
    },
    "NamedStages": {"stages": ["reader"]},
    "DoneProducer": {"producer": "nightly-import"},
    "NewBackup": {"name": "nightly"},
    "NewPipeline": {"entity": "orders", "path": "archive/orders", "interval_ms": 10_000},
}
