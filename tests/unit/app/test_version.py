"""Compiled or interpreted: the install says which, and `src` in front of it wins."""

import os
from pathlib import Path

import shardbus
import shardbus.codec.value
from shardbus.app.cli.version import is_compiled

SOURCE = Path(__file__).resolve().parents[3] / "src"


def test_the_hot_modules_are_compiled_in_the_install_and_plain_from_source() -> None:
    runs_from_source = Path(shardbus.__file__).is_relative_to(SOURCE)

    suffix = Path(shardbus.codec.value.__file__).suffix
    assert suffix == (".py" if runs_from_source else ".so")
    assert is_compiled() is not runs_from_source


def test_the_run_is_of_the_kind_that_make_asked_for() -> None:
    expected = os.environ.get("SHARDBUS_EXPECT_COMPILED", str(int(is_compiled())))

    assert is_compiled() is (expected == "1")
