"""Takes leased documents of a cluster, keeps them, and gives them up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar, final

from shardbus.app.leased.leases import Leases
from shardbus.broker.fragment.asking import asked
from shardbus.broker.fragment.storage import Worker
from shardbus.core.errors import Unavailable
from shardbus.stores.base.leased import LeasedHead, LeasedTable
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

FENCE_LOOK_S: Final = 0.5


class Tenant(Protocol):
    """What is done with the documents that this process owns."""

    async def carry_on(self, head: LeasedHead, epoch: int) -> None:
        """Bring a document to its intended state, and report it; called again and again."""
        ...

    async def drop(self, name: str) -> None:
        """Work on a document no more: another process may own it now."""
        ...


@final
class Tenancy:
    """The documents of one table that this process owns."""

    def __init__(
        self,
        what: str,
        table: LeasedTable,
        worker: Worker,
        leases: Leases,
        tenant: Tenant,
        wanted: Collection[str],
    ) -> None:
        """`what` is their name in texts, `worker` makes the calls of the table, and documents with
        a `wanted` intent are taken.
        """
        self.table = table
        self.leases = leases
        self._what = what
        self._worker = worker
        self._tenant = tenant
        self._wanted = wanted

    async def ask(self, work: Callable[[], T]) -> T:
        """What the table answers; Unavailable when it does not."""
        try:
            return await asked(self._worker, work)
        except StoreError as error:
            raise Unavailable(
                f"The {self._what}s of the cluster cannot be read or changed: {error}"
            ) from error

    async def care(self, heads: Sequence[LeasedHead], may_take: Callable[[], bool]) -> None:
        """Observe the present heads, carry on what is ours, and take at most one more."""
        leases, loop = self.leases, asyncio.get_running_loop()
        by_name = {head.name: head for head in heads}
        for name in leases.see(heads, loop.time()):
            await self.drop(name)
        for name, epoch in leases.held().items():
            # What was taken since these heads were read comes next time.
            if name in by_name:
                await self._tenant.carry_on(by_name[name], epoch)
        head = leases.takeable(heads, self._wanted, loop.time())
        if head is not None and may_take():
            sent_s = loop.time()
            if await self.ask(partial(self.table.take, head, leases.owner)):
                log.info("%s %s runs here from now on", self._what, head.name)
                leases.taken(head.name, head.epoch + 1, sent_s)
                await self._tenant.carry_on(head, head.epoch + 1)

    async def beat(self, name: str, epoch: int, report: str) -> bool:
        """Whether the document is still ours, and the answer came in time."""
        sent_s = asyncio.get_running_loop().time()
        owner = self.leases.owner
        if not await self.ask(partial(self.table.beat, name, owner, epoch, report)):
            return False
        self.leases.beaten(name, sent_s)
        return self.leases.held().get(name) == epoch

    async def give_up(self, name: str, epoch: int) -> None:
        """Work on a document no more, and let any process take it."""
        await self.ask(partial(self.table.give_up, name, self.leases.owner, epoch))
        await self.drop(name)

    async def drop(self, name: str) -> None:
        self.leases.lost(name)
        await self._tenant.drop(name)

    async def fence(self) -> None:
        """End work whose ownership is unconfirmed, even if the database does not answer."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(FENCE_LOOK_S)
            for name in self.leases.expired(loop.time()):
                log.error(
                    "%s %s ends here: its owner cannot be read from the database", self._what, name
                )
                await self.drop(name)

    def give_all_up(self) -> None:
        """Let other processes take what is ours, as soon as the worker comes to that."""
        for name, epoch in self.leases.held().items():
            self._worker.submit(
                partial(self.table.give_up, name, self.leases.owner, epoch), _ignored
            )


def _ignored(_: StoreError | None) -> None:
    """Other nodes will observe that its owner has ended."""
