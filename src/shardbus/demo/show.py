"""The output of the demo: a screen that is redrawn, or a line now and then."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Protocol, final

import click

from shardbus.demo import words
from shardbus.demo.picture import Picture
from shardbus.demo.screen import draw
from shardbus.demo.terminal import Terminal, is_screen


class Show(Protocol):
    """Where pictures go."""

    def show(self, picture: Picture) -> None: ...

    def close(self) -> None:
        """Restore everything; may be called again."""
        ...


@final
class ScreenShow:
    """A full screen, which is left when the process is put into the background."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGTSTP, self._make_room)
        terminal.enter()

    def show(self, picture: Picture) -> None:
        self._terminal.show(draw(picture, self._terminal.look()))

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGTSTP)
        self._terminal.leave()

    def _make_room(self) -> None:
        self._terminal.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._terminal.enter()


@final
class LineShow:
    """Lines without control codes, for files and pipes."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + words.OFTEN_S
        self._state = "waiting"

    def show(self, picture: Picture) -> None:
        """Print a line when it is time for one, or the pipeline's state has changed."""
        state = "" if picture.capturing is None else picture.capturing.state
        now_s = time.monotonic()
        if state == self._state and now_s < self._next_s:
            return
        self._state, self._next_s = state, now_s + words.line_due_s(picture.elapsed_s)
        click.echo(words.line(picture))

    def close(self) -> None:
        """Nothing to restore."""


def chosen_show() -> Show:
    return ScreenShow(Terminal(sys.stdout)) if is_screen(sys.stdout) else LineShow()
