"""Paths in definitions of pipelines, below the directory of captured data."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from shardbus.gateway.http.server.refusal import invalid, shown

# Spark reads braces, brackets and stars in paths as patterns, and names with = as columns.
_PATH: Final = re.compile(r"[A-Za-z0-9._ /-]+")


def checked_path(text: str) -> str:
    """The path in its canonical spelling; Refused if it may lead outside of the directory."""
    parts = PurePosixPath(text).parts
    is_plain = _PATH.fullmatch(text) is not None and not text.startswith("/")
    if not parts or not is_plain or any(part.startswith((".", "_")) for part in parts):
        raise invalid(
            f"path is {shown(text)}; it must be relative to the directory of captured data, "
            "of letters, digits, dots, spaces, hyphens and underscores, and no part of it "
            "may begin with a dot or an underscore."
        )
    return "/".join(parts)
