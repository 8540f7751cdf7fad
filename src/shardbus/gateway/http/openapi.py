"""The OpenAPI 3.1 description of the JSON API, made from the table of its routes."""

from __future__ import annotations

from typing import Final, final

from shardbus import __version__
from shardbus.core.access import right_names
from shardbus.gateway.http.documents import SCHEMAS, Document, reference

_REFUSALS: Final = {
    "400": "Something in the request cannot be read.",
    "401": "There is no token, or it does not give the right.",
    "404": "There is no such thing.",
    "405": "The API is for reading.",
    "503": "Try again.",
}
_SECURITY: Final = "sas"


@final
class Parameter:
    """Something that varies in a request; a number from 0 to `most` when that is given."""

    def __init__(self, name: str, place: str, text: str, *, most: int = 0) -> None:
        self.name = name
        self.place = place
        self.text = text
        self.most = most

    def to_document(self) -> Document:
        schema: Document = {"type": "string"}
        if self.most:
            schema = {"type": "integer", "minimum": 0, "maximum": self.most}
        return {
            "name": self.name,
            "in": self.place,
            "required": self.place == "path",
            "description": self.text,
            "schema": schema,
        }


@final
class Route:
    """One path of the API. `{name}` in it stands for an entity, slashes and all.

    `right`, or `otherwise`, is needed on that entity, or on the namespace where there is none; with
    neither the path is open. `schema` names what is answered, None for this description itself.
    """

    def __init__(
        self,
        path: str,
        summary: str,
        schema: str | None,
        *,
        right: int = 0,
        otherwise: int = 0,
        parameters: tuple[Parameter, ...] = (),
    ) -> None:
        self.path = path
        self.summary = summary
        self.schema = schema
        self.right = right
        self.otherwise = otherwise
        self.parameters = parameters
        self._before, self._variable, self._after = path.partition("{name}")

    def match(self, path: str) -> str | None:
        """The entity's name in a path, empty where the route has none; None for another path."""
        if not self._variable:
            return "" if path == self.path else None
        size_min = len(self._before) + len(self._after)
        if len(path) <= size_min or not path.startswith(self._before):
            return None
        if not path.endswith(self._after):
            return None
        return path[len(self._before) : len(path) - len(self._after)]


def openapi_document(routes: list[Route]) -> Document:
    """The description of these routes."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Shardbus",
            "version": __version__,
            "description": "What the management dialect of the bus does not say. Members may be "
            "added within v1; none is removed or changed.",
        },
        "paths": {route.path: {"get": _operation(route)} for route in routes},
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                _SECURITY: {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "SharedAccessSignature sr=...&sig=...&se=...&skn=...",
                }
            },
        },
    }


def _operation(route: Route) -> Document:
    schema: Document = {"type": "object"} if route.schema is None else reference(route.schema)
    responses: Document = {"200": _response("What was asked for.", schema)}
    for status, text in _REFUSALS.items():
        responses[status] = _response(text, reference("Error"))
    return {
        "operationId": _identifier(route),
        "summary": route.summary,
        "description": _who(route),
        "parameters": [parameter.to_document() for parameter in route.parameters],
        "security": [{_SECURITY: []}] if route.right else [],
        "responses": responses,
    }


def _response(text: str, schema: Document) -> Document:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _identifier(route: Route) -> str:
    return "show" + ("OpenApi" if route.schema is None else route.schema)


def _who(route: Route) -> str:
    if not route.right:
        return "Open to everybody."
    names = " or ".join(right_names(route.right | route.otherwise))
    where = "entity" if "{name}" in route.path else "namespace"
    return f"Needs {names} on the {where}."
