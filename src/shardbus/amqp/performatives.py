"""The performatives that frames carry."""

from shardbus.amqp.outcomes import (
    ACCEPTED,
    RELEASED,
    Accepted,
    AmqpError,
    Declared,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from shardbus.amqp.termini import Coordinator, Source, Target

__all__ = [
    "ACCEPTED",
    "RELEASED",
    "Accepted",
    "AmqpError",
    "Coordinator",
    "Declared",
    "DeliveryState",
    "Modified",
    "Received",
    "Rejected",
    "Released",
    "Source",
    "Target",
    "TransactionalState",
]
