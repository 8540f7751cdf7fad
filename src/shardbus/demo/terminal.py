"""The terminal of the demo: the alternate screen, and the normal one afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Final, TextIO, final

from shardbus.demo.screen import Look

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"


@final
class Terminal:
    """Redraws the screen; `leave` may be called at any time and any number of times."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self._has_colour = not environment.get("NO_COLOR")
        self._has_blocks = "utf" in (stream.encoding or "").lower()
        self._is_entered = False

    def look(self) -> Look:
        size = shutil.get_terminal_size()
        return Look(size.columns, size.lines, self._has_colour, self._has_blocks)

    def enter(self) -> None:
        if not self._is_entered:
            self._is_entered = True
            self._write(ENTER)

    def show(self, lines: Sequence[str]) -> None:
        # Each line erases the rest of the line before it, which flickers less than erasing the
        # screen.
        text = "\n".join(f"{line}\x1b[K" for line in lines)
        self._write(f"\x1b[H{text}\x1b[J")

    def leave(self) -> None:
        if self._is_entered:
            self._is_entered = False
            self._write(LEAVE)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # The terminal is gone: the demo ends by its signal.
            self._is_entered = False


def is_screen(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the stream is a terminal that can show a screen, and not only lines."""
    return stream.isatty() and environment.get("TERM", "") not in ("", "dumb")
