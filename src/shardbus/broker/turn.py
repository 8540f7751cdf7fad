"""Turns: one at a time for each key, in the order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, final


class TurnTaker(Protocol):
    """Grants turns; the context lasts as long as the turn."""

    def take(self, key: str) -> AbstractAsyncContextManager[None]:
        """Wait for the turn of a key; "" is the turn for work on everything. May raise
        Unavailable.
        """
        ...


@final
class Turns:
    """Makes work on the same key wait; other keys are not delayed."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with turn:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                del self._turns[key]
