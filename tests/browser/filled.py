"""A namespace that looks like one in use, for the tests that look at every page."""

from __future__ import annotations

import base64
import gzip
import json
import random
from typing import Final

from tests.browser.api import Api, Document

GOODS: Final = ("teapot", "kettle", "saucer", "samovar", "cup")
EUROPE: Final = "news/Subscriptions/europe"


def fill(api: Api) -> None:
    """Queues, a topic, messages in every state, dead letters of several reasons."""
    dice = random.Random(3)
    for name, properties in QUEUES.items():
        api.create(name, **properties)
    api.call("PUT", "topics/news", {})
    for name in ("europe", "asia", "audit"):
        api.call("PUT", f"topics/news/subscriptions/{name}", {})
    sql = {"kind": "sql", "expression": "region = 'eu' AND quantity > 3"}
    rule = {"filter": sql, "action": "SET region = 'uk'"}
    api.call("PUT", "entities/news%2FSubscriptions%2Feurope/rules/from-europe", rule)
    for _ in range(3):
        api.send("orders", [order(dice, number) for number in range(400)])
    api.send("news", [order(dice, number) for number in range(200)])
    packed = base64.b64encode(gzip.compress(b'{"packed": true}')).decode()
    api.send("orders", [{"body_base64": packed}, {"body": "<order><id>7</id></order>"}])
    api.send("payments", [{"body": "paid", "message_id": f"m{number}"} for number in range(90)])
    api.send("carts", [{"body": "step", "session_id": f"cart-{n % 17}"} for n in range(60)])
    later = {"body": "later", "scheduled_at": "2037-01-02T03:04:05Z"}
    api.send("orders", [later for _ in range(6)])
    api.bury("orders", 24, "unreadable", "order is not JSON at character")
    api.bury("orders", 11, "NoStock", "out of stock: item")
    api.bury("orders", 3, "Timeout", "the warehouse did not answer within")
    for token in api.receive("orders", 4):
        api.settle("orders", token, "defer")
    api.call("PUT", "pipelines/archive", {"entity": "orders"})
    api.call("PUT", "access-rules/shop", {"rights": ["Send", "Listen"]})


QUEUES: Final[dict[str, Document]] = {
    "orders": {},
    "payments": {"requires_duplicate_detection": True, "lifecycle": True},
    "carts": {"requires_session": True},
    "invoices": {"is_partitioned": False},
    "returns": {"forward_to": "invoices"},
    "graves": {"status": "ReceiveDisabled"},
}


def order(dice: random.Random, number: int) -> Document:
    items = [{"sku": dice.choice(GOODS), "quantity": dice.randint(1, 9)}]
    body = {"order": 1000 + number, "items": items, "total": round(200 * dice.random(), 2)}
    return {
        "body": json.dumps(body),
        "subject": dice.choice(("created", "paid", "shipped")),
        "content_type": "application/json",
        "partition_key": f"customer-{int(dice.expovariate(0.15))}",
        "properties": {
            "region": dice.choice(("eu", "us", "asia")),
            "quantity": dice.randint(1, 9),
        },
    }
