"""Decisions of several fragments of one store, stored in one transaction or not at all.

One fragment leads: it has decided, and what it decided belongs to others too. Each of them finishes
what it is doing, then stands still until all do; then each takes its part over, decides what waits
in its own inbox, and everything is stored together.

No two joints wait for each other, because a fragment takes part in those of one leader only: the
fragment of a subscription in those of the topic's fragment of the same number.
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
    """A fragment that is needed is not available: nothing was stored, and nothing will be."""


@final
class JointPart:
    """What one fragment is to take over; `runner` calls the joint back."""

    def __init__(self, joint: Joint, runner: Runner, entries: list[Entry]) -> None:
        self.joint = joint
        self.runner = runner
        self.entries = entries
        self.is_held = False
        # How many of them the fragment has taken over, and what that changed.
        self.delivered = 0
        self.changes: list[Change] = []
        self.is_gone = False

    @property
    def is_delivered(self) -> bool:
        return self.delivered >= len(self.entries)


@final
class Joint:
    """One joint decision. `then` is told once: None when it is stored, else why not.

    Those who take part hear of it before the leader does.
    """

    def __init__(
        self,
        commit: FragmentCommit,
        storage: Storage,
        then: Callable[[StoreError | None], None],
        loop: asyncio.AbstractEventLoop,
        delivered_max: int,
    ) -> None:
        """`delivered_max` copies are taken over before others have their turn."""
        self._loop = loop
        self._delivered_max = delivered_max
        self._commit = commit
        self._storage = storage
        self._then = then
        self._parts: list[JointPart] = []
        self._awaited = 0
        # While it is being decided parts may be half taken over: who leaves then is left out. Once
        # it is decided nobody can leave, and once it is over nothing happens any more.
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
        """A runner stands still."""
        part.is_held = True
        self._await_one_less()

    def left(self, part: JointPart) -> None:
        """A runner was stopped: whatever was meant for it goes with it."""
        if self._is_decided or self._is_over:
            return
        if self._is_deciding:
            part.is_gone = True
            return
        self._parts.remove(part)
        if not part.is_held:
            self._await_one_less()

    def break_off(self, reason: str) -> None:
        """Let everyone go on as if nothing had been asked; nothing was applied to them."""
        if not self._is_decided:
            self._end()
            self._then(Broken(reason))

    def dissolve(self) -> None:
        """The leader was stopped: nobody is told. What is being stored already is."""
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
                # It is in memory there, and will never be stored.
                part.runner.took_part(part, Broken("what a topic published came to nothing"))
            else:
                guarded(partial(part.runner.let_go, part))

    def _decide(self) -> None:
        self._is_deciding = True
        self._deliver_on()

    def _deliver_on(self) -> None:
        """Let all take their parts over, in pieces: others have their turns between them."""
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
            log.exception("a joint decision of %s went wrong", self._commit.fragment)
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
            # Whatever goes wrong with one: the others must not stand still for ever.
            guarded(partial(part.runner.took_part, part, error))
        self._then(error)
