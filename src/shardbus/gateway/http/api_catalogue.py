"""Queues, topics, subscriptions, rules and fragments in the JSON API: read only (ADR 0014)."""

from __future__ import annotations

from typing import Final, final

from shardbus.broker.namespace import PAGE_COUNT_MAX, Namespace
from shardbus.core.access import LISTEN, MANAGE
from shardbus.core.entity import (
    Entity,
)
from shardbus.core.entity_property import QUEUE, TOPIC
from shardbus.gateway.http.api_call import Answer, Call
from shardbus.gateway.http.api_route import NAME, Parameter, Route
from shardbus.gateway.http.documents_entities import (
    page_document,
    queue_document,
    rule_document,
    subscription_document,
    topic_document,
)
from shardbus.gateway.http.documents_schema import Document, Schema
from shardbus.gateway.http.fragments import FragmentsPage

PAGE_COUNT_DEFAULT: Final = 100
SKIP_MAX: Final = 1_000_000_000

PAGE: Final = (
    Parameter("skip", "query", "How many to pass over.", most=SKIP_MAX, example=0),
    Parameter(
        "top",
        "query",
        f"How many to show; {PAGE_COUNT_DEFAULT} unless said.",
        most=PAGE_COUNT_MAX,
        example=10,
    ),
)


def page_asked(call: Call) -> tuple[int, int]:
    """How many to pass over, and how many to show at most."""
    skip = call.query.integer("skip", 0, SKIP_MAX)
    return skip, call.query.integer("top", PAGE_COUNT_DEFAULT, PAGE_COUNT_MAX)


@final
class EntityPages:
    """Tells what entities there are, how they are described, and what they hold (R9, R29)."""

    def __init__(self, namespace: Namespace, fragments: FragmentsPage) -> None:
        self._namespace = namespace
        self._fragments = fragments

    def schemas(self) -> dict[str, Schema]:
        """None beside those of `documents`."""
        return {}

    def routes(self) -> list[tuple[Route, Answer]]:
        return [
            (
                _list("queues", "Queues in the order of their names, with their counts.", "Queues"),
                self._show_queues,
            ),
            (
                _one("queues/{name}", "One queue: its description and its counts.", "Queue"),
                self._show_queue,
            ),
            (
                _list("topics", "Topics in the order of their names, with their counts.", "Topics"),
                self._show_topics,
            ),
            (
                _one("topics/{name}", "One topic: its description and its counts.", "Topic"),
                self._show_topic,
            ),
            (
                _list(
                    "topics/{name}/subscriptions",
                    "The subscriptions of a topic in the order of their names.",
                    "Subscriptions",
                ),
                self._show_subscriptions,
            ),
            (
                _one("entities/{name}", "A queue, topic or subscription.", "Entity"),
                self._show_entity,
            ),
            (
                _one(
                    "entities/{name}/rules",
                    "The rules of a subscription in the order in which they were added.",
                    "Rules",
                    *PAGE,
                ),
                self._show_rules,
            ),
            (
                _one(
                    "entities/{name}/fragments",
                    "Where each fragment is, how it is, and what it holds.",
                    "Fragments",
                ),
                self._show_fragments,
            ),
        ]

    async def _show_queues(self, call: Call) -> Document:
        skip, top = page_asked(call)
        return await self._page(
            "queues", skip, self._namespace.count(), self._namespace.page(skip, top)
        )

    async def _show_topics(self, call: Call) -> Document:
        skip, top = page_asked(call)
        topics = self._namespace.page(skip, top, TOPIC)
        return await self._page("topics", skip, self._namespace.count(TOPIC), topics)

    async def _show_subscriptions(self, call: Call) -> Document:
        skip, top = page_asked(call)
        known = self._namespace.subscriptions(self._namespace.topic(call.name))
        return await self._page("subscriptions", skip, len(known), known[skip : skip + top])

    async def _show_queue(self, call: Call) -> Document:
        return await self._document(self._namespace.queue(call.name))

    async def _show_topic(self, call: Call) -> Document:
        return await self._document(self._namespace.topic(call.name))

    async def _show_entity(self, call: Call) -> Document:
        return await self._document(self._namespace.get(call.name))

    async def _show_rules(self, call: Call) -> Document:
        skip, top = page_asked(call)
        rules = self._namespace.rules(call.name)
        shown = [rule_document(rule) for rule in rules[skip : skip + top]]
        return page_document(len(rules), skip, "rules", shown)

    async def _show_fragments(self, call: Call) -> Document:
        return await self._fragments.document(call.name)

    async def _page(self, member: str, skip: int, count: int, shown: list[Entity]) -> Document:
        documents = [await self._document(entity) for entity in shown]
        return page_document(count, skip, member, documents)

    async def _document(self, entity: Entity) -> Document:
        statistics = await self._namespace.statistics(entity)
        if entity.is_topic():
            return topic_document(entity, statistics, self._namespace.filter_counts(entity))
        if entity.kind == QUEUE:
            return queue_document(entity, statistics)
        return subscription_document(entity, statistics)


def _list(path: str, summary: str, schema: str) -> Route:
    named = (NAME,) if "{name}" in path else ()
    return Route(f"/api/v1/{path}", summary, schema, right=MANAGE, parameters=(*named, *PAGE))


def _one(path: str, summary: str, schema: str, *more: Parameter) -> Route:
    return Route(
        f"/api/v1/{path}",
        summary,
        schema,
        right=LISTEN,
        otherwise=MANAGE,
        parameters=(NAME, *more),
    )
