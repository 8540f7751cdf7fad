"""What a pipeline is to do, and whether that can be."""

from __future__ import annotations

import re
from typing import Final

from shardbus.app.pipelines.capture import Capture, read_capture
from shardbus.app.pipelines.replay import Replay, read_replay
from shardbus.gateway.http.api_call import Members
from shardbus.gateway.http.api_pipelines import CAPTURE, DEFINITIONS, KINDS
from shardbus.gateway.http.refusal import invalid, shown

ENTITY_CHARACTERS_MAX: Final = 400
NAME_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

_NAME: Final = re.compile(NAME_PATTERN)
_ALL: Final = tuple(dict.fromkeys(name for members in DEFINITIONS.values() for name in members))

Definition = Capture | Replay


def read_definition(name: str, members: Members) -> Definition:
    """Refused, with what is wrong, for a definition that cannot be."""
    if _NAME.fullmatch(name) is None:
        raise invalid(
            f"A pipeline cannot be called {shown(name)}: 1 to 64 letters, digits, dots, "
            "underscores and hyphens, a letter or digit first."
        )
    kind = members.choice("kind", KINDS, CAPTURE)
    for member in _ALL:
        if members.has(member) and member not in DEFINITIONS[kind]:
            raise invalid(
                f"{member} is not for a {kind}, which has {', '.join(DEFINITIONS[kind])}."
            )
    entity = members.text("entity", most=ENTITY_CHARACTERS_MAX).strip("/")
    read = read_capture if kind == CAPTURE else read_replay
    return read(name, entity, members)


def definition_from(document: object) -> Definition:
    """What `to_document` wrote; Refused when it is something else."""
    members = Members(document, "The definition", ("name", "incarnation", *_ALL))
    return read_definition(members.text("name"), members)
