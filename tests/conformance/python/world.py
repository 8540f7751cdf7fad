"""What the scenarios of the Python SDK share: entities made for one feature, and few words."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Final, TypedDict, Unpack

from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.management import ServiceBusAdministrationClient

CONNECTION_STRING: Final = os.environ["SHARDBUS_CONNECTION_STRING"]
TLS_STRING: Final = os.environ.get("SHARDBUS_TLS_CONNECTION_STRING", "")
PREMIUM_STRING: Final = os.environ.get("SHARDBUS_PREMIUM_CONNECTION_STRING", "")
WAIT_S: Final = 20.0
NOTHING_S: Final = 0.5

_telling = threading.Lock()


class QueueOptions(TypedDict, total=False):
    """What a scenario may ask of a queue, in the SDK's words."""

    lock_duration: str
    max_delivery_count: int
    requires_session: bool
    requires_duplicate_detection: bool


class World:
    """Makes entities with names that no other feature uses."""

    def __init__(self, feature: str) -> None:
        self._feature = feature
        self._count = 0

    def new_name(self) -> str:
        self._count += 1
        return f"{os.environ['SHARDBUS_PREFIX']}-{self._feature}-{self._count}"

    def queue(self, is_partitioned: bool, **options: Unpack[QueueOptions]) -> str:
        """Create a queue with locks of ten seconds and three deliveries, unless told otherwise."""
        asked = QueueOptions(lock_duration="PT10S", max_delivery_count=3)
        asked.update(options)
        name = self.new_name()
        with administration() as manager:
            manager.create_queue(name, enable_partitioning=is_partitioned, **asked)
        return name


def administration(connection_string: str = CONNECTION_STRING) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string, connection_verify=os.environ["SHARDBUS_CA_FILE"]
    )


def send_all(sender: ServiceBusSender, *contents: str, are_sessions: bool = False) -> None:
    for content in contents:
        sender.send_messages(
            ServiceBusMessage(content, session_id=content if are_sessions else None)
        )


def receive(receiver: ServiceBusReceiver, wanted: int) -> list[ServiceBusReceivedMessage]:
    """Wait until so many messages have come."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < wanted:
        more = receiver.receive_messages(wanted - len(found), max_wait_time=WAIT_S)
        assert more, f"{wanted - len(found)} messages did not come"
        found += more
    return found


def receive_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    return receive(receiver, 1)[0]


def bodies(messages: list[ServiceBusReceivedMessage]) -> str:
    return " ".join(sorted(str(message) for message in messages))


def same(what: str, found: object, wanted: object) -> None:
    assert found == wanted, f"{what}: {found!r} instead of {wanted!r}"


def tell(feature: str, outcome: str, detail: str) -> None:
    with _telling:
        line = json.dumps({"feature": feature, "outcome": outcome, "detail": detail})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
