"""Every command that the portal shows is one that the command line takes (R44)."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Final

import click
import pytest

from shardbus.app.cli.main import main

_CALL: Final = re.compile(r"\bcommand\((\"\w+\"(?:, (?:\"[^\"]*\"|[\w.]+))+)\)")


def shown() -> list[tuple[str, ...]]:
    """The words of each command in the portal's pages; names of entities are `orders`."""
    found: set[tuple[str, ...]] = set()
    pages = files("shardbus.gateway.http.portal") / "static" / "pages"
    for page in pages.iterdir():
        for call in _CALL.findall(page.read_text("utf-8")):
            words = re.findall(r"\"[^\"]*\"|[\w.]+", call)
            found.add(tuple(json.loads(w) if w.startswith('"') else "orders" for w in words))
    return sorted(found)


def test_the_portal_shows_commands() -> None:
    assert len(shown()) > 7


@pytest.mark.parametrize("words", shown(), ids=" ".join)
def test_a_command_of_the_portal_can_be_parsed(words: tuple[str, ...]) -> None:
    command: click.Command = main
    context = click.Context(main, info_name="shardbus")
    rest = [*words, "--endpoint", "http://localhost:1"]
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)

    parsed = command.make_context(context.info_name, list(rest), parent=context.parent)

    assert parsed.params["endpoint"] == "http://localhost:1"
