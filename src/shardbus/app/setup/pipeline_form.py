"""Pipelines in files: the members of their kinds, under the names of the command line's options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Final

from shardbus.app.cli.entities.pipeline_options import file_keys, usual_members
from shardbus.app.pipelines.definition import KINDS, definition_from
from shardbus.app.setup.model import DeclaredPipeline
from shardbus.app.setup.node import PlacedValue
from shardbus.core.errors import Refused

START: Final = "start"
_KIND: Final = "kind"
_NAME: Final = "name"
_DEFAULT_KIND: Final = next(iter(KINDS))
_RUNNING: Final = ("starting", "running", "failing")


def read_pipeline(node: PlacedValue) -> DeclaredPipeline:
    """SetupError, with the place, for an invalid one."""
    given = node.get(_KIND)
    kind = _DEFAULT_KIND if given is None else given.text()
    if given is not None and kind not in KINDS:
        raise given.wrong(f"kind is {kind!r}; it must be {' or '.join(KINDS)}")
    keys = file_keys(kind)
    node.refuse_unknown([_NAME, _KIND, START, *keys])
    name, start = node.need(_NAME).name(), node.get(START)
    members = {
        member: _plain(value)
        for key, member in keys.items()
        if (value := node.get(key)) is not None
    }
    try:
        whole = definition_from({_NAME: name, _KIND: kind, **members}).to_document()
    except Refused as refusal:
        raise node.wrong(refusal.message) from refusal
    return DeclaredPipeline(
        name,
        {_KIND: kind, **{member: whole[member] for member in members}},
        None if start is None else start.switch(),
        node.place,
    )


def declared_pipeline(shown: Mapping[str, object]) -> DeclaredPipeline:
    """The pipeline that the API shows: the members that differ from their defaults."""
    kind = str(shown.get(_KIND, _DEFAULT_KIND))
    usual = usual_members(kind)
    members = {
        member: shown[member]
        for member in file_keys(kind).values()
        if member in shown and shown[member] != usual.get(member)
    }
    return DeclaredPipeline(
        str(shown.get(_NAME)), {_KIND: kind, **members}, str(shown.get("state")) in _RUNNING
    )


def pipeline_values(declared: DeclaredPipeline) -> dict[str, object]:
    """The values of a file by key."""
    kind = str(declared.members[_KIND])
    said = {key: declared.members.get(member) for key, member in file_keys(kind).items()}
    values = {key: value for key, value in said.items() if value is not None}
    start = {START: True} if declared.is_started else {}
    return {_NAME: declared.name, _KIND: kind, **values, **start}


def _plain(node: PlacedValue) -> object:
    if isinstance(node.value, date | datetime):
        return node.value.isoformat()
    return node.value
