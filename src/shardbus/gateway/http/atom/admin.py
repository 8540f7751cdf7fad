"""Entity management over ATOM: create, show, list, update and delete."""

from __future__ import annotations

import re
from typing import Final, final

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.clock import Clock
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import INVALID_ARGUMENT, Refused, not_found
from shardbus.core.namespace.access import MANAGE
from shardbus.core.namespace.description import fragment_size_mb
from shardbus.core.namespace.entity import (
    Entity,
    EntitySpec,
)
from shardbus.core.namespace.property import QUEUE, TOPIC
from shardbus.gateway.http.atom.access_markup import complete_rules
from shardbus.gateway.http.atom.admin_topics import (
    ENTITY_METHODS,
    PAGE_COUNT_DEFAULT,
    TopicAdmin,
    check_match,
    check_named,
    in_portions,
    method_not_allowed,
    page_of,
    read_topic_path,
)
from shardbus.gateway.http.atom.descriptions import Shown, entity_entry, fill_spec
from shardbus.gateway.http.atom.element_reader import ElementReader, described_by
from shardbus.gateway.http.atom.entries import (
    QUEUE_DESCRIPTION,
    TOPIC_DESCRIPTION,
    FeedPage,
    FeedWriter,
    read_entry,
)
from shardbus.gateway.http.atom.forwarding import authorize_forwarding
from shardbus.gateway.http.server.gate import Gate
from shardbus.gateway.http.server.message import XML, HttpRequest, HttpResponse
from shardbus.gateway.http.server.refusal import shown
from shardbus.gateway.http.server.target import names_messages

CURRENT_VERSION: Final = "2021-05"
# "An api-version older than 2013-10 cannot create a partitioned entity" (R31).
PARTITIONING_SINCE: Final = "2013-10"

_VERSION: Final = re.compile(r"\d{4}-\d{2}(-\d{2})?", re.ASCII)


@final
class Admin:
    """Answers management requests; each needs the Manage right on its entity."""

    def __init__(self, namespace: Namespace, authorizer: Authorizer, clock: Clock) -> None:
        self._namespace = namespace
        self._authorizer = authorizer
        self._gate = Gate(namespace, authorizer)
        self._clock = clock
        self._topics = TopicAdmin(namespace, authorizer)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """The answer to a request for an entity, a list or the namespace."""
        self._gate.require(request, MANAGE, request.path)
        version = _api_version(request)
        writer = self._writer(request, version)
        path = request.path.lower()
        if path.startswith("$"):
            return await self._resource(request, path, writer)
        below = read_topic_path(request.path)
        if below is not None:
            return await self._topics.respond(request, below, writer)
        if "$" in [segment[:1] for segment in request.path.split("/")]:
            raise Refused(
                INVALID_ARGUMENT,
                f"{shown(request.path)} is not an entity: a sub-queue is created and deleted "
                "with its entity and has no description.",
            )
        return await self._entity(request, version, writer)

    def root(self, request: HttpRequest) -> HttpResponse:
        """The public list, which is empty: administration clients find no entity in it."""
        check_named(request)
        page = FeedPage("Publicly Listed Services", "", 0, 0, PAGE_COUNT_DEFAULT)
        writer = self._writer(request, _api_version(request))
        return HttpResponse(200, XML, writer.feed(page, []))

    def _writer(self, request: HttpRequest, version: str) -> FeedWriter:
        name = self._namespace.settings.name
        return FeedWriter(request.base_url(name), version, name, self._clock.now_ms())

    def is_entity(self, path: str) -> bool:
        return self._namespace.find(path.lower()) is not None

    async def _resource(self, request: HttpRequest, path: str, writer: FeedWriter) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return method_not_allowed("GET, HEAD")
        if path == "$resources/queues":
            return await self._list(request, QUEUE, "Queues", writer)
        if path == "$resources/topics":
            return await self._list(request, TOPIC, "Topics", writer)
        if path == "$namespaceinfo":
            sku = self._namespace.settings.tier.name.capitalize()
            return HttpResponse(200, XML, writer.namespace(sku, self._namespace.created_at_ms))
        raise not_found(request.path)

    async def _list(
        self, request: HttpRequest, kind: str, title: str, writer: FeedWriter
    ) -> HttpResponse:
        path = f"$Resources/{title.lower()}"
        page = page_of(request, title, path, self._namespace.count(kind))
        found = self._namespace.page(page.skip, page.top, kind)
        entries = await in_portions(lambda entity: self._entry(entity, writer), found)
        return HttpResponse(200, XML, writer.feed(page, entries))

    async def _entity(self, request: HttpRequest, version: str, writer: FeedWriter) -> HttpResponse:
        match request.method:
            case "GET" | "HEAD":
                entity = self._namespace.get(request.path)
                return await self._shown(200, entity, writer)
            case "PUT" if "if-match" in request.headers:
                entity = await self._update(request)
                return await self._shown(200, entity, writer)
            case "PUT":
                entity = await self._create(request, version)
                return await self._shown(201, entity, writer)
            case "DELETE":
                await self._namespace.delete(request.path)
                # With an empty body: one SDK refuses 204, the other parses any body it gets.
                return HttpResponse(200, XML)
        return method_not_allowed(ENTITY_METHODS + (", POST" if names_messages(request) else ""))

    async def _create(self, request: HttpRequest, version: str) -> Entity:
        description = read_entry(request.body)
        described = described_by(description)
        spec = self._namespace.new_spec()
        tier = self._namespace.settings.tier
        is_too_old = version < PARTITIONING_SINCE
        if is_too_old:
            spec.is_partitioned = False
        _fill(spec, description.name, described)
        complete_rules(spec.access_rules, [], self._clock.now_ms())
        if is_too_old and tier.is_partitioned(spec.is_partitioned):
            raise Refused(
                INVALID_ARGUMENT,
                f"api-version {version} cannot create a partitioned entity; "
                f"use {PARTITIONING_SINCE} or later.",
            )
        authorize_forwarding(request, spec, None, self._authorizer, self._namespace)
        if description.name == QUEUE_DESCRIPTION:
            return await self._namespace.create_queue(request.path, spec)
        if not described.has("SupportOrdering"):
            spec.supports_ordering = not tier.is_partitioned(spec.is_partitioned)
        return await self._namespace.create_topic(request.path, spec)

    async def _update(self, request: HttpRequest) -> Entity:
        check_match(request)
        description = read_entry(request.body)
        entity = self._namespace.get(request.path)
        spec = self._updated_spec(entity, description.name, described_by(description))
        authorize_forwarding(request, spec, entity.spec, self._authorizer, self._namespace)
        if description.name == QUEUE_DESCRIPTION:
            return await self._namespace.update_queue(request.path, spec)
        return await self._namespace.update_topic(request.path, spec)

    def _updated_spec(self, entity: Entity, name: str, described: ElementReader) -> EntitySpec:
        spec = entity.spec.copy()
        _fill(spec, name, described)
        if described.has("MaxSizeInMegabytes"):
            spec.size_mb = fragment_size_mb(entity, spec.size_mb, self._namespace.settings.tier)
        complete_rules(spec.access_rules, entity.spec.access_rules, self._clock.now_ms())
        return spec

    async def _shown(self, status: int, entity: Entity, writer: FeedWriter) -> HttpResponse:
        return HttpResponse(status, XML, writer.document(await self._entry(entity, writer)))

    async def _entry(self, entity: Entity, writer: FeedWriter) -> str:
        statistics = await self._namespace.statistics(entity)
        counts = self._namespace.filter_counts(entity) if entity.is_topic() else (0, 0)
        return entity_entry(writer, Shown(entity, statistics, counts))


def _fill(spec: EntitySpec, name: str, described: ElementReader) -> None:
    kind = {QUEUE_DESCRIPTION: QUEUE, TOPIC_DESCRIPTION: TOPIC}.get(name)
    if kind is None:
        raise Refused(
            INVALID_ARGUMENT, f"A {name} belongs under the subscriptions of a topic, not here."
        )
    fill_spec(kind, spec, described)


def _api_version(request: HttpRequest) -> str:
    version = request.query.get("api-version", CURRENT_VERSION)
    if not _VERSION.fullmatch(version):
        raise Refused(
            INVALID_ARGUMENT, f"api-version is '{version[:60]}'; it must look like 2021-05."
        )
    return version
