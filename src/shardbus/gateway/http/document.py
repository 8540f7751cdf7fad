"""The documents of the JSON API: a type is the reader, the writer, the schema and the example.

An answer is a `Struct` with all its members except those that are UNSET. A request is a `Body`:
unknown members are refused, and members with a default may be left out.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from types import UnionType
from typing import Annotated, Final, Generic, Literal, TypeAlias, TypeVar, final, get_args

import msgspec
from msgspec import Meta, Struct, UnsetType

from shardbus.gateway.http.server.refusal import invalid, shown

Schema = Mapping[str, object]
Shape = type[Struct] | UnionType

TEXT_CHARACTERS_MAX: Final = 64 * 1024
"""The maximum length of a text in a request without a bound of its own."""
INTEGER_MAX: Final = 2**63 - 1

SCHEMAS_KEPT_MAX: Final = 256
REFERENCE: Final = "#/components/schemas/{name}"

T = TypeVar("T")
B = TypeVar("B", bound=Struct)

Maybe: TypeAlias = T | UnsetType
"""A member that may be left out."""
Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
Count = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
Json = Annotated[object, Meta(extra_json_schema={"description": "Any JSON."})]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

_PLACE: Final = re.compile(r"(?P<wrong>.*) - at `\$(?P<place>[^`]*)`", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MISSING: Final = re.compile(r"Object missing required field `(.+)`", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_OTHER_WORD: Final = re.compile(r"Invalid enum value '(.*)'", re.DOTALL)
_SIMPLE: Final = {
    "object": "a JSON object",
    "boolean": "true or false",
    "number": "a number",
    "null": "null",
}


class Body(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    pass


def told(text: str) -> Meta:
    """The description of a member."""
    return Meta(description=text)


def one_of(*words: str) -> Meta:
    """A member of an answer that is one of these words."""
    return Meta(extra_json_schema={"enum": list(words)})


def given(value: T | None) -> T | UnsetType:
    """A member that is left out when it has no value."""
    return msgspec.UNSET if value is None else value


def made(shape: type[B], members: Mapping[str, object]) -> B:
    """A document of the bus's own values, which are not checked against the bounds."""
    return shape(**members)


def write(document: object) -> bytes:
    """A document as JSON."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        # Names of files need not be text; an escape in JSON can represent anything.
        return json.dumps(msgspec.to_builtins(document)).encode()


def components(shapes: Sequence[Shape]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """The references of these types, and all schemas that they and their members use."""
    # The library does not accept a union of types without a tag, which a reader would need.
    parts = [get_args(shape) or (shape,) for shape in shapes]
    found, schemas = msgspec.json.schema_components(
        [part for several in parts for part in several], ref_template=REFERENCE
    )
    left = iter(found)
    references = [[next(left) for _ in several] for several in parts]
    return tuple(one[0] if len(one) == 1 else {"anyOf": one} for one in references), dict(schemas)


def reference(shape: Shape) -> dict[str, object]:
    """The reference to a type from where the library does not see it."""
    [found], _ = components([shape])
    return dict(found)


def any_of(shapes: Iterable[type[Struct]]) -> Shape:
    """A union of types that are known only at run time."""
    return reduce(operator.or_, shapes)


def inlined(shape: Shape) -> dict[str, object]:
    """The schema of a union, for where the schemas of its parts cannot be referred to."""
    [schema], schemas = components([shape])
    kinds = schema["anyOf"]
    assert isinstance(kinds, list)
    return {"anyOf": [resolved(kind, schemas) for kind in kinds]}


def inlined_members(schema: Schema, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """The members of a schema that refer to no other schema."""
    found: dict[str, Schema] = {}
    for name, member in _members(resolved(schema, schemas)).items():
        own = {key: value for key, value in member.items() if key != "$ref"}
        found[name] = {**resolved(member, schemas), **own}
    return found


def resolved(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """The schema that a reference means."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    return schemas[reference.rpartition("/")[2]]


def is_needed(schema: Schema, schemas: Mapping[str, Schema]) -> bool:
    """Whether a document of this schema has required members."""
    return bool(_first(schema, schemas).get("required"))


def example_of(schema: Schema, schemas: Mapping[str, Schema]) -> object:
    """A document of a schema: the first example of each member, and what else is required."""
    examples = schema.get("examples", schema.get("enum"))
    if isinstance(examples, list):
        return examples[0]
    schema = _first(schema, schemas)
    if schema.get("type") == "array":
        return [example_of(_part(schema, "items"), schemas)]
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    found = {}
    for name, member in _members(schema).items():
        if name in names or "examples" in member:
            found[name] = example_of(member, schemas)
    return found


@final
class BodyReader(Generic[B]):
    """Reads documents of one type; Refused, with the error and its place, for any other."""

    def __init__(self, shape: type[B], what: str = "the body") -> None:
        """`what` is the name of the document in a refusal."""
        self._decoder = msgspec.json.Decoder(shape)
        self._shape = shape
        self._what = what

    def read(self, content: bytes) -> B:
        """Read a document; no content means the same as an empty object."""
        try:
            return self._decoder.decode(content or b"{}")
        except msgspec.ValidationError as error:
            raise invalid(refusal_text(str(error), self._shape, self._what)) from error
        except (ValueError, RecursionError) as error:
            raise invalid(
                f"{_begun(self._what)} is not JSON in UTF-8, spells half a surrogate pair, or is "
                f"nested too deeply: {error}."
            ) from error


def converted(value: object, shape: type[B], what: str) -> B:
    """A decoded JSON value as a document of a type; Refused when it does not fit."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise invalid(refusal_text(str(error), shape, what)) from error


@final
class KindReader(Generic[B]):
    """Reads documents of several types, chosen by their member `kind`; the first by default."""

    def __init__(self, kinds: Mapping[str, type[B]], what: str = "the body") -> None:
        words = Literal[tuple(kinds)]  # type: ignore[valid-type]  # known when it runs
        self._kind = msgspec.defstruct("Kind", [("kind", words, next(iter(kinds)))])
        self._kinds = kinds
        self._what = what

    def read(self, content: bytes) -> B:
        kind = BodyReader(self._kind, self._what).read(content)
        return BodyReader(self._shape(kind), self._what).read(content)

    def convert(self, value: object) -> B:
        kind = converted(value, self._kind, self._what)
        return converted(value, self._shape(kind), self._what)

    def _shape(self, kind: Struct) -> type[B]:
        return self._kinds[msgspec.structs.asdict(kind)["kind"]]


def refusal_text(message: str, shape: type[Struct], what: str) -> str:
    """The library's error about a document, in terms of its schema."""
    placed = _PLACE.fullmatch(message)
    wrong, place = (message, "") if placed is None else (placed["wrong"], placed["place"])
    schema, schemas = _schema_of(shape)
    found = _at(schema, place, schemas)
    where = f"{place.removeprefix('.')} of {what}" if place else _begun(what)
    missing, unknown = _MISSING.fullmatch(wrong), _UNKNOWN.fullmatch(wrong)
    if missing is not None:
        return f"{where} has no member {missing[1]}."
    if unknown is not None:
        known = ", ".join(_members(resolved(found, schemas))) or "no members"
        return f"{where} has the member {shown(unknown[1])}; it may have: {known}."
    word = _OTHER_WORD.fullmatch(wrong)
    is_told = "" if word is None else f" is {shown(word[1])}; it"
    return f"{where}{is_told} must be {_wanted(found)}."


@lru_cache(maxsize=SCHEMAS_KEPT_MAX)
def _schema_of(shape: type[Struct]) -> tuple[Schema, dict[str, Schema]]:
    [schema], schemas = components([shape])
    return schema, schemas


def _at(schema: Schema, place: str, schemas: Mapping[str, Schema]) -> Schema:
    for name, index in _STEP.findall(place):
        schema = resolved(schema, schemas)
        if name:
            schema = _members(schema).get(name, {})
        else:
            schema = _part(schema, "additionalProperties" if index == "..." else "items")
    return schema


def _first(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """The schema itself, or the first of its alternatives."""
    kinds = schema.get("anyOf")
    return resolved(kinds[0] if isinstance(kinds, list) else schema, schemas)


def _members(schema: Schema) -> Mapping[str, Schema]:
    members = schema.get("properties")
    return members if isinstance(members, dict) else {}


def _part(schema: Schema, name: str) -> Schema:
    part = schema.get(name)
    return part if isinstance(part, dict) else {}


def _wanted(schema: Schema) -> str:
    """What a schema requires, as text."""
    kinds = schema.get("anyOf")
    if isinstance(kinds, list):
        return " or ".join(dict.fromkeys(_wanted(kind) for kind in kinds))
    words = schema.get("enum")
    if isinstance(words, list):
        return "one of " + ", ".join(map(str, words))
    kind = "object" if "$ref" in schema else str(schema.get("type"))
    if kind == "integer":
        least, most = schema.get("minimum", -INTEGER_MAX), schema.get("maximum", INTEGER_MAX)
        return f"a whole number from {least} to {most}"
    if kind == "string":
        return "a text" + _bounds(schema.get("minLength"), schema.get("maxLength"), "characters")
    if kind == "array":
        items = _part(schema, "items").get("type")
        noun = {"string": "texts", "integer": "whole numbers"}.get(str(items), "objects")
        return "a list" + _bounds(schema.get("minItems"), schema.get("maxItems"), noun)
    return _SIMPLE.get(kind, "JSON whose numbers are not too large")


def _bounds(least: object, most: object, of_what: str) -> str:
    if least is None:
        return f" of at most {most} {of_what}" if most is not None else ""
    return f" of {least} to {most} {of_what}"


def _begun(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
