"""One row of the API's table: method and path, required rights, request and answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Final, final
from urllib.parse import quote, unquote

from shardbus.gateway.http.document import Schema, Shape

PREFIX: Final = "api/v1/"

# An entity's name may contain slashes; other variables are one segment, a number has digits only.
_PATTERNS: Final = {
    "name": "(?P<name>.+)",
    "rule": "(?P<rule>[^/]+)",
    "pipeline": "(?P<pipeline>[^/]+)",
    "backup": "(?P<backup>[^/]+)",
    "subscription": "(?P<subscription>[^/]+)",
    "job": "(?P<job>[^/]+)",
    "number": "(?P<number>[0-9]{1,19})",
}
_VARIABLES: Final = re.compile(r"\{(" + "|".join(_PATTERNS) + r")\}")


@final
class Parameter:
    """A variable of a request; a number from `least` to `most` when these are given."""

    def __init__(
        self,
        name: str,
        place: str,
        text: str,
        *,
        least: int = 0,
        most: int = 0,
        example: str | int = "",
    ) -> None:
        self.name = name
        self.place = place
        self.text = text
        self.least = least
        self.most = most
        self.example = example

    def to_document(self) -> Schema:
        schema: dict[str, object] = {"type": "string"}
        if self.most:
            schema = {"type": "integer", "minimum": self.least, "maximum": self.most}
        document: dict[str, object] = {
            "name": self.name,
            "in": self.place,
            "required": self.place == "path",
            "description": self.text,
            "schema": schema,
        }
        if self.example != "":
            document["example"] = self.example
        return document


NAME: Final = Parameter(
    "name", "path", "The entity; slashes may be written as they are or as %2F.", example="orders"
)
RULE: Final = Parameter("rule", "path", "The name of a rule.", example="reader")
PIPELINE: Final = Parameter("pipeline", "path", "The name of a pipeline.", example="archive")
BACKUP: Final = Parameter("backup", "path", "The name of a backup.", example="nightly")
SUBSCRIPTION: Final = Parameter(
    "subscription", "path", "The name of a subscription of the topic.", example="all"
)
JOB: Final = Parameter("job", "path", "The id of a job.", example="20260131-120000-0a1b2c")
NUMBER: Final = Parameter(
    "number", "path", "The sequence number of a message.", least=1, most=2**63 - 1, example=1
)


@final
class Route:
    """A method on a path of the API. `{name}` in it stands for an entity, which may contain
    slashes, and each other variable for a name without slashes, or a number.

    All of `right`, or `otherwise`, is needed on that entity, or on the namespace where there is
    none. Without either the path is open; with `takes_any_token`, to any valid token. `shape` is
    the answer, None for the description of the API itself, and `shape_of_503` the answer while
    nothing serves, if that is not an Error. With `takes_bytes` the request body is not JSON.
    `identifier` is the operation's name in generated clients; by default it is made of the method
    and `shape`. `status` is that of the answer; with `has_etag` it may also be 304.
    `content_type` is that of an answer that is no document.
    """

    def __init__(  # noqa: PLR0913 - a row of the table, by keyword
        self,
        path: str,
        summary: str,
        shape: Shape | None,
        *,
        method: str = "GET",
        takes_bytes: bool = False,
        right: int = 0,
        otherwise: int = 0,
        takes_any_token: bool = False,
        parameters: tuple[Parameter, ...] = (),
        identifier: str = "",
        shape_of_503: Shape | None = None,
        status: int = 200,
        has_etag: bool = False,
        content_type: str = "application/json",
    ) -> None:
        self.path = path
        self.summary = summary
        self.shape = shape
        self.method = method
        self.takes_bytes = takes_bytes
        self.right = right
        self.otherwise = otherwise
        self.takes_any_token = takes_any_token
        self.parameters = parameters
        self.shape_of_503 = shape_of_503
        self.status = status
        self.has_etag = has_etag
        self.content_type = content_type
        self.identifier = identifier or _identifier(method, shape)
        self.query_names = frozenset(one.name for one in parameters if one.place == "query")
        pieces = _VARIABLES.split(path)
        self._pattern = re.compile(
            "".join(
                _PATTERNS[piece] if index % 2 else re.escape(piece)
                for index, piece in enumerate(pieces)
            )
        )
        self.literal_characters = sum(len(piece) for piece in pieces[::2])

    def match(self, path: str) -> Match | None:
        """The variables of a path in the form of `canonical_path`; None for another path."""
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        return Match({name: unquote(text) for name, text in found.groupdict().items()})


@final
class Match:
    """The variables of a path, decoded; empty where the route has none."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.name = values.get("name", "")
        self.rule = values.get("rule", "")
        self.pipeline = values.get("pipeline", "")
        self.backup = values.get("backup", "")
        self.subscription = values.get("subscription", "")
        self.job = values.get("job", "")
        self.number = int(values.get("number", "0"))


def canonical_path(raw_segments: Sequence[str]) -> str:
    """A path in which equal segments are spelt alike, and an encoded slash stays in its segment."""
    return "/" + "/".join(quote(unquote(segment), safe="$") for segment in raw_segments)


def _identifier(method: str, shape: Shape | None) -> str:
    verb = {"GET": "show", "PUT": "put", "PATCH": "change", "DELETE": "delete"}.get(method, "do")
    assert not isinstance(shape, UnionType), (
        "a route with several answer types must have an identifier"
    )
    return verb + ("OpenApi" if shape is None else shape.__name__)
