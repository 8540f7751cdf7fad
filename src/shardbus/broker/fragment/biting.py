"""How a runner sends the publications of its fragment in bites (docs/adr/0057-bites.md)."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.fragment.outlet import Outlet
from shardbus.broker.fragment.storage import LOOK_S, Storage
from shardbus.core.fragment.change import Change
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.limits import ADMITTED_MAX
from shardbus.core.stages.command import PublishOn


@final
class Biting:
    """Submits the next bite as a command among the others; one at a time.

    While the store is short of room none is submitted: existing messages must be received first.
    """

    def __init__(
        self,
        storage: Storage,
        loop: asyncio.AbstractEventLoop,
        submit: Callable[[Command, ReplyTo], None],
        wake: Callable[[], None],
    ) -> None:
        """`submit` submits a command; `wake` makes the runner call `go_on`."""
        self._storage = storage
        self._loop = loop
        self._submit = submit
        self._wake = wake
        self._is_asked = False

    def go_on(self, fragment: Fragment) -> None:
        if self._is_asked or not fragment.is_publishing:
            return
        self._is_asked = True
        if self._storage.shortage:
            self._loop.call_later(LOOK_S, self._look)
        else:
            self._submit(PublishOn(), self._answered)

    def _look(self) -> None:
        self._is_asked = False
        self._wake()

    def _answered(self, answer: Answer) -> None:
        # Whatever the result: the fragment knows what is left.
        self._is_asked = False


def bitten_on(fragment: Fragment, outlet: Outlet | None) -> list[Change]:
    """Send one turn's part of a bite; the bite ends when a topic has made enough copies for one
    commit.
    """
    if outlet is None:
        return fragment.decide_on(ADMITTED_MAX)
    changes: list[Change] = []
    while fragment.is_unfinished and not outlet.is_unfinished and not outlet.is_tired:
        changes += fragment.decide_on(outlet.room)
        outlet.publish(fragment)
    return changes
