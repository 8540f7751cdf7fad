"""What is promised to transactions is finished by somebody, whoever began it."""

import asyncio

from shardbus.broker.operations.recovering import RECOVER_MS, TransactionRecovery
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.fragment.records import DECISION, PREPARED
from shardbus.core.transactions.command import COMMITTED
from shardbus.stores.base.store import FragmentId
from shardbus.stores.memory.store import MemoryStore
from tests.simulation.bus import Gate
from tests.simulation.simulation import Simulation
from tests.simulation.world import VirtualClock


def is_promised(kept: MemoryStore) -> bool:
    """Whether a store holds a promise, or a decision to commit."""
    return any(
        kind == PREPARED or (kind == DECISION and data[0] == COMMITTED)
        for fragment in kept.recorded((PREPARED, DECISION))
        for (kind, _), data in kept.load(fragment).records.items()
    )


class Fragments:
    """What a gate reaches, for whoever recovers transactions."""

    def __init__(self, simulation: Simulation, gate: Gate) -> None:
        self._simulation = simulation
        self._gate = gate

    def fragment(self, entity_id: int, number: int) -> FragmentPort | None:
        return self._gate.ways[entity_id].router.ports[number]

    async def in_doubt(self) -> list[FragmentId]:
        stores = self._simulation.stores
        return [each for store in stores for each in store.kept.recorded((PREPARED, DECISION))]

    async def may_be_held(self, entity_id: int) -> bool:
        return True


async def keep_promises(simulation: Simulation) -> None:
    """Until cancelled."""
    clock = VirtualClock(simulation.loop)
    while True:
        await asyncio.sleep(RECOVER_MS / 1000)
        for gate in simulation.gates():
            await TransactionRecovery(Fragments(simulation, gate), clock).recover()
