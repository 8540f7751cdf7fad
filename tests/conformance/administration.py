"""The Python administration clients, one way to use both, over HTTPS and without TLS."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Final, TypedDict, TypeVar

from azure.core.async_paging import AsyncItemPaged
from azure.core.exceptions import ResourceNotFoundError
from azure.core.paging import ItemPaged
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.core.pipeline.transport import HttpRequest, HttpResponse
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AioAdministrationClient,
)
from azure.servicebus.management import ApiVersion, ServiceBusAdministrationClient

from tests.conformance.variants import Each, Variant
from tests.support.server import Server

T = TypeVar("T")

Administration = ServiceBusAdministrationClient | AioAdministrationClient

SECURE: Final = "https://"
PLAIN: Final = "http://"

_numbers = itertools.count(1)


class WithoutTls(SansIOHTTPPolicy[HttpRequest, HttpResponse]):
    """Sends a request as it is, but not through TLS: the clients have no setting for that."""

    def on_request(self, request: PipelineRequest[HttpRequest]) -> None:
        url = request.http_request.url
        request.http_request.url = url.replace(SECURE, PLAIN, 1)


async def done(value: T | Awaitable[T]) -> T:
    """What a call gives, whichever client was asked."""
    return await value if isinstance(value, Awaitable) else value


async def listed(pages: ItemPaged[T] | AsyncItemPaged[T]) -> list[T]:
    if isinstance(pages, AsyncItemPaged):
        return [item async for item in pages]
    return list(pages)


def said(properties: object) -> dict[str, object]:
    """Everything that the properties of an entity or a rule hold, by name."""
    return {name: value for name, value in vars(properties).items() if not name.startswith("_")}


def counted(properties: object) -> dict[str, object]:
    """What runtime properties tell, by name."""
    names = [name for name, kind in vars(type(properties)).items() if isinstance(kind, property)]
    return {name: getattr(properties, name) for name in names}


def each_administrator(server: Server) -> Each[Administrator]:
    return Each(lambda variant: Administrator(server, variant.sdk), by_sdk=True)


@contextmanager
def each_name(administration: ServiceBusAdministrationClient) -> Iterator[Each[str]]:
    """For every variant a name that nothing else has; what has it at the end is deleted."""
    made: list[str] = []

    def make(_: Variant) -> str:
        made.append(f"administered-{next(_numbers)}")
        return made[-1]

    yield Each(make)
    for name in made:
        for one in (name, f"{name}-queue", f"{name}-topic"):
            with suppress(ResourceNotFoundError):
                administration.delete_queue(one)


class ClientOptions(TypedDict):
    """What both clients are told when they are made."""

    api_version: ApiVersion
    connection_verify: str
    retry_total: int
    logging_policy: WithoutTls | None


class Administrator:
    """Opens clients of one kind."""

    def __init__(self, server: Server, sdk: str = "sync") -> None:
        self._server = server
        self._sdk = sdk

    def open(
        self,
        connection_string: str = "",
        *,
        api_version: ApiVersion = ApiVersion.V2024_05,
        is_plain: bool = False,
    ) -> AbstractAsyncContextManager[Administration]:
        """A client with the server's own key unless told otherwise."""
        text = connection_string or self._server.connection_string
        return self._opened(text, api_version, WithoutTls() if is_plain else None)

    @asynccontextmanager
    async def _opened(
        self, text: str, api_version: ApiVersion, policy: WithoutTls | None
    ) -> AsyncIterator[Administration]:
        # The policy for logging can be replaced, and it sees every request.
        options: ClientOptions = {
            "api_version": api_version,
            "connection_verify": str(self._server.ca_file),
            "retry_total": 0,
            "logging_policy": policy,
        }
        if self._sdk == "aio":
            async with AioAdministrationClient.from_connection_string(text, **options) as client:
                yield client
            return
        with ServiceBusAdministrationClient.from_connection_string(text, **options) as client:
            yield client
