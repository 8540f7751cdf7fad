"""A parsed request to the JSON API; errors name the invalid part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Generic, Protocol, final

from msgspec import Struct

from shardbus.gateway.http.api.route import Match, Route
from shardbus.gateway.http.document import (
    INTEGER_MAX,
    B,
    Body,
    BodyReader,
    KindReader,
    Shape,
    any_of,
)
from shardbus.gateway.http.server.message import JSON, HttpRequest
from shardbus.gateway.http.server.refusal import invalid, shown

_NUMBER_DIGITS_MAX: Final = 19


@final
class Query:
    """The query parameters."""

    def __init__(self, values: Mapping[str, str], known: Collection[str]) -> None:
        """Refused for an unknown parameter: a misspelt one must not go unnoticed."""
        for name in values:
            if name not in known:
                names = ", ".join(sorted(known)) or "none"
                raise invalid(
                    f"The parameter {shown(name)} is not known here; the parameters are: {names}."
                )
        self._values = values

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def integer(self, name: str, default: int, most: int = INTEGER_MAX, *, least: int = 0) -> int:
        if name not in self._values:
            return default
        text = self._values[name]
        is_number = text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX
        if is_number and least <= int(text) <= most:
            return int(text)
        raise invalid(f"{name} is {shown(text)}; it must be from {least} to {most}.")


@final
class Call(Generic[B]):
    """One authorised request, matched and parsed.

    `body` is the parsed body; the other attributes are the variables of the path.
    """

    def __init__(self, request: HttpRequest, match: Match, query: Query, body: B) -> None:
        self.request = request
        self.name = match.name
        self.rule = match.rule
        self.pipeline = match.pipeline
        self.backup = match.backup
        self.subscription = match.subscription
        self.job = match.job
        self.number = match.number
        self.query = query
        self.body = body


@final
class Reply:
    """An answer with a status other than 200."""

    def __init__(self, status: int, document: Struct) -> None:
        self.status = status
        self.document = document


@final
class Written:
    """An answer that was encoded before, by default as JSON."""

    def __init__(
        self,
        text: bytes,
        *,
        status: int = 200,
        content_type: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.text = text
        self.status = status
        self.content_type = content_type
        self.headers = headers


Answer = Struct | Reply | Written
"""The answer, with status 200 unless it says otherwise; Refused or Unavailable is raised."""


@final
class Nothing(Body, kw_only=True, frozen=True):
    """The body of a request that has none."""


@final
class Row:
    """One row of the API's table: a route, its body, and its handler.

    `body` is None where no JSON is accepted.
    """

    def __init__(
        self,
        route: Route,
        body: Shape | None,
        respond: Callable[[HttpRequest, Match], Awaitable[Answer]],
    ) -> None:
        self.route = route
        self.body = body
        self.respond = respond


class Group(Protocol):
    """A part of the API."""

    def rows(self) -> list[Row]: ...


def shows(route: Route, answer: Callable[[Call[Nothing]], Awaitable[Answer]]) -> Row:
    """A row without a request document."""

    async def respond(request: HttpRequest, match: Match) -> Answer:
        query = Query(request.query, route.query_names)
        return await answer(Call(request, match, query, Nothing()))

    return Row(route, None, respond)


def takes(route: Route, body: type[B], answer: Callable[[Call[B]], Awaitable[Answer]]) -> Row:
    """A row with a request document of this type."""
    reader = BodyReader(body)

    async def respond(request: HttpRequest, match: Match) -> Answer:
        query = Query(request.query, route.query_names)
        return await answer(Call(request, match, query, reader.read(request.body)))

    return Row(route, body, respond)


def takes_kinds(
    route: Route,
    kinds: Mapping[str, type[B]],
    answer: Callable[[Call[B]], Awaitable[Answer]],
) -> Row:
    """A row with a request document of one of these types, chosen by its member `kind`."""
    reader = KindReader(kinds)

    async def respond(request: HttpRequest, match: Match) -> Answer:
        query = Query(request.query, route.query_names)
        return await answer(Call(request, match, query, reader.read(request.body)))

    return Row(route, any_of(kinds.values()), respond)
