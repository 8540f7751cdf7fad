"""The options that define a pipeline, and the resulting request to the API.

They are derived from the members of the kinds of pipelines; a member of several kinds is one
option.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Final, final

import click
import msgspec
import msgspec.inspect
from msgspec import Struct
from msgspec.inspect import BoolType, Field, IntType, LiteralType, Metadata, StructType

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.completion import complete_entity
from shardbus.app.cli.failures import Usage
from shardbus.app.pipelines.definition import KINDS

_KIND: Final = "kind"
_DEFAULT_KIND: Final = next(iter(KINDS))


@final
class _Member:
    """A member of definitions, as a command-line option."""

    def __init__(self, field: Field) -> None:
        self.name = field.encode_name
        self.field = field
        self.type, self.words = _plain(field.type)
        self.option = str(self.words.get("option") or self.name)
        self.choices = [str(word) for word in self._values() if word]

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.type, StructType)

    @property
    def parameter(self) -> str:
        """The parameter name in click."""
        return f"{self.option}_" if self.is_mapping else self.option

    def to_option(self) -> click.Option:
        flag = "--" + self.option.replace("_", "-")
        text = str(self.words.get("help", ""))
        metavar = str(self.words.get("metavar", "")) or None
        if isinstance(self.type, BoolType):
            if self.field.default is True:
                return click.Option([f"{flag}/--no-{flag[2:]}"], default=None, help=text)
            return click.Option([flag], is_flag=True, help=text)
        return click.Option(
            [flag, self.parameter],
            required=self.field.required,
            multiple=self.is_mapping,
            type=self._type(),
            metavar=metavar,
            help=text,
            shell_complete=complete_entity if self.name == "entity" else None,
        )

    def _type(self) -> click.Choice[str] | click.IntRange | None:
        if self.choices:
            return click.Choice(self.choices)
        return click.IntRange(0) if isinstance(self.type, IntType) else None

    def _values(self) -> Sequence[object]:
        return self.type.values if isinstance(self.type, LiteralType) else ()


def definition_options() -> list[click.Option]:
    """The options of all kinds, and then those of each."""
    kinds = click.Option(
        ["--kind"],
        type=click.Choice(list(KINDS)),
        help=f"{_told_kinds()}  [default: {_DEFAULT_KIND}]",
    )
    return [kinds, *(member.to_option() for member in _members().values())]


def file_keys(kind: str) -> dict[str, str]:
    """The members of a kind by their keys in set-up files, which are the options' names."""
    names = {field.encode_name for field in _fields(KINDS[kind])}
    return {
        member.option.replace("_", "-"): name
        for name, member in _members().items()
        if name in names
    }


def usual_members(kind: str) -> dict[str, object]:
    """The default of each member that has one."""
    return {
        field.encode_name: msgspec.to_builtins(field.default)
        for field in _fields(KINDS[kind])
        if field.default is not msgspec.NODEFAULT
    }


def wanted_definition(
    name: str, options: Mapping[str, str | int | bool | tuple[str, ...] | None]
) -> Document:
    """The request to the API; Usage when an option is invalid."""
    wanted: Document = {}
    kind = options.get(_KIND)
    if isinstance(kind, str):
        wanted[_KIND] = kind
    for member in _members().values():
        value = options.get(member.parameter)
        if isinstance(value, tuple):
            if value:
                wanted[member.name] = dict(_pair(text, member.option) for text in value)
        elif value is not None and not (value is False and member.field.default is False):
            wanted[member.name] = value
    if wanted.get(_KIND, _DEFAULT_KIND) == _DEFAULT_KIND:
        wanted.setdefault("path", name)
    return wanted


def _told_kinds() -> str:
    told = ((kind, inspect.getdoc(shape) or "") for kind, shape in KINDS.items())
    return " ".join(f"{kind}: {text[:1].lower()}{text[1:]}" for kind, text in told)


def _members() -> dict[str, _Member]:
    """By name; members of all kinds come first."""
    found: dict[str, _Member] = {}
    fields = [_fields(kind) for kind in KINDS.values()]
    shared = set.intersection(*({field.encode_name for field in one} for one in fields))
    for is_shared in (True, False):
        for field in (field for one in fields for field in one):
            if field.encode_name == _KIND or (field.encode_name in shared) is not is_shared:
                continue
            member = _Member(field)
            known = found.setdefault(member.name, member)
            known.words = {**member.words, **known.words}
            known.choices += [word for word in member.choices if word not in known.choices]
    return found


def _fields(kind: type[Struct]) -> tuple[Field, ...]:
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, StructType)
    return described.fields


def _plain(described: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, dict[str, object]]:
    """A type without its annotations, and the annotations for the command line."""
    if isinstance(described, Metadata):
        return described.type, dict(described.extra or {})
    return described, {}


def _pair(text: str, option: str) -> tuple[str, str]:
    target, separator, source = text.partition("=")
    if not target or not separator:
        raise Usage(f"--{option} {text!r} must be COLUMN=SOURCE, as in body=payload")
    return target, source
