"""Families of commands: each command has somebody who decides it."""

from typing import get_args

import pytest

from shardbus.core.declared import (
    BYTES,
    FIXED,
    LIST,
    OF_RUNNER,
    OPTIONAL,
    RECORD,
    STRING,
    TUPLE,
    Asked,
    Declared,
    Form,
)
from shardbus.core.errors import Refused
from shardbus.core.fragment.command import ClientCommand, Command
from shardbus.core.fragment.family import Handler
from shardbus.core.stages.command import PublishOn
from tests.unit.core.desk import Desk, rules


def plain(form: Form) -> object:
    """A value of a form, as empty as can be."""
    if form.kind == OPTIONAL:
        return form.absent
    if form.kind == TUPLE:
        return tuple(plain(part) for part in form.parts)
    if form.kind == RECORD:
        return made(form.record)
    return {STRING: "", BYTES: b"", FIXED: bytes(form.top), LIST: []}.get(form.kind, 0)


def made(kind: type[object]) -> object:
    assert issubclass(kind, Declared)
    return kind(**{name: plain(form) for name, form in kind.FIELDS.items()})


@pytest.mark.parametrize("requires_session", [False, True])
@pytest.mark.parametrize("kind", get_args(ClientCommand))
def test_every_command_of_clients_is_decided_or_refused(
    kind: type[Asked], requires_session: bool
) -> None:
    desk = Desk(rules(requires_session=requires_session))
    command = made(kind)
    assert isinstance(command, ClientCommand)

    try:
        reply = desk.do(command)
    except Refused:
        return
    assert reply is not None


def test_the_commands_of_a_broker_are_no_clients() -> None:
    brokers = set(get_args(Command)) - set(get_args(ClientCommand))

    # What a publication has left is sent on by the family that began it.
    assert {kind for kind in brokers if kind.FAMILY != OF_RUNNER} == {PublishOn}
    assert OF_RUNNER not in {kind.FAMILY for kind in get_args(ClientCommand)}


def test_what_no_handler_knows_is_an_error_of_ours() -> None:
    command = made(get_args(ClientCommand)[0])
    assert isinstance(command, ClientCommand)

    with pytest.raises(TypeError, match="no handler decides"):
        Handler().decide(command, 1)
