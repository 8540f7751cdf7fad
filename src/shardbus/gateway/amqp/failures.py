"""Turns what went wrong into AMQP errors, in the words the SDKs recognise."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from shardbus.amqp.outcomes import AmqpError
from shardbus.core.errors import NOT_FOUND, Refused, Unavailable, kind_of, text_of


def amqp_error(failure: Refused | Unavailable) -> AmqpError:
    """The error a client is told, with a tracking id to find it by."""
    return AmqpError(kind_of(failure).condition, with_tracking(text_of(failure)))


def with_tracking(text: str) -> str:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text} TrackingId:{uuid.uuid4()}_G0, SystemTracker:shardbus, Timestamp:{moment}"


def entity_not_found(name: str) -> Refused:
    # The JavaScript and Java SDKs recognise a missing entity by this very phrase.
    return Refused(NOT_FOUND, f"The messaging entity 'sb://shardbus/{name}' could not be found.")
