"""Programs that tests need and that a machine may lack.

Without one a test is skipped and says so; CI, where everything is installed, allows no such skip
(tests/conftest.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

JS: Final = Path(__file__).parents[1] / "conformance/js"
LINTERS: Final = Path(__file__).parents[2] / "build/linters/bin"


def needed_program(name: str, target: str) -> str:
    """Where the program is, which `make TARGET` installs."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}, so this is left out: `make {target}` installs it")
    return found


def needed_linter(name: str) -> str:
    """A linter of the files of `deploy`, from the machine or as `make linters` installs it."""
    own = LINTERS / name
    return str(own) if own.exists() else needed_program(name, "linters")


def needed_node() -> str:
    """Node.js, beside the SDKs for JavaScript."""
    found = needed_program("node", "node")
    if not (JS / "node_modules").is_dir():
        pytest.skip("the JavaScript SDK is not installed, so it is left out: run `make node`")
    return found
