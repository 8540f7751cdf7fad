"""The OpenAPI 3.1 description of the JSON API, made from the table of its routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shardbus.core.namespace.access import right_names
from shardbus.gateway.http.api.call import Row
from shardbus.gateway.http.api.documents import Error
from shardbus.gateway.http.api.route import Route
from shardbus.gateway.http.document import Schema, Shape, components, example_of, is_needed

_REFUSALS: Final = {
    "400": "The request is invalid.",
    "401": "The token is missing, or does not give the right.",
    "403": "A quota is exceeded.",
    "404": "The resource does not exist.",
    "405": "The path has other methods; the header Allow lists them.",
    "408": "There was no answer in time.",
    "409": "The request conflicts with what already exists.",
    "410": "A lock has been lost.",
    "413": "The body, or a message in it, is too large.",
    "421": "The bus uses the public development key, and refuses the name in the header Host.",
    "503": "The request was not done: try again.",
    "504": "The request may or may not have been done: check before you repeat it.",
}
# The failures of any request; routes that only read have no others.
_OF_READING: Final = ("400", "401", "404", "405", "408", "413", "421", "503", "504")
_SECURITY: Final = "sas"


def openapi_document(rows: Sequence[Row]) -> Schema:
    """The description of these rows, and of their request and answer types."""
    known = list(dict.fromkeys((Error, *_shapes(rows))))
    references, schemas = components(known)
    shapes = dict(zip(known, references, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for row in rows:
        route = row.route
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(row, shapes, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Shardbus",
            # The version of the API: that of the bus is not public.
            "version": "1",
            "description": "Entities, messages and the state of the bus. Members may be added "
            "within v1; none is removed or changed.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                _SECURITY: {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "SharedAccessSignature sr=...&sig=...&se=...&skn=..., or "
                    "Bearer and a token of the issuer.",
                }
            },
        },
    }


def _shapes(rows: Sequence[Row]) -> list[Shape]:
    found = [(row.route.shape, row.body, row.route.shape_of_503) for row in rows]
    return [shape for shapes in found for shape in shapes if shape is not None]


def _operation(
    row: Row, references: Mapping[Shape, Schema], schemas: Mapping[str, Schema]
) -> Schema:
    route = row.route
    operation: dict[str, object] = {
        "operationId": route.identifier,
        "summary": route.summary,
        "description": _who(route),
        "parameters": [parameter.to_document() for parameter in route.parameters],
        "security": [{_SECURITY: []}] if route.right or route.takes_any_token else [],
        "responses": _responses(route, references),
    }
    if row.body is not None:
        reference = references[row.body]
        operation["requestBody"] = {
            # If no member is required, a missing body means an empty object.
            "required": is_needed(reference, schemas),
            "content": {
                "application/json": {
                    "schema": reference,
                    "example": example_of(reference, schemas),
                }
            },
        }
    if route.takes_bytes:
        octets = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": octets},
        }
    return operation


def _responses(route: Route, references: Mapping[Shape, Schema]) -> Schema:
    schema: Schema = {"type": "object"} if route.shape is None else references[route.shape]
    answer = _response("The requested document.", schema)
    if route.content_type != "application/json":
        lines = {"schema": {"type": "string"}}
        answer = {"description": "The lines.", "content": {route.content_type: lines}}
    responses: dict[str, Schema] = {str(route.status): answer}
    if route.has_etag:
        responses["304"] = {"description": "Nothing has changed since If-None-Match."}
    for status, text in _REFUSALS.items():
        if route.method != "GET" or status in _OF_READING:
            shape = route.shape_of_503 if status == "503" else None
            responses[status] = _response(text, references[shape or Error])
    return responses


def _response(text: str, schema: Schema) -> Schema:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _who(route: Route) -> str:
    if route.takes_any_token:
        return "Needs any valid token."
    if not route.right:
        return "Open to everybody."
    needed = " and ".join(right_names(route.right))
    if route.otherwise:
        needed += " or " + " and ".join(right_names(route.otherwise))
    where = "entity" if "{name}" in route.path else "namespace"
    return f"Needs {needed} on the {where}."
