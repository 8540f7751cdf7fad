"""What the README tells a newcomer to type, apart from the two make commands."""

import re
from typing import Final

from tests.docs.examples import ROOT, Example

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found == language]


def commands() -> list[Example]:
    """The blocks of the README with commands for a server that runs, in order."""
    return [Example(body, "", "") for body in blocks("sh") if ".venv/bin/shardbus " in body]
