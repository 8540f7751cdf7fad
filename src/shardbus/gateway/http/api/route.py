"""One row of the API's table: a method and a path, who may use it, what goes in and comes out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import UnionType
from typing import Final, final
from urllib.parse import quote, unquote

from shardbus.gateway.http.document import Schema, Shape

PREFIX: Final = "api/v1/"

_VARIABLES: Final = re.compile(r"\{(name|rule|pipeline|backup)\}")
# An entity's name takes slashes and all that stands between; others are one segment.
_PATTERNS: Final = {
    "name": "(?P<name>.+)",
    "rule": "(?P<rule>[^/]+)",
    "pipeline": "(?P<pipeline>[^/]+)",
    "backup": "(?P<backup>[^/]+)",
}


@final
class Parameter:
    """Something that varies in a request; a number from `least` to `most` when that is given."""

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
    "name", "path", "The entity; slashes may stand as they are or as %2F.", example="orders"
)
RULE: Final = Parameter("rule", "path", "The name of a rule.", example="reader")
PIPELINE: Final = Parameter("pipeline", "path", "The name of a pipeline.", example="archive")
BACKUP: Final = Parameter("backup", "path", "The name of a backup.", example="nightly")


@final
class Route:
    """A method on a path of the API. `{name}` in it stands for an entity, slashes and all, and
    `{rule}`, `{pipeline}` and `{backup}` for a name without slashes.

    All of `right`, or `otherwise`, is needed on that entity, or on the namespace where there is
    none; with neither the path is open, or with `takes_any_token` to who shows a token that is good
    for anything. `shape` is what is answered, None for the description of the API itself, and
    `shape_of_503` what is while nothing serves, unless that is an Error. With `takes_bytes` what
    is sent are bytes that are no JSON. `identifier` is what generated clients call it; without one
    it is made of the method and `shape`.
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
        """What the variables stand for in a path of `canonical_path`; None for another path."""
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        values = found.groupdict()
        return Match(
            unquote(values.get("name") or ""),
            unquote(values.get("rule") or ""),
            unquote(values.get("pipeline") or ""),
            unquote(values.get("backup") or ""),
        )


@final
class Match:
    """The variables of a path, decoded; empty where the route has none."""

    def __init__(self, name: str, rule: str, pipeline: str = "", backup: str = "") -> None:
        self.name = name
        self.rule = rule
        self.pipeline = pipeline
        self.backup = backup


def canonical_path(raw_segments: Sequence[str]) -> str:
    """A path in which equal segments are spelt alike, and an encoded slash stays in its segment."""
    return "/" + "/".join(quote(unquote(segment), safe="$") for segment in raw_segments)


def _identifier(method: str, shape: Shape | None) -> str:
    verb = {"GET": "show", "PUT": "put", "DELETE": "delete"}.get(method, "do")
    assert not isinstance(shape, UnionType), "what has several types is called by its route"
    return verb + ("OpenApi" if shape is None else shape.__name__)
