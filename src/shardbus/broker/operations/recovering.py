"""Finishes transactions whose commit was begun and not finished (R22).

Any gateway may do it, several at once: repeating a command here changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, final

from shardbus.broker.clock import Clock
from shardbus.broker.operations.asking import ask
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.transactions.command import (
    COMMITTED,
    ROLLED_BACK,
    UNDECIDED,
    AskDecision,
    Decided,
    Finish,
    ForgetDecision,
    Home,
    InDoubt,
    ListTransactions,
    Owed,
    Promised,
)
from shardbus.stores.base.store import FragmentId

log = logging.getLogger(__name__)

RECOVER_MS: Final = 2_000
ANSWER_MS: Final = 15_000
# An entity that cannot be found this long after a transaction began is not just too new for this
# gateway's catalogue: it is gone, if no broker holds anything of it either.
GONE_MS: Final = 60_000
# Entities that are watched as missing at once; further ones are watched when some are settled.
MISSED_MAX: Final = 10_000


class RecoverableFragments(Protocol):
    """Finds the fragments of all entities: `bus.Bus`."""

    def fragment(self, entity_id: int, number: int) -> FragmentPort | None: ...

    async def in_doubt(self) -> list[FragmentId]: ...

    async def may_be_held(self, entity_id: int) -> bool: ...


@final
class TransactionRecovery:
    """Recovers the transactions of all fragments."""

    def __init__(self, fragments: RecoverableFragments, clock: Clock) -> None:
        self._fragments = fragments
        self._clock = clock
        # By entity: since when it cannot be found although a transaction names it, by the steady
        # clock.
        self._missed_since_ms: dict[int, int] = {}

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            await self.recover()
            await asyncio.sleep(RECOVER_MS / 1000)

    async def recover(self) -> None:
        """Finish what can be finished now; the rest is left for the next time."""
        for fragment in await self._fragments.in_doubt():
            home = (fragment.entity_id, fragment.number)
            try:
                async with asyncio.timeout(ANSWER_MS / 1000):
                    await self._recover_at(home)
            except (Refused, Unavailable, TimeoutError) as error:
                log.info("transactions of fragment %s wait: %s", fragment, error)

    async def _recover_at(self, home: Home) -> None:
        port = self._fragments.fragment(*home)
        if port is None:
            return
        found = await ask(port, ListTransactions())
        assert isinstance(found, InDoubt)
        for owed in found.owed:
            await self._settle(port, owed)
        for promised in found.promised:
            await self._resolve(port, promised)

    async def _settle(self, decider: FragmentPort, owed: Owed) -> None:
        """A decision to commit is kept until all participants have finished."""
        for home in owed.others:
            port = self._find(home)
            if port is not None:
                await ask(port, Finish(owed.transaction_id, is_commit=True))
            elif not await self._is_gone(home):
                return
        await ask(decider, ForgetDecision(owed.transaction_id))

    async def _resolve(self, port: FragmentPort, promised: Promised) -> None:
        how = await self._decision(promised)
        if how != UNDECIDED:
            how_said = "committed" if how == COMMITTED else "rolled back"
            log.info("an unfinished transaction was recovered: it is now %s", how_said)
            await ask(port, Finish(promised.transaction_id, is_commit=how == COMMITTED))

    def _find(self, home: Home) -> FragmentPort | None:
        port = self._fragments.fragment(*home)
        if port is not None:
            self._missed_since_ms.pop(home[0], None)
        return port

    async def _is_gone(self, home: Home) -> bool:
        """Whether an entity was deleted: not found for a while, and no broker has anything of it.

        The catalogue may be an old copy: an entity that it does not know may have decided, or
        promised.
        """
        missed = self._missed_since_ms
        if home[0] not in missed:
            if len(missed) >= MISSED_MAX:
                del missed[next(iter(missed))]
            missed[home[0]] = self._clock.steady_ms()
        if self._clock.steady_ms() < missed[home[0]] + GONE_MS:
            return False
        return not await self._fragments.may_be_held(home[0])

    async def _decision(self, promised: Promised) -> int:
        decider = self._find(promised.decider)
        if decider is None:
            # Deleted with its entity, together with a decision to commit, if there was one:
            # participants that had not heard of it cannot any more.
            return ROLLED_BACK if await self._is_gone(promised.decider) else UNDECIDED
        question = AskDecision(promised.transaction_id, is_over=promised.is_over)
        answer = await ask(decider, question)
        assert isinstance(answer, Decided)
        return answer.how
