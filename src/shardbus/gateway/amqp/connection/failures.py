"""Turns failures into AMQP errors, in the words that SDKs recognise."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from shardbus.amqp.outcomes import AmqpError
from shardbus.codec.errors import CONNECTION_FORCED
from shardbus.core.errors import Refused, Unavailable, kind_of, text_of


def amqp_error(failure: Refused | Unavailable, host: str = "") -> AmqpError:
    """The error for a client, with a tracking id; `host` is the name by which the client addresses
    the server.
    """
    return AmqpError(kind_of(failure).condition, with_tracking(text_of(failure, host)))


def with_tracking(text: str) -> str:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text} TrackingId:{uuid.uuid4()}_G0, SystemTracker:shardbus, Timestamp:{moment}"


def inactive(limit_ms: int) -> str:
    return (
        f"The connection was inactive for more than the allowed {limit_ms} milliseconds and is "
        "closed by container 'LinkTracker'."
    )


def forced(text: str) -> AmqpError:
    return AmqpError(CONNECTION_FORCED, with_tracking(text))
