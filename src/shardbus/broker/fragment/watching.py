"""Who waits for messages of a fragment, by line or by session, and is woken once (R19)."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from shardbus.core.fragment.fragment import Fragment
from shardbus.core.messages.command import NO_SESSION

Wake = Callable[[], None]


@final
class Watchers:
    """The watchers of one fragment; they outlive it when it is loaded again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # By line, and those of SESSIONS.
        self._of_lines: list[list[Wake]] = [[], [], [], []]
        self._of_sessions: dict[bytes, list[Wake]] = {}

    def is_empty(self) -> bool:
        return not self._of_sessions and not any(self._of_lines)

    def add(self, fragment: Fragment | None, line: int, wake: Wake, session: bytes) -> None:
        """Wake as soon as there is something to take, or the session is lost; soon if it already
        is.
        """
        if fragment is not None and _is_ready(fragment, line, session):
            self._loop.call_soon(wake)
        elif session == NO_SESSION:
            self._of_lines[line].append(wake)
        else:
            self._of_sessions.setdefault(session, []).append(wake)

    def remove(self, line: int, wake: Wake, session: bytes) -> None:
        if session == NO_SESSION:
            if wake in self._of_lines[line]:
                self._of_lines[line].remove(wake)
            return
        waiting = self._of_sessions.get(session, [])
        if wake in waiting:
            waiting.remove(wake)
        if not waiting:
            self._of_sessions.pop(session, None)

    def wake(self, fragment: Fragment) -> None:
        """Wake the watchers for which there is something now."""
        for line, waiting in enumerate(self._of_lines):
            if waiting and fragment.is_ready(line):
                self._of_lines[line] = []
                for wake in waiting:
                    self._loop.call_soon(wake)
        for token in fragment.stirred():
            if token in self._of_sessions and fragment.is_session_ready(token):
                for wake in self._of_sessions.pop(token):
                    self._loop.call_soon(wake)

    def wake_sessions(self) -> None:
        """No session survives a reload: watchers of sessions are woken to learn that."""
        waiting, self._of_sessions = self._of_sessions, {}
        for wakes in waiting.values():
            for wake in wakes:
                self._loop.call_soon(wake)


def _is_ready(fragment: Fragment, line: int, session: bytes) -> bool:
    if session == NO_SESSION:
        return fragment.is_ready(line)
    return fragment.is_session_ready(session)
