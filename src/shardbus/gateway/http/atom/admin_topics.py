"""Management of subscriptions and rules over ATOM: everything below a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, TypeVar, final

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.namespace.namespace import PAGE_COUNT_MAX, Namespace
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.entity import Entity, subscription_path
from shardbus.core.namespace.property import SUBSCRIPTION
from shardbus.core.namespace.rule_spec import RuleSpec
from shardbus.gateway.http.atom.descriptions import Shown, entity_entry, fill_spec, rule_entry
from shardbus.gateway.http.atom.entries import (
    RULE_DESCRIPTION,
    SUBSCRIPTION_DESCRIPTION,
    FeedPage,
    FeedWriter,
    read_description,
    read_entry,
)
from shardbus.gateway.http.atom.forwarding import authorize_forwarding
from shardbus.gateway.http.atom.rule_markup import read_rule
from shardbus.gateway.http.server.message import XML, HttpRequest, HttpResponse

T = TypeVar("T")

PAGE_COUNT_DEFAULT: Final = 100

# Enough that waiting for brokers overlaps, and few enough not to delay other requests.
_PORTION_COUNT: Final = 32
_NUMBER_MAX: Final = 1_000_000_000
ENTITY_METHODS: Final = "GET, HEAD, PUT, DELETE"


@final
class TopicPath:
    """A path below a topic: `topic/subscriptions[/subscription[/rules[/rule]]]`.

    A missing part is empty; `is_rules` says that the list of rules, or one of them, is meant.
    """

    def __init__(self, topic: str, below: list[str]) -> None:
        self.topic = topic
        self.subscription = below[0] if below else ""
        self.is_rules = len(below) > 1
        self.rule = below[2] if len(below) > 2 else ""

    def subscription_path(self) -> str:
        return subscription_path(self.topic, self.subscription)


def read_topic_path(path: str) -> TopicPath | None:
    """None when the path is not one below a topic."""
    segments = path.split("/")
    lowered = [segment.lower() for segment in segments]
    if "subscriptions" not in lowered[1:]:
        return None
    at = lowered.index("subscriptions", 1)
    below = segments[at + 1 :]
    if len(below) > 3 or (len(below) > 1 and below[1].lower() != "rules"):
        return None
    return TopicPath("/".join(segments[:at]), below)


@final
class TopicAdmin:
    """Answers requests for subscriptions and rules; rights have been checked."""

    def __init__(self, namespace: Namespace, authorizer: Authorizer) -> None:
        self._namespace = namespace
        self._authorizer = authorizer

    async def respond(
        self, request: HttpRequest, path: TopicPath, writer: FeedWriter
    ) -> HttpResponse:
        if path.rule:
            return await self._rule(request, path, writer)
        if path.is_rules or not path.subscription:
            check_named(request)
        if path.is_rules:
            return self._list_rules(request, path, writer)
        if path.subscription:
            return await self._subscription(request, path, writer)
        return await self._list_subscriptions(request, path, writer)

    async def _subscription(
        self, request: HttpRequest, path: TopicPath, writer: FeedWriter
    ) -> HttpResponse:
        name = path.subscription_path()
        match request.method:
            case "GET" | "HEAD":
                return await self._shown(200, self._namespace.subscription(name), writer)
            case "PUT" if "if-match" in request.headers:
                check_match(request)
                described = read_description(request.body, SUBSCRIPTION_DESCRIPTION)
                old = self._namespace.subscription(name).spec
                spec = old.copy()
                fill_spec(SUBSCRIPTION, spec, described)
                authorize_forwarding(request, spec, old, self._authorizer, self._namespace)
                entity = await self._namespace.update_subscription(name, spec)
                return await self._shown(200, entity, writer)
            case "PUT":
                return await self._shown(201, await self._create(request, path), writer)
            case "DELETE":
                await self._namespace.delete(self._namespace.subscription(name).name)
                return HttpResponse(200, XML)
        return method_not_allowed(ENTITY_METHODS)

    async def _create(self, request: HttpRequest, path: TopicPath) -> Entity:
        described = read_description(request.body, SUBSCRIPTION_DESCRIPTION)
        spec = self._namespace.new_spec()
        fill_spec(SUBSCRIPTION, spec, described)
        authorize_forwarding(request, spec, None, self._authorizer, self._namespace)
        rule = described.element("DefaultRuleDescription")
        rules: list[RuleSpec] = [] if rule is None else [read_rule(rule, "")]
        return await self._namespace.create_subscription(path.topic, path.subscription, spec, rules)

    async def _list_subscriptions(
        self, request: HttpRequest, path: TopicPath, writer: FeedWriter
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return method_not_allowed("GET, HEAD")
        topic = self._namespace.topic(path.topic)
        known = self._namespace.subscriptions(topic)
        page = page_of(request, "Subscriptions", f"{topic.name}/Subscriptions", len(known))
        shown = known[page.skip : page.skip + page.top]
        entries = await in_portions(lambda entity: self._entry(entity, writer), shown)
        return HttpResponse(200, XML, writer.feed(page, entries))

    async def _rule(
        self, request: HttpRequest, path: TopicPath, writer: FeedWriter
    ) -> HttpResponse:
        name = path.subscription_path()
        match request.method:
            case "GET" | "HEAD":
                rule = self._namespace.rule(name, path.rule)
                return HttpResponse(200, XML, self._shown_rule(name, rule, writer))
            case "PUT" if "if-match" in request.headers:
                check_match(request)
                rule = await self._namespace.replace_rule(name, _described_rule(request, path))
                return HttpResponse(200, XML, self._shown_rule(name, rule, writer))
            case "PUT":
                rule = await self._namespace.add_rule(name, _described_rule(request, path))
                return HttpResponse(201, XML, self._shown_rule(name, rule, writer))
            case "DELETE":
                await self._namespace.remove_rule(name, path.rule)
                return HttpResponse(200, XML)
        return method_not_allowed(ENTITY_METHODS)

    def _list_rules(
        self, request: HttpRequest, path: TopicPath, writer: FeedWriter
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return method_not_allowed("GET, HEAD")
        entity = self._namespace.subscription(path.subscription_path())
        page = page_of(request, "Rules", f"{entity.name}/Rules", len(entity.rules))
        rules = self._namespace.rules(entity.name)[page.skip : page.skip + page.top]
        return HttpResponse(
            200, XML, writer.feed(page, [rule_entry(writer, entity, rule) for rule in rules])
        )

    async def _shown(self, status: int, entity: Entity, writer: FeedWriter) -> HttpResponse:
        return HttpResponse(status, XML, writer.document(await self._entry(entity, writer)))

    async def _entry(self, entity: Entity, writer: FeedWriter) -> str:
        return entity_entry(writer, Shown(entity, await self._namespace.statistics(entity)))

    def _shown_rule(self, name: str, rule: RuleSpec, writer: FeedWriter) -> str:
        return writer.document(rule_entry(writer, self._namespace.subscription(name), rule))


async def in_portions(
    ask: Callable[[Entity], Coroutine[object, object, T]], entities: Sequence[Entity]
) -> list[T]:
    """The answers about each entity, some of which are asked at a time."""
    answers: list[T] = []
    for start in range(0, len(entities), _PORTION_COUNT):
        portion = entities[start : start + _PORTION_COUNT]
        answers += await asyncio.gather(*map(ask, portion))
    return answers


def page_of(request: HttpRequest, title: str, path: str, count: int) -> FeedPage:
    """The requested part of a list."""
    skip = _number(request, "$skip", 0)
    top = min(_number(request, "$top", PAGE_COUNT_DEFAULT), PAGE_COUNT_MAX)
    shown = max(0, min(top, count - skip))
    next_skip = skip + shown if shown and skip + shown < count else 0
    return FeedPage(title, path, skip, next_skip, top)


def check_named(request: HttpRequest) -> None:
    """Refuse a request for one entity with an empty name: it does not mean all of them.

    SDKs send `enrich` when they ask for one; a request for a list also says from where to where.
    """
    if "enrich" in request.query and not {"$skip", "$top"} & request.query.keys():
        raise Refused(INVALID_ARGUMENT, "The name of an entity cannot be empty.")


def check_match(request: HttpRequest) -> None:
    """Refuse an update that expects a certain version of the entity."""
    if request.headers["if-match"].strip() != "*":
        raise Refused(INVALID_ARGUMENT, "If-Match must be '*': entities have no versions.")


def method_not_allowed(allowed: str) -> HttpResponse:
    response = HttpResponse(405, "text/plain; charset=utf-8", f"Use one of {allowed}.\n")
    response.headers.append(("Allow", allowed))
    return response


def _described_rule(request: HttpRequest, path: TopicPath) -> RuleSpec:
    description = read_entry(request.body)
    if description.name != RULE_DESCRIPTION:
        raise Refused(
            INVALID_ARGUMENT,
            f"A {description.name} was sent where a {RULE_DESCRIPTION} belongs.",
        )
    return read_rule(description, path.rule)


def _number(request: HttpRequest, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _NUMBER_MAX:
        return int(text)
    raise Refused(INVALID_ARGUMENT, f"{name} is '{text[:60]}'; it must be from 0 to {_NUMBER_MAX}.")
