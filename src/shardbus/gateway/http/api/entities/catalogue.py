"""Queues, topics, subscriptions, rules and fragments as the JSON API shows them."""

from __future__ import annotations

from typing import Final, final

from shardbus.broker.namespace.namespace import PAGE_COUNT_MAX, Namespace
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.core.namespace.entity import (
    Entity,
)
from shardbus.core.namespace.property import QUEUE, TOPIC
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows
from shardbus.gateway.http.api.entities.documents import (
    AnyEntity,
    Fragments,
    Queue,
    Queues,
    Rules,
    Subscription,
    Subscriptions,
    Topic,
    Topics,
    queue_document,
    rule_document,
    subscription_document,
    topic_document,
)
from shardbus.gateway.http.api.route import NAME, Parameter, Route
from shardbus.gateway.http.document import Shape
from shardbus.gateway.http.observing.fragments import FragmentsPage

PAGE_COUNT_DEFAULT: Final = 100
SKIP_MAX: Final = 1_000_000_000

PAGE: Final = (
    Parameter("skip", "query", "How many to skip.", most=SKIP_MAX, example=0),
    Parameter(
        "top",
        "query",
        f"How many to show; {PAGE_COUNT_DEFAULT} by default.",
        most=PAGE_COUNT_MAX,
        example=10,
    ),
)


def page_asked(call: Call[Nothing]) -> tuple[int, int]:
    """How many to skip, and how many to show at most."""
    skip = call.query.integer("skip", 0, SKIP_MAX)
    return skip, call.query.integer("top", PAGE_COUNT_DEFAULT, PAGE_COUNT_MAX)


@final
class EntityPages:
    """Shows the entities, their descriptions, and their contents (R9, R29)."""

    def __init__(self, namespace: Namespace, fragments: FragmentsPage) -> None:
        self._namespace = namespace
        self._fragments = fragments

    def rows(self) -> list[Row]:
        return [
            shows(
                _list("queues", "Queues in the order of their names, with their counts.", Queues),
                self._show_queues,
            ),
            shows(
                _one("queues/{name}", "One queue: its description and its counts.", Queue),
                self._show_queue,
            ),
            shows(
                _list("topics", "Topics in the order of their names, with their counts.", Topics),
                self._show_topics,
            ),
            shows(
                _one("topics/{name}", "One topic: its description and its counts.", Topic),
                self._show_topic,
            ),
            shows(
                _list(
                    "topics/{name}/subscriptions",
                    "The subscriptions of a topic in the order of their names.",
                    Subscriptions,
                ),
                self._show_subscriptions,
            ),
            shows(
                _one(
                    "entities/{name}",
                    "A queue, topic or subscription.",
                    AnyEntity,
                    identifier="showEntity",
                ),
                self._show_entity,
            ),
            shows(
                _one(
                    "entities/{name}/rules",
                    "The rules of a subscription in the order in which they were added.",
                    Rules,
                    *PAGE,
                ),
                self._show_rules,
            ),
            shows(
                _one(
                    "entities/{name}/fragments",
                    "The broker, state and contents of each fragment.",
                    Fragments,
                ),
                self._show_fragments,
            ),
        ]

    async def _show_queues(self, call: Call[Nothing]) -> Queues:
        skip, top = page_asked(call)
        shown = [await self._queue(queue) for queue in self._namespace.page(skip, top)]
        return Queues(count=self._namespace.count(), skip=skip, queues=shown)

    async def _show_topics(self, call: Call[Nothing]) -> Topics:
        skip, top = page_asked(call)
        shown = [await self._topic(topic) for topic in self._namespace.page(skip, top, TOPIC)]
        return Topics(count=self._namespace.count(TOPIC), skip=skip, topics=shown)

    async def _show_subscriptions(self, call: Call[Nothing]) -> Subscriptions:
        skip, top = page_asked(call)
        known = self._namespace.subscriptions(self._namespace.topic(call.name))
        shown = [await self._subscription(one) for one in known[skip : skip + top]]
        return Subscriptions(count=len(known), skip=skip, subscriptions=shown)

    async def _show_queue(self, call: Call[Nothing]) -> Queue:
        return await self._queue(self._namespace.queue(call.name))

    async def _show_topic(self, call: Call[Nothing]) -> Topic:
        return await self._topic(self._namespace.topic(call.name))

    async def _show_entity(self, call: Call[Nothing]) -> AnyEntity:
        entity = self._namespace.get(call.name)
        if entity.is_topic():
            return await self._topic(entity)
        return await (self._queue if entity.kind == QUEUE else self._subscription)(entity)

    async def _show_rules(self, call: Call[Nothing]) -> Rules:
        skip, top = page_asked(call)
        rules = self._namespace.rules(call.name)
        shown = [rule_document(rule) for rule in rules[skip : skip + top]]
        return Rules(count=len(rules), skip=skip, rules=shown)

    async def _show_fragments(self, call: Call[Nothing]) -> Fragments:
        return await self._fragments.document(call.name)

    async def _queue(self, entity: Entity) -> Queue:
        return queue_document(entity, await self._namespace.statistics(entity))

    async def _topic(self, entity: Entity) -> Topic:
        statistics = await self._namespace.statistics(entity)
        return topic_document(entity, statistics, self._namespace.filter_counts(entity))

    async def _subscription(self, entity: Entity) -> Subscription:
        return subscription_document(entity, await self._namespace.statistics(entity))


def _list(path: str, summary: str, shape: Shape) -> Route:
    named = (NAME,) if "{name}" in path else ()
    return Route(f"/api/v1/{path}", summary, shape, right=MANAGE, parameters=(*named, *PAGE))


def _one(path: str, summary: str, shape: Shape, *more: Parameter, identifier: str = "") -> Route:
    return Route(
        f"/api/v1/{path}",
        summary,
        shape,
        right=LISTEN,
        otherwise=MANAGE,
        parameters=(NAME, *more),
        identifier=identifier,
    )
