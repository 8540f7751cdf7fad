"""Entity management: create, show, list, update and delete queues over ATOM (reference 15)."""

from __future__ import annotations

import re
from typing import Final, final

from shardbus.broker.auth import Authorizer
from shardbus.broker.clock import Clock
from shardbus.broker.host import EntityStatistics
from shardbus.broker.namespace import PAGE_COUNT_MAX, Namespace
from shardbus.core.access import MANAGE, AccessRule
from shardbus.core.description import fragment_size_mb
from shardbus.core.entity import Entity, QueueSpec
from shardbus.core.errors import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refused
from shardbus.gateway.http.atom import Described, Writer, fill_spec, read_description
from shardbus.gateway.http.gate import Gate
from shardbus.gateway.http.message import XML, Request, Response

CURRENT_VERSION: Final = "2021-05"
# "An api-version older than 2013-10 cannot create a partitioned entity" (R31).
PARTITIONING_SINCE: Final = "2013-10"
PAGE_COUNT_DEFAULT: Final = 100

_VERSION: Final = re.compile(r"\d{4}-\d{2}(-\d{2})?", re.ASCII)
_SKIP_MAX: Final = 1_000_000_000


@final
class Admin:
    """Answers management requests; every one needs the Manage right on what it addresses."""

    def __init__(self, namespace: Namespace, authorizer: Authorizer, clock: Clock) -> None:
        self._namespace = namespace
        self._gate = Gate(namespace, authorizer)
        self._clock = clock

    async def respond(self, request: Request) -> Response:
        """The answer to a request for an entity, a list or the namespace."""
        self._gate.require(request, MANAGE, request.path)
        version = _api_version(request)
        writer = Writer(
            request.base_url(self._namespace.settings.name),
            version,
            self._namespace.settings.name,
            self._clock.now_ms(),
        )
        path = request.path.lower()
        if path.startswith("$"):
            return await self._resource(request, path, writer)
        if "subscriptions" in path.split("/"):
            raise Refused(NOT_IMPLEMENTED, "This version of the bus does not offer topics yet.")
        return await self._queue(request, version, writer)

    def is_entity(self, path: str) -> bool:
        return self._namespace.find(path.lower()) is not None

    async def _resource(self, request: Request, path: str, writer: Writer) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _method_not_allowed("GET, HEAD")
        if path == "$resources/queues":
            return await self._list(request, writer)
        if path == "$resources/topics":
            return Response(200, XML, writer.nothing("Topics", "$Resources/topics"))
        if path == "$namespaceinfo":
            sku = self._namespace.settings.tier.name.capitalize()
            return Response(200, XML, writer.namespace(sku, self._namespace.created_at_ms))
        raise self._namespace.not_found(request.path)

    async def _list(self, request: Request, writer: Writer) -> Response:
        skip = _number(request, "$skip", 0, _SKIP_MAX)
        top = min(_number(request, "$top", PAGE_COUNT_DEFAULT, _SKIP_MAX), PAGE_COUNT_MAX)
        queues: list[tuple[Entity, EntityStatistics]] = [
            (entity, await self._namespace.statistics(entity))
            for entity in self._namespace.page(skip, top)
        ]
        has_more = bool(queues) and skip + len(queues) < self._namespace.count()
        next_skip = skip + len(queues) if has_more else 0
        return Response(200, XML, writer.queues(queues, skip, next_skip, top))

    async def _queue(self, request: Request, version: str, writer: Writer) -> Response:
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
                return Response(200, XML)
        return _method_not_allowed("GET, HEAD, PUT, DELETE")

    async def _create(self, request: Request, version: str) -> Entity:
        described = read_description(request.body)
        spec = self._namespace.new_spec()
        is_too_old = version < PARTITIONING_SINCE
        if is_too_old:
            spec.is_partitioned = False
        fill_spec(spec, described)
        self._date_rules(spec.access_rules, [])
        if is_too_old and self._namespace.settings.tier.is_partitioned(spec.is_partitioned):
            raise Refused(
                INVALID_ARGUMENT,
                f"api-version {version} cannot create a partitioned entity; "
                f"use {PARTITIONING_SINCE} or later.",
            )
        return await self._namespace.create_queue(request.path, spec)

    async def _update(self, request: Request) -> Entity:
        if request.headers["if-match"].strip() != "*":
            raise Refused(INVALID_ARGUMENT, "If-Match must be '*': entities have no versions.")
        described = read_description(request.body)
        entity = self._namespace.get(request.path)
        return await self._namespace.update_queue(
            request.path, self._updated_spec(entity, described)
        )

    def _updated_spec(self, entity: Entity, described: Described) -> QueueSpec:
        spec = entity.spec.copy()
        fill_spec(spec, described)
        if described.has("MaxSizeInMegabytes"):
            spec.size_mb = fragment_size_mb(entity, spec.size_mb, self._namespace.settings.tier)
        self._date_rules(spec.access_rules, entity.spec.access_rules)
        return spec

    def _date_rules(self, rules: list[AccessRule], old_rules: list[AccessRule]) -> None:
        old_by_name = {rule.name: rule for rule in old_rules}
        now_ms = self._clock.now_ms()
        for rule in rules:
            old = old_by_name.get(rule.name)
            rule.created_at_ms = now_ms if old is None else old.created_at_ms
            is_same = old is not None and old.is_same_as(rule)
            rule.modified_at_ms = old.modified_at_ms if old is not None and is_same else now_ms

    async def _shown(self, status: int, entity: Entity, writer: Writer) -> Response:
        statistics = await self._namespace.statistics(entity)
        return Response(status, XML, writer.queue(entity, statistics))


def _api_version(request: Request) -> str:
    version = request.query.get("api-version", CURRENT_VERSION)
    if not _VERSION.fullmatch(version):
        raise Refused(
            INVALID_ARGUMENT, f"api-version is '{version[:60]}'; it must look like 2021-05."
        )
    return version


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query.get(name, str(default))
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= most:
        return int(text)
    raise Refused(INVALID_ARGUMENT, f"{name} is '{text[:60]}'; it must be from 0 to {most}.")


def _method_not_allowed(allowed: str) -> Response:
    response = Response(405, "text/plain; charset=utf-8", f"Use one of {allowed}.\n")
    response.headers.append(("Allow", allowed))
    return response
