"""The turn to manage a namespace whose catalogue all gateways have open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Final, final

from shardbus.broker.fragment.storage import Worker
from shardbus.broker.remote.catalogue_answerer import TURN_TAKEN_TEXT, TURN_WAIT_MS
from shardbus.core.errors import Unavailable
from shardbus.stores.base.cluster import SharedCatalogue
from shardbus.stores.base.store import StoreError

LOOK_S: Final = 0.05


@final
class CatalogueTurns:
    """A `turn.TurnTaker` with one turn for all keys.

    `refresh` is called with the turn when other gateways have made changes that this one has not
    seen; `number` is the number of the present turn.
    """

    def __init__(
        self, catalogue: SharedCatalogue, worker: Worker, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.refresh: Callable[[], Coroutine[object, object, None]] = _nothing
        self.number = 0
        self._catalogue = catalogue
        self._worker = worker
        self._loop = loop
        self._mine = asyncio.Lock()

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        async with self._mine:
            self.number, version = await self._taken()
            try:
                if version != self._catalogue.known_version:
                    await self.refresh()
                yield
            finally:
                self.number = 0
                self._worker.submit(self._catalogue.end_turn, _ignored)

    async def _taken(self) -> tuple[int, int]:
        until_s = self._loop.time() + TURN_WAIT_MS / 1000
        while True:
            turn = await self._asked()
            if turn is not None:
                return turn
            if self._loop.time() >= until_s:
                raise Unavailable(TURN_TAKEN_TEXT)
            await asyncio.sleep(LOOK_S)

    async def _asked(self) -> tuple[int, int] | None:
        answer: asyncio.Future[tuple[int, int] | StoreError | None] = self._loop.create_future()

        def then(result: tuple[int, int] | StoreError | None) -> None:
            if not answer.done():
                answer.set_result(result)
            elif isinstance(result, tuple):
                # The request for the turn was cancelled.
                self._worker.submit(self._catalogue.end_turn, _ignored)

        self._worker.submit(self._catalogue.take_turn, then)
        result = await answer
        if isinstance(result, StoreError):
            raise Unavailable(f"The turn to change the catalogue cannot be taken: {result}")
        return result


async def _nothing() -> None:
    """Nothing to refresh."""


def _ignored(_: StoreError | None) -> None:
    """Ignore a failure: the turn then ends with its connection."""
