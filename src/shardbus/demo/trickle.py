"""The senders and receivers of the demo; each step is one turn, and blocks for its duration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, final

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.messages.entity_path import DEAD_LETTERS, documents, whole
from shardbus.demo.orders import Fault, OrderBook, event_of, fault_of
from shardbus.demo.scene import ORDERS
from shardbus.demo.tally import Counts

SEND_MAX: Final = 500
RECEIVE_MAX: Final = 250
WAIT_MS: Final = 500
DEAD_LETTERS_KEPT: Final = 200
"""Older ones are removed: dead letters do not expire, and nobody else removes these."""


@final
class Sender:
    """Sends orders to the queue."""

    def __init__(self, api: ApiClient, book: OrderBook, now: Callable[[], datetime]) -> None:
        self._api = api
        self._book = book
        self._now = now

    def step(self, count: int) -> Counts:
        moment = self._now()
        orders = [self._book.next(moment) for _ in range(min(count, SEND_MAX))]
        if not orders:
            return Counts()
        sent = _send(self._api, ORDERS, orders)
        return Counts(sent=sent, scheduled=sum("scheduled_at" in order for order in orders))


@final
class OrderWorker:
    """Receives orders, publishes events about handled ones, and dead-letters the others."""

    def __init__(self, api: ApiClient, topic: str) -> None:
        """Without a topic no events are published."""
        self._api = api
        self._topic = topic

    def step(self, count: int) -> Counts:
        messages = _receive(self._api, ORDERS, count)
        handled: list[Document] = []
        refused: dict[Fault, list[Document]] = {}
        for message in messages:
            fault = fault_of(message)
            (handled if fault is None else refused.setdefault(fault, [])).append(message)
        published = 0
        # Published before it is completed: after a crash the event is published again, but never
        # lost.
        if handled and self._topic:
            published = _send(self._api, self._topic, [event_of(message) for message in handled])
        completed = _settle(self._api, ORDERS, handled, {"action": "complete"})
        dead = sum(
            _settle(self._api, ORDERS, some, _dead_letter(fault)) for fault, some in refused.items()
        )
        return Counts(
            received=len(messages), completed=completed, dead_lettered=dead, published=published
        )


@final
class Subscriber:
    """Receives the messages of a subscription."""

    def __init__(self, api: ApiClient, path: str) -> None:
        self._api = api
        self._path = path

    def step(self) -> Counts:
        messages = _receive(self._api, self._path, RECEIVE_MAX)
        return Counts(
            delivered=_settle(self._api, self._path, messages, {"action": "complete"}),
        )


def remove_dead_letters(api: ApiClient, count: int) -> int:
    """Remove the oldest dead letters of the queue; returns how many."""
    body: Document = {"count": min(count, RECEIVE_MAX), "mode": "receive_and_delete", "wait_ms": 0}
    path = f"entities/{ORDERS}/{DEAD_LETTERS}/messages/receive"
    return len(documents(api.post(path, body), "messages"))


def _send(api: ApiClient, entity: str, messages: Sequence[Document]) -> int:
    return whole(api.post(f"entities/{entity}/messages", {"messages": list(messages)}), "sent")


def _receive(api: ApiClient, entity: str, count: int) -> list[Document]:
    body: Document = {"count": max(1, min(count, RECEIVE_MAX)), "wait_ms": WAIT_MS}
    return documents(api.post(f"entities/{entity}/messages/receive", body), "messages")


def _settle(api: ApiClient, entity: str, messages: Sequence[Document], how: Document) -> int:
    if not messages:
        return 0
    tokens = [str(message["lock_token"]) for message in messages]
    path = f"entities/{entity}/messages/settle"
    return whole(api.post(path, {**how, "lock_tokens": tokens}), "settled")


def _dead_letter(fault: Fault) -> Document:
    return {
        "action": "dead_letter",
        "reason": fault.reason,
        "description": fault.description,
    }
