"""Decisions of several fragments of one store, stored in one transaction or not at all.

One fragment leads: its decision concerns other fragments too. Each of these finishes what it is
doing, then waits until all do; then each takes its part over, decides the commands in its own
inbox, and everything is stored together.

No two joints wait for each other, because a fragment takes part in those of one leader only: a
subscription's fragment in those of the topic's fragment of the same number.
"""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, final

from shardbus.broker.fragment.storage import Storage
from shardbus.broker.guarded import guarded
from shardbus.core.fragment.change import Change
from shardbus.core.message import Entry
from shardbus.stores.base.store import FragmentCommit, NotStored, StoreError

if TYPE_CHECKING:
    from shardbus.broker.fragment.runner import Runner

log = logging.getLogger(__name__)


class Broken(NotStored):
    """A needed fragment is unavailable: nothing was stored, and nothing will be."""


@final
class JointPart:
    """What one fragment is to take over; `runner` calls the joint back."""

    def __init__(self, joint: Joint, runner: Runner, entries: list[Entry]) -> None:
        self.joint = joint
        self.runner = runner
        self.entries = entries
        self.is_held = False
        # How many entries the fragment has taken over, and the resulting changes.
        self.delivered = 0
        self.changes: list[Change] = []
        self.is_gone = False

    @property
    def is_delivered(self) -> bool:
        return self.delivered >= len(self.entries)


@final
class Joint:
    """One joint decision. `then` is called once: with None when it is stored, else with the reason.

    The participants are told before the leader.
    """

    def __init__(
        self,
        commit: FragmentCommit,
        storage: Storage,
        then: Callable[[StoreError | None], None],
        loop: asyncio.AbstractEventLoop,
        delivered_max: int,
    ) -> None:
        """Participants take over `delivered_max` copies before other work has its turn."""
        self._loop = loop
        self._delivered_max = delivered_max
        self._commit = commit
        self._storage = storage
        self._then = then
        self._parts: list[JointPart] = []
        self._awaited = 0
        # During the decision parts may be half taken over: a runner that leaves then is left out.
        # After the decision no runner can leave, and after the end nothing happens any more.
        self._is_deciding = False
        self._is_decided = False
        self._is_over = False
        self._position = 0

    def begin(self, deliveries: list[tuple[Runner, list[Entry]]]) -> None:
        self._parts = [JointPart(self, runner, entries) for runner, entries in deliveries]
        self._awaited = len(self._parts)
        for part in list(self._parts):
            if self._is_over:
                return
            part.runner.join(part)

    def held(self, part: JointPart) -> None:
        """A runner waits for the joint."""
        part.is_held = True
        self._await_one_less()

    def left(self, part: JointPart) -> None:
        """A runner was stopped: its part is dropped."""
        if self._is_decided or self._is_over:
            return
        if self._is_deciding:
            part.is_gone = True
            return
        self._parts.remove(part)
        if not part.is_held:
            self._await_one_less()

    def break_off(self, reason: str) -> None:
        """Let all runners continue as if nothing had been asked; nothing was applied to them."""
        if not self._is_decided:
            self._end()
            self._then(Broken(reason))

    def dissolve(self) -> None:
        """The leader was stopped: nobody is told. A commit that is being written is still
        written.
        """
        if not self._is_decided:
            self._end()

    def _await_one_less(self) -> None:
        self._awaited -= 1
        if self._awaited == 0 and not self._is_over:
            self._decide()

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        for part in self._parts:
            if part.delivered:
                # The part is in the runner's memory, and will never be stored.
                part.runner.took_part(part, Broken("the publication of a topic was given up"))
            else:
                guarded(partial(part.runner.let_go, part))

    def _decide(self) -> None:
        self._is_deciding = True
        self._deliver_on()

    def _deliver_on(self) -> None:
        """Let all runners take their parts over, in pieces, with other work between them."""
        if self._is_over:
            return
        room = self._delivered_max
        try:
            while self._position < len(self._parts):
                if room <= 0:
                    self._loop.call_soon(self._deliver_on)
                    return
                part = self._parts[self._position]
                if part.is_gone or part.is_delivered:
                    self._position += 1
                else:
                    room -= part.runner.deliver(part, room)
            self._store()
        except Exception as bug:
            log.exception("a joint decision of %s failed", self._commit.fragment)
            self._stored(NotStored(f"internal error: {bug}"))

    def _store(self) -> None:
        self._is_decided = True
        self._parts = [part for part in self._parts if not part.is_gone]
        commits = [self._commit]
        for part in self._parts:
            commits.append(part.runner.take_part(part))
        self._storage.commit_together(commits, self._stored)

    def _stored(self, error: StoreError | None) -> None:
        self._is_over = True
        for part in self._parts:
            # Whatever fails in one runner, the others must not wait for ever.
            guarded(partial(part.runner.took_part, part, error))
        self._then(error)
