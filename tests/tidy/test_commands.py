"""How many files a command of fragments takes: what CONTRIBUTING says of it is so."""

import re
from typing import get_args

from shardbus.broker.wire import commands
from shardbus.broker.wire import exchange as answers
from shardbus.core import declared
from shardbus.core.fragment.command import ClientCommand, Reply
from tests.tidy.source import python_files

FILES_MAX = 4
# Added by the recipe, and issued by one part of the broker.
ADDED = ("AskHolds", "HoldsTold", "Seal", "LearnIds", "TellIds", "ReadLifecycle")
WIRE = ("codec", "commands", "derived", "exchange", "fields", "frames")


def test_a_command_takes_at_most_four_files() -> None:
    for name in ADDED:
        found = [path.name for path in python_files("src") if _names(path.read_text("utf-8"), name)]

        assert 0 < len(found) <= FILES_MAX, f"{name} is in {found}"


def test_a_family_takes_a_folder_and_three_lines() -> None:
    families = [name for name in vars(declared) if name.startswith("OF_")]

    assert len(families) > 7
    for number in families:
        outside = {path.name for path in python_files("src") if _names(path.read_text(), number)}
        assert outside <= {"declared.py", "command.py", "fragment.py"}, f"{number}: {outside}"


def test_the_wire_names_only_what_is_written_by_hand() -> None:
    kinds = {*get_args(ClientCommand), *get_args(Reply)} - {*commands.BY_HAND, *answers.BY_HAND}
    modules = [path for path in python_files("src") if "wire" in path.parts and path.stem in WIRE]

    assert len(kinds) > 40 and len(modules) == len(WIRE)
    assert [
        f"{path.name}: {kind.__name__}"
        for path in modules
        for kind in kinds
        if _names(path.read_text("utf-8"), kind.__name__)
    ] == []


def _names(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
