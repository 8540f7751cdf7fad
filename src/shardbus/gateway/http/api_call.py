"""What a client asks of the JSON API, read member by member; whatever is amiss is named."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeGuard, final

from shardbus.core.errors import Refused
from shardbus.gateway.http.api_route import Match, Route
from shardbus.gateway.http.documents_schema import Document, Schema
from shardbus.gateway.http.message import Request
from shardbus.gateway.http.refusal import invalid, shown

TEXT_CHARACTERS_MAX: Final = 64 * 1024
"""Of a text for which its reader gives no other bound."""
INTEGER_MAX: Final = 2**63 - 1

_NUMBER_DIGITS_MAX: Final = 19


@final
class Members:
    """The members of a JSON object in a request; Refused, by name, for one that is not as it
    should be.

    `what` is how the object is called in a refusal. A member without a default must be there.
    """

    def __init__(self, value: object, what: str, known: Collection[str]) -> None:
        """Refused when the value is no object, or has a member that is not known."""
        self._what = what
        self._values: dict[str, object] = {}
        if not isinstance(value, dict):
            raise invalid(f"{what} must be a JSON object.")
        for name, member in value.items():
            if name not in known:
                members = ", ".join(known) or "no members"
                raise invalid(f"{what} has the member {shown(str(name))}; it may have: {members}.")
            self._values[str(name)] = member

    def has(self, name: str) -> bool:
        return name in self._values

    def value(self, name: str) -> object:
        """A member of any kind; None when it is not there."""
        return self._values.get(name)

    def text(
        self, name: str, default: str | None = None, *, most: int = TEXT_CHARACTERS_MAX
    ) -> str:
        """At most so many characters."""
        value = self._given(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return self._checked_text(name, value, most)

    def integer(
        self, name: str, default: int | None = None, most: int = INTEGER_MAX, *, least: int = 0
    ) -> int:
        value = self._given(name, default)
        if not _is_integer(value) or not least <= value <= most:
            raise self._wrong(name, f"a whole number from {least} to {most}")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._given(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def choice(self, name: str, words: Sequence[str], default: str | None = None) -> str:
        """One of these words."""
        value = self._given(name, default)
        if not isinstance(value, str) or value not in words:
            raise self._wrong(name, "one of " + ", ".join(words))
        return value

    def texts(self, name: str, default: list[str] | None = None, *, most: int) -> list[str]:
        """A list of at most so many texts."""
        values = self._list(name, default, most)
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(values):
            raise self._wrong(name, "a list of texts")
        return [self._checked_text(name, text, TEXT_CHARACTERS_MAX) for text in texts]

    def integers(self, name: str, default: list[int] | None = None, *, most: int) -> list[int]:
        """A list of at most so many whole numbers from 0 to INTEGER_MAX."""
        values = self._list(name, default, most)
        numbers = [value for value in values if _is_integer(value) and 0 <= value <= INTEGER_MAX]
        if len(numbers) < len(values):
            raise self._wrong(name, "a list of whole numbers")
        return numbers

    def objects(self, name: str, known: Collection[str], *, most: int) -> list[Members]:
        """A list of at most so many objects, each with members that are known."""
        return [
            Members(value, f"{name}[{index}] of {self._what}", known)
            for index, value in enumerate(self._list(name, None, most))
        ]

    def _given(self, name: str, default: object) -> object:
        if name in self._values:
            return self._values[name]
        if default is None:
            raise invalid(f"{self._what} has no member {name}.")
        return default

    def _list(self, name: str, default: object, most: int) -> list[object]:
        value = self._given(name, default)
        if not isinstance(value, list) or len(value) > most:
            raise self._wrong(name, f"a list of at most {most}")
        return value

    def _checked_text(self, name: str, text: str, most: int) -> str:
        if len(text) > most:
            raise self._wrong(name, f"of at most {most} characters")
        if not is_text(text):
            raise self._wrong(name, "text without half a surrogate pair")
        return text

    def _wrong(self, name: str, wanted: str) -> Refused:
        return invalid(f"{name} of {self._what} must be {wanted}.")


@final
class Query:
    """What stands behind the question mark."""

    def __init__(self, values: Mapping[str, str], known: Collection[str]) -> None:
        """Refused for a parameter that is not known: a misspelt one must not go unnoticed."""
        for name in values:
            if name not in known:
                names = ", ".join(sorted(known)) or "none"
                raise invalid(f"The parameter {shown(name)} is not known here; known: {names}.")
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
class Call:
    """One request that its sender may make, matched and read.

    `name`, `rule`, `pipeline` and `backup` are what the variables of the path stand for; `body`
    has the members of the route's schema and none where it takes no body.
    """

    def __init__(self, request: Request, match: Match, query: Query, body: Members) -> None:
        self.request = request
        self.name = match.name
        self.rule = match.rule
        self.pipeline = match.pipeline
        self.backup = match.backup
        self.query = query
        self.body = body


@final
class Reply:
    """An answer with another status than 200."""

    def __init__(self, status: int, document: Document) -> None:
        self.status = status
        self.document = document


@final
class Written:
    """An answer that is the same for everybody and was written before, as JSON."""

    def __init__(self, text: bytes) -> None:
        self.text = text


Answer = Callable[[Call], Awaitable[Document | Reply | Written]]
"""What is answered, with 200 unless it says otherwise; Refused or Unavailable is raised."""


class Group(Protocol):
    """A part of the API: rows of the table, and the schemas they name."""

    def routes(self) -> list[tuple[Route, Answer]]: ...

    def schemas(self) -> dict[str, Schema]: ...


def read_call(request: Request, route: Route, match: Match, schemas: Mapping[str, Schema]) -> Call:
    """The request, as far as its route's schemas can tell; Refused when it is not as they say."""
    query = Query(request.query, route.query_names)
    if route.body is None:
        return Call(request, match, query, Members({}, "The body", ()))
    known = member_names(schemas[route.body])
    return Call(request, match, query, Members(_read_body(request.body), "The body", known))


def member_names(schema: Schema) -> list[str]:
    """The members that an object of this schema may have."""
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, dict) else []


def is_text(text: str) -> bool:
    """Whether a text can be stored and sent: JSON's escapes can spell half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_body(body: bytes) -> object:
    if not body:
        return {}
    try:
        value: object = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise invalid("The body is not JSON in UTF-8, or is nested too deeply.") from error
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
