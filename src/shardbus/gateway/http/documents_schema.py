"""The words that schemas of the JSON API are made of."""

from __future__ import annotations

from typing import Final

Document = dict[str, object]
Schema = dict[str, object]

TEXT: Final[Schema] = {"type": "string"}
TEXT_OR_NONE: Final[Schema] = {"type": ["string", "null"]}
FLAG: Final[Schema] = {"type": "boolean"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
MOMENT_OR_NEVER: Final[Schema] = {"type": ["string", "null"], "format": "date-time"}
DURATION: Final[Schema] = {
    "type": ["integer", "null"],
    "minimum": 0,
    "description": "Milliseconds; null is for ever.",
}


def described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text}


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def one_of(*words: str) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(words)}


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """What is answered: every member but the optional is always there; later versions may add
    more.
    """
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def body_of(properties: dict[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """What is sent: no member but these, of which some may be left out."""
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }
