"""Sample orders: their contents, which of them fail, and the event for a handled one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final, final

from shardbus.app.cli.api_client import Document

CUSTOMERS: Final = 200
REGIONS: Final = ("europe", "america", "asia")
KINDS: Final = ("web", "web", "web", "shop", "phone", "test")
ITEMS_MAX: Final = 6
FAULT_SHARE: Final = 0.02
SCHEDULED_SHARE: Final = 0.04
SCHEDULED_S: Final = (5, 30)

_GOODS: Final = (
    ("teapot", 24.5),
    ("cup and saucer", 9.9),
    ("tin of green tea, 250 g", 14.0),
    ("honey from the heath", 7.8),
    ("strainer, stainless steel", 6.2),
    ("wooden tray, oak", 39.0),
    ("kettle with thermometer", 89.0),
    ("tablecloth, linen, 140 by 220", 64.0),
)
_STREETS: Final = ("Mill Lane", "Station Road", "Harbour Street", "Church Walk", "Long Acre")
_NOTES: Final = (
    "Please leave it with the neighbours when nobody is at home.",
    "A gift: no prices on the slip, and a card with our best wishes.",
    "Ring twice, the bell of the house is hard to hear in the garden.",
    "",
)


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """Why an order cannot be handled: the reason of its dead letter."""

    reason: str
    description: str


FAULTS: Final = {
    "payment": Fault("PaymentDeclined", "The bank declined the payment."),
    "address": Fault("AddressUnknown", "The address has no street."),
}
UNREADABLE: Final = Fault("Unreadable", "The body is not an order.")


@final
class OrderBook:
    """Orders, one after the other; the same dice give the same orders."""

    def __init__(self, dice: Random, run: str) -> None:
        """`run` makes the order numbers of this run unique."""
        self._dice = dice
        self._run = run
        self._count = 0

    def next(self, now: datetime) -> Document:
        """An order as a message of the JSON API."""
        dice = self._dice
        self._count += 1
        number = f"{self._run}-{self._count}"
        customer = f"customer-{dice.randrange(CUSTOMERS):03}"
        items = [self._item() for _ in range(dice.randint(1, ITEMS_MAX))]
        total = round(sum(price * quantity for _, price, quantity in items), 2)
        fault = dice.choice(sorted(FAULTS)) if dice.random() < FAULT_SHARE else ""
        body = self._body(number, customer, items, total, fault)
        message: Document = {
            "message_id": f"order-{number}",
            "partition_key": customer,
            "subject": "order",
            "content_type": "application/json",
            "properties": {
                "region": dice.choice(REGIONS),
                "total": total,
                "kind": dice.choice(KINDS),
            },
            "body": json.dumps(body),
        }
        if dice.random() < SCHEDULED_SHARE:
            due = now.astimezone(UTC) + timedelta(seconds=dice.randint(*SCHEDULED_S))
            return {**message, "scheduled_at": due.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return message

    def _item(self) -> tuple[str, float, int]:
        name, price = self._dice.choice(_GOODS)
        return name, price, self._dice.randint(1, 4)

    def _body(
        self,
        number: str,
        customer: str,
        items: list[tuple[str, float, int]],
        total: float,
        fault: str,
    ) -> Document:
        dice = self._dice
        street = "" if fault == "address" else f"{dice.randint(1, 99)} {dice.choice(_STREETS)}"
        return {
            "order": number,
            "customer": customer,
            "items": [
                {"name": name, "price": price, "quantity": quantity}
                for name, price, quantity in items
            ],
            "total": total,
            "currency": "EUR",
            "payment": "declined" if fault == "payment" else "settled",
            "address": {"street": street, "city": "Newport", "country": "Utopia"},
            "note": dice.choice(_NOTES),
        }


def fault_of(message: Document) -> Fault | None:
    """Why the order in a received message cannot be handled; None when it can."""
    try:
        body: object = json.loads(str(message.get("body")))
    except (ValueError, RecursionError):
        return UNREADABLE
    if not isinstance(body, dict):
        return UNREADABLE
    if body.get("payment") != "settled":
        return FAULTS["payment"]
    address = body.get("address")
    if not isinstance(address, dict) or not address.get("street"):
        return FAULTS["address"]
    return None


def event_of(message: Document) -> Document:
    """The event for the topic after the order in a received message was handled."""
    kept = ("partition_key", "content_type", "properties", "body")
    event: Document = {name: message[name] for name in kept if name in message}
    named = str(message.get("message_id", "")).removeprefix("order-")
    return {**event, "message_id": f"event-{named}", "subject": "order-handled"}
