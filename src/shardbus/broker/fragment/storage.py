"""Calls a blocking store from an event loop: one writer, one reader, group commit.

A `Worker` runs jobs one after another: on a thread in production, inline and in virtual time in
simulation. `Storage` combines the waiting commits of all fragments of a store into one store
transaction, so that one fsync serves them all. A commit that cannot be stored because of its own
contents is found and fails alone; the others of its transaction are stored.
"""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol, TypeVar, final

from shardbus.stores.base.store import (
    FragmentCommit,
    FragmentId,
    MessageStore,
    NotStored,
    StoreError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
Committed = Callable[[StoreError | None], None]

# The maximum number of commits in one store transaction; further ones wait for the next.
COMMITS_PER_TRANSACTION_MAX = 256
# Reads that may be under way, or done and not yet taken over by the loop. Their results are in
# memory, and a busy loop takes them over more slowly than a disk reads.
READS_MAX = 8
# How often the room is checked while a store is short of it.
LOOK_S = 1.0


class Worker(Protocol):
    """Runs blocking jobs in order, one at a time."""

    def submit(self, job: Callable[[], T], then: Callable[[T | StoreError], None]) -> None:
        """Run `job`, then call `then` in the event loop with its result or its StoreError."""
        ...

    def close(self) -> None:
        """Run all submitted jobs, then stop."""
        ...


@final
class ThreadWorker:
    """A worker on a thread of its own."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._job_thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._job_thread.start()

    def submit(self, job: Callable[[], T], then: Callable[[T | StoreError], None]) -> None:
        def run() -> None:
            try:
                result: T | StoreError = job()
            except StoreError as error:
                result = error
            except Exception as bug:
                log.exception("a store job failed with an unexpected exception")
                result = StoreError(f"internal error: {bug}")
            self._loop.call_soon_threadsafe(then, result)

        self._jobs.put(run)

    def close(self) -> None:
        self.end()
        self._job_thread.join()

    def end(self) -> None:
        """Stop after all submitted jobs, without waiting for that."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


@final
class _Group:
    """Commits that are stored together or not at all, and whom to tell."""

    def __init__(self, commits: list[FragmentCommit], then: Committed) -> None:
        self.commits = commits
        self.then = then


@final
class Storage:
    """One message store, called without blocking the loop."""

    def __init__(
        self,
        store: MessageStore,
        writer: Worker,
        reader: Worker,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store = store
        self._writer = writer
        self._reader = reader
        self._loop = loop
        self._waiting: list[_Group] = []
        # What is being written, and halves of failed groups, which come before those that wait.
        self._written: list[_Group] = []
        self._divided: list[list[_Group]] = []
        self._is_committing = False
        self._is_flush_scheduled = False
        self._reading = 0
        self._reads: deque[Callable[[], None]] = deque()
        self._is_held = False
        # Changes to the set of fragments that came while the store was held, in order.
        self._held_back: list[Callable[[], None]] = []
        self._is_look_scheduled = False
        self._is_closed = False
        self._look_later()

    @property
    def shortage(self) -> str:
        """Why the store accepts no additions; empty while it does."""
        return self._store.shortage

    @property
    def is_read_only(self) -> bool:
        return self._store.is_read_only

    def commit(self, commit: FragmentCommit, then: Committed) -> None:
        """Make a fragment's changes durable, together with all other waiting commits."""
        self.commit_together([commit], then)

    def commit_together(self, commits: list[FragmentCommit], then: Committed) -> None:
        """Make the changes of several fragments durable, all or none."""
        self._waiting.append(_Group(commits, then))
        if not self._is_committing and not self._is_flush_scheduled:
            # At the end of this turn of the loop, so that fragments woken together share an fsync.
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def withdraw(self, fragment: FragmentId) -> None:
        """Drop a commit that is not being written yet; it is never answered.

        A fragment that is deleted before its commit would fail the transaction of all the others.
        The commits that were to be stored together with it still are.
        """
        # Commits that are being written stay; but not if they must be written again.
        for groups in [self._waiting, self._written, *self._divided]:
            for group in groups:
                group.commits = [each for each in group.commits if each.fragment != fragment]
        self._waiting = [group for group in self._waiting if group.commits]

    def read(
        self, job: Callable[[MessageStore], T], then: Callable[[T | StoreError], None]
    ) -> None:
        """Run a job that reads, in turn, and after all but a few others have been taken over."""
        store = self._store

        def finished(result: T | StoreError) -> None:
            self._reading -= 1
            self._read_on()
            then(result)

        def start() -> None:
            self._reader.submit(lambda: job(store), finished)

        self._reads.append(start)
        self._read_on()

    def write(
        self, job: Callable[[MessageStore], T], then: Callable[[T | StoreError], None]
    ) -> None:
        """Run a job that changes the store's set of fragments, in turn with the commits."""
        store = self._store

        def finished(result: T | StoreError) -> None:
            self._look_later()
            then(result)

        if self._is_held:
            self._held_back.append(lambda: self._writer.submit(lambda: job(store), finished))
        else:
            self._writer.submit(lambda: job(store), finished)

    def hold(
        self, job: Callable[[MessageStore], T], then: Callable[[T | StoreError], None]
    ) -> None:
        """Stop writing, and run `job` when everything begun has been written.

        Everything that comes in between waits for `let_go`; reads continue. The caller must make
        sure that the store is let go.
        """
        self._is_held = True
        store = self._store
        self._writer.submit(lambda: job(store), then)

    def let_go(self) -> None:
        """Write what has waited, and continue. Does nothing for a store that is not held."""
        self._is_held = False
        held_back, self._held_back = self._held_back, []
        for submit in held_back:
            submit()
        if not self._is_committing:
            self._flush_soon()

    def close(self) -> None:
        self._is_closed = True
        self._writer.close()
        self._reader.close()
        self._store.close()

    def _read_on(self) -> None:
        while self._reads and self._reading < READS_MAX:
            self._reading += 1
            self._reads.popleft()()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if self._is_committing or self._is_held:
            return
        batch = self._next_batch()
        if not batch:
            return
        commits: list[FragmentCommit] = []
        for group in batch:
            commits += group.commits
        self._is_committing = True
        self._written = batch
        store = self._store
        self._writer.submit(lambda: store.commit(commits), self._finished)

    def _finished(self, result: StoreError | None) -> None:
        batch, self._written = self._written, []
        self._is_committing = False
        self._look_later()
        if isinstance(result, NotStored) and len(batch) > 1:
            half = len(batch) // 2
            self._divided += [batch[half:], batch[:half]]
        else:
            for group in batch:
                try:
                    group.then(result)
                except Exception:
                    # A failing recipient must not keep the others waiting.
                    log.exception(
                        "the result of a commit could not be delivered: %s", _names(group)
                    )
        self._flush_soon()

    def _flush_soon(self) -> None:
        if (self._waiting or self._divided) and not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _look_later(self) -> None:
        """During a shortage: check now and then whether it is over, even if nobody writes."""
        if self._is_look_scheduled or not self._store.shortage:
            return
        self._is_look_scheduled = True
        store = self._store

        def looked(_: StoreError | None) -> None:
            self._is_look_scheduled = False
            self._look_later()

        def look() -> None:
            if self._is_held:
                looked(None)
            elif not self._is_closed:
                self._writer.submit(store.look, looked)

        self._loop.call_later(LOOK_S, look)

    def _next_batch(self) -> list[_Group]:
        """As many groups as a transaction takes; a larger group has its own transaction."""
        while self._divided:
            batch = [group for group in self._divided.pop() if group.commits]
            if batch:
                return batch
        batch = []
        count = 0
        for group in self._waiting:
            if batch and count + len(group.commits) > COMMITS_PER_TRANSACTION_MAX:
                break
            batch.append(group)
            count += len(group.commits)
        del self._waiting[: len(batch)]
        return batch


def _names(group: _Group) -> list[FragmentId]:
    return [commit.fragment for commit in group.commits]
