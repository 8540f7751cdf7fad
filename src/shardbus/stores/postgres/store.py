"""A slot of a PostgreSQL database as a message store."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar, final

from shardbus.stores.base.lease import SlotLease
from shardbus.stores.base.package import Durability
from shardbus.stores.base.store import (
    Fenced,
    FragmentCommit,
    FragmentId,
    FragmentImage,
    StoreError,
)
from shardbus.stores.chunked.store import ChunkedReads
from shardbus.stores.postgres.group import GroupCommit
from shardbus.stores.postgres.link import Address, Link, LinkLost
from shardbus.stores.postgres.lookup import PostgresLookup
from shardbus.stores.postgres.schema import settings_of
from shardbus.stores.postgres.writer import RETRY_S, SETTLE_S, SlotWriter

T = TypeVar("T")

OWNER_BYTES: Final = 4


@final
class PostgresStore(ChunkedReads):
    """A MessageStore in a slot, which belongs to this object from now on.

    When another object opens the slot later, all methods of this one raise Fenced. With durability
    "full", a commit is on disk when PostgreSQL reports it as stored; with "relaxed", a crash of the
    database server may undo the last commits of all fragments.
    """

    is_read_only = False
    loss = ""
    # The operator of the server watches its free space.
    shortage = ""

    def __init__(
        self,
        address: Address,
        slot: int,
        *,
        durability: Durability = "full",
        lease: SlotLease | None = None,
        group: GroupCommit | None = None,
    ) -> None:
        """With a lease, this object owns the slot for as long as the lease lasts. Stores with the
        same `group` commit together; it belongs to the caller.
        """
        name = f"broker-{slot}"
        is_relaxed = durability == "relaxed"
        is_leased = lease is not None
        settings = settings_of(name, is_relaxed=is_relaxed, is_leased=is_leased)
        self._writing = Link(address, settings)
        self._reading = Link(address, settings_of(f"{name} reader", is_reader=True))
        self._slot = slot
        # The connection for reads, and the epoch for which its server was verified.
        self._seen = (0, 0)
        # Whether there may be fragments that are not known here.
        self._is_unsure = False
        self._group = group
        if group is not None:
            group.open()
        self._writer = SlotWriter(self._writing, slot, f"{name} on {here()}", lease, group)
        if lease is not None:
            lease.call_when_lost(self._hang_up)
        try:
            self._writer.take()
            super().__init__(
                f"slot {slot} of {address.shown}",
                PostgresLookup(self._reading, slot),
                self._writer.fragments(),
            )
        except BaseException:
            self.close()
            raise

    def read(self, work: Callable[[], T]) -> T:
        """Read, and retry while the server restarts or fails over."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self._check_own()
            try:
                self._check_server()
                return work()
            except LinkLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    def _check_own(self) -> None:
        """Determine the outcome of the last commit before anything is read.

        Otherwise it might take effect after the read of the rows that it changes.
        """
        if self._writer.is_unsettled:
            with self._writer.turn:
                if self._writer.is_unsettled:
                    self._writer.settle()
        if self._writer.fenced:
            raise Fenced(self._writer.fenced)

    def _check_server(self) -> None:
        """Raise an error if, after a failover, reads and writes use different servers."""
        seen = (self._reading.opened, self._writer.epoch)
        if self._reading.is_open and seen == self._seen:
            return
        row = self._reading.row("SELECT epoch FROM slot WHERE slot = $1", self._slot)
        if row is None or row[0] < self._writer.epoch:
            self._reading.drop()
            raise LinkLost(f"{self.place}: reads and writes reach different servers")
        self._seen = (self._reading.opened, self._writer.epoch)

    def load(self, fragment: FragmentId) -> FragmentImage:
        image = super().load(fragment)
        self._writer.stale.discard(self._local(fragment))
        return image

    def look(self) -> None:
        """Do nothing: the server watches its own disk."""

    def namespace_id(self) -> str:
        """The namespace to which the slot belongs; empty if it belongs to none."""
        with self._writer.turn:
            return self._writer.namespace_id()

    def join(self, namespace_id: str) -> None:
        """Join this namespace, durably."""
        with self._writer.turn:
            self._writer.join(namespace_id)

    def highest_entity_id(self) -> int:
        with self._writer.turn:
            return self._writer.highest_entity_id()

    def create(self, fragments: Sequence[FragmentId]) -> None:
        new = [f for f in dict.fromkeys(fragments) if f not in self._locals]
        if new:
            with self._writer.turn:
                # If this fails, they may exist: `delete` must find them.
                self._is_unsure = True
                self._locals = self._writer.create(new)
                self._is_unsure = False

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        if self._is_unsure:
            self._check_own()
            with self._writer.turn:
                self._locals = self._writer.fragments()
            self._is_unsure = False
        known = {f: self._locals[f] for f in fragments if f in self._locals}
        if known:
            with self._writer.turn:
                self._writer.delete(list(known.values()))
            self._locals = {f: n for f, n in self._locals.items() if f not in known}

    def sweep(self) -> bool:
        with self._writer.turn:
            return self._writer.sweep()

    def commit(self, commits: Sequence[FragmentCommit]) -> None:
        located = [(self._local(commit.fragment), commit) for commit in commits]
        with self._writer.turn:
            self._writer.commit(located)

    def _hang_up(self) -> None:
        self._writing.abandon()
        self._reading.abandon()
        if self._group is not None:
            self._group.abandon()

    def close(self) -> None:
        group, self._group = self._group, None
        for ending in (self._writing, self._reading, group):
            if ending is not None:
                with suppress(StoreError):
                    ending.close()


def here() -> str:
    """A name for this process and this store object: the owner of a slot, shown to people."""
    return f"{socket.gethostname()}, process {os.getpid()} ({secrets.token_hex(OWNER_BYTES)})"
