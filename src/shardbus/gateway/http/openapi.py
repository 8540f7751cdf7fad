"""The OpenAPI 3.1 description of the JSON API, made from the table of its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardbus.core.access import right_names
from shardbus.gateway.http.api_examples import BODIES
from shardbus.gateway.http.api_route import Route
from shardbus.gateway.http.documents_schema import Document, Schema, reference

_REFUSALS: Final = {
    "400": "Something in the request cannot be read.",
    "401": "There is no token, or it does not give the right.",
    "403": "A quota is used up.",
    "404": "There is no such thing.",
    "405": "The path has other methods; Allow names them.",
    "408": "There was no answer in time.",
    "409": "It collides with what is already there.",
    "410": "A lock has been lost.",
    "413": "The body, or a message in it, is too large.",
    "421": "The bus has the public key, and does not answer to the name in Host.",
    "503": "It was not done: try again.",
    "504": "It may or may not have been done: look before you do it again.",
}
# What any request can be told; who only reads is spared the rest.
_OF_READING: Final = ("400", "401", "404", "405", "408", "413", "421", "503", "504")
_SECURITY: Final = "sas"


def openapi_document(routes: list[Route], schemas: Mapping[str, Schema]) -> Document:
    """The description of these routes, which refer to these schemas."""
    paths: dict[str, Document] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Shardbus",
            # Of the API: which version of the bus this is, is not for everybody.
            "version": "1",
            "description": "What the management dialect of the bus does not say. Members may be "
            "added within v1; none is removed or changed.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(schemas),
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


def _operation(route: Route, schemas: Mapping[str, Schema]) -> Document:
    operation: Document = {
        "operationId": route.identifier,
        "summary": route.summary,
        "description": _who(route),
        "parameters": [parameter.to_document() for parameter in route.parameters],
        "security": [{_SECURITY: []}] if route.right or route.takes_any_token else [],
        "responses": _responses(route),
    }
    if route.body is not None:
        operation["requestBody"] = {
            # Without a member that is required nothing at all means the same as an empty object.
            "required": bool(schemas[route.body].get("required")),
            "content": {"application/json": _content(route.body)},
        }
    if route.takes_bytes:
        octets: Document = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": octets},
        }
    return operation


def _content(body: str) -> Document:
    content: Document = {"schema": reference(body)}
    if body in BODIES:
        content["example"] = BODIES[body]
    return content


def _responses(route: Route) -> Document:
    schema: Document = {"type": "object"} if route.schema is None else reference(route.schema)
    responses: Document = {"200": _response("What was asked for.", schema)}
    for status, text in _REFUSALS.items():
        if route.method != "GET" or status in _OF_READING:
            name = route.schema_of_503 if status == "503" else "Error"
            responses[status] = _response(text, reference(name))
    return responses


def _response(text: str, schema: Document) -> Document:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _who(route: Route) -> str:
    if route.takes_any_token:
        return "Needs a token, whatever that is for."
    if not route.right:
        return "Open to everybody."
    needed = " and ".join(right_names(route.right))
    if route.otherwise:
        needed += " or " + " and ".join(right_names(route.otherwise))
    where = "entity" if "{name}" in route.path else "namespace"
    return f"Needs {needed} on the {where}."
