"""Brokers and gateways in processes of their own, joined by links that fail."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from shardbus.broker.broker import Broker
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.namespace.host import FragmentStatistics
from shardbus.broker.remote.broker import RemoteBroker
from shardbus.broker.remote.endpoint import Endpoint
from shardbus.broker.remote.link import Identity
from shardbus.broker.survey import Survey
from shardbus.core.namespace.entity import Entity, EntitySpec, spread_fragments
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.core.sequence import TOKEN_SEED_BYTES
from shardbus.stores.base.store import FragmentId
from tests.simulation.bus import Gate, Plan, Tap, Way, store_of
from tests.simulation.links import TO_BROKER, TO_GATEWAY, Line, Served
from tests.simulation.process import ProcessLoop
from tests.simulation.sending import Violation
from tests.simulation.simulation import GATEWAYS, Simulation
from tests.simulation.tally import befell
from tests.simulation.world import EPOCH_MS, VirtualClock, VirtualWorker

SECRET = b"known to every process of the simulation"
# Three silent ticks, and one until the next is counted.
SILENCE_S_MAX = 1.3
CUT, CUT_AFTER, STALL, CRASH, PAUSE, RESTART = range(6)


class TappedBroker:
    """A ServedBroker whose fragments the checker hears."""

    def __init__(self, broker: Broker, new_tap: Callable[[Entity, int], Tap]) -> None:
        self.name = broker.name
        self.taps: dict[FragmentId, Tap] = {}
        self._broker = broker
        self._new_tap = new_tap

    @property
    def namespace_id(self) -> str:
        return self._broker.namespace_id

    def runner(self, entity: Entity, number: int) -> Tap:
        fragment = FragmentId(entity.entity_id, number)
        if fragment not in self.taps:
            self.taps[fragment] = self._new_tap(entity, number)
        return self.taps[fragment]

    def configure(self, entity: Entity, numbers: Sequence[int]) -> None:
        self._broker.configure(entity, numbers)

    async def join(self, namespace_id: str, *, is_empty_expected: bool) -> int:
        return await self._broker.join(namespace_id, is_empty_expected=is_empty_expected)

    async def create_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        await self._broker.create_fragments(entity, numbers)

    async def update_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        await self._broker.update_fragments(entity, numbers)

    async def update_topic(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        await self._broker.update_topic(topic, subscriptions, numbers)

    async def delete_fragments(self, entity_id: int, numbers: Sequence[int]) -> None:
        await self._broker.delete_fragments(entity_id, numbers)

    async def fragment_ids(self, *, is_timed: bool = False) -> list[FragmentId]:
        return await self._broker.fragment_ids(is_timed=is_timed)

    async def in_doubt(self) -> list[FragmentId]:
        return await self._broker.in_doubt()

    async def transferring(self) -> list[FragmentId]:
        return await self._broker.transferring()

    async def loss(self) -> str:
        return await self._broker.loss()

    async def survey(self, since: int) -> Survey:
        return await self._broker.survey(since)

    async def statistics(self, entity_id: int, numbers: Sequence[int]) -> list[FragmentStatistics]:
        return await self._broker.statistics(entity_id, numbers)


class BrokerProcess:
    """One life of a broker: its loop, its workers, its fragments and its endpoint."""

    def __init__(self, cluster: "Cluster", index: int) -> None:
        self.loop = ProcessLoop(cluster.loop)
        store = cluster.stores[index]
        self._workers = [
            VirtualWorker(self.loop, store.latency_s, lambda: cluster.crash(index))
            for _ in range(2)
        ]
        store.unfit.begin()
        storage = Storage(store, self._workers[0], self._workers[1], self.loop)
        clock = VirtualClock(cluster.loop, cluster.walls[index])
        broker = Broker(broker_name(index), storage, clock, self.loop)
        right = VirtualClock(cluster.loop)

        def new_tap(entity: Entity, number: int) -> Tap:
            plan = cluster.plan_of(entity.entity_id)
            return Tap(broker.runner(entity, number), plan, cluster.checker, right)

        self.broker = TappedBroker(broker, new_tap)
        self._endpoint = Endpoint(
            self.broker,
            SECRET,
            loop=self.loop,
            monotonic_s=self.loop.time,
            new_nonce=lambda: cluster.chance.randbytes(32),
        )
        self.served = Served(self.loop, self._endpoint.accept)
        self._ended = asyncio.Event()
        cluster.keep(self._serve())

    def die(self) -> None:
        """Nothing is written or answered any more; what was under way is unknown."""
        self.loop.die()
        for worker in self._workers:
            worker.die()
        for tap in self.broker.taps.values():
            tap.runner.stop()
        self._ended.set()

    async def _serve(self) -> None:
        async with self._endpoint:
            await self._ended.wait()


class Gateway:
    """One life of a gateway. Implements `Gate`."""

    def __init__(self, cluster: "Cluster", index: int, lines: list[Line]) -> None:
        self.is_dead = False
        self._wall = cluster.walls[len(cluster.stores) + index]
        self._remotes = [
            RemoteBroker(
                Identity(f"gateway-{index}", broker_name(number), SECRET),
                line.dial,
                loop=cluster.loop,
                new_nonce=lambda: cluster.chance.randbytes(32),
            )
            for number, line in enumerate(lines)
        ]
        self._tasks = [cluster.keep(remote.run()) for remote in self._remotes]
        self.ways = {plan.entity_id: self._way(cluster, plan) for plan in cluster.plans}

    def is_available(self) -> bool:
        return all(port.is_available for way in self.ways.values() for port in way.router.ports)

    def check_silence(self, lines: list[Line]) -> None:
        """A broker that is not heard is known to be out soon after."""
        for remote, line in zip(self._remotes, lines, strict=True):
            silent_s = line.loop.time() - line.heard_at_s
            if remote.is_up and silent_s > SILENCE_S_MAX:
                raise Violation(f"{remote.name} is silent for {silent_s:.3f} s and deemed to be up")

    def owed(self) -> list[bytes]:
        """The seeds of what it has not let go yet, because its broker is out."""
        tokens: list[bytes] = []
        seeds: list[bytes] = []
        for remote in self._remotes:
            for fragment in remote._fragments.values():
                tokens += fragment._to_release + fragment._sessions_to_release
            given_up = [one.taking for one in remote._given_up.values()]
            seeds += [taking.token_seed for taking in given_up if taking is not None]
        return seeds + [token[-TOKEN_SEED_BYTES:] for token in tokens]

    def die(self) -> None:
        """The clients' connections end, and with them every promise that was not kept yet."""
        self.is_dead = True
        for task in self._tasks:
            task.cancel()

    def _way(self, cluster: "Cluster", plan: Plan) -> Way:
        entity = entity_of(plan, len(self._remotes))
        return Way(
            plan,
            [
                self._remotes[store_of(fragment, len(self._remotes))].runner(
                    entity, fragment.number
                )
                for fragment in plan.fragment_ids()
            ],
            loop=cluster.loop,
            clock=VirtualClock(cluster.loop, self._wall),
            new_seed=lambda: cluster.chance.randbytes(8),
        )


class Cluster(Simulation):
    """Two gateways over the same brokers, each broker with a store of its own."""

    def __init__(self, seed: int, plans: list[Plan], chance: Random) -> None:
        super().__init__(seed, plans, chance, [1, 2, 3])
        self.disasters: Counter[int] = Counter()
        self._losses: list[list[tuple[int, int]]] = [[] for _ in self.stores]
        self._processes: list[BrokerProcess | None] = [None for _ in self.stores]
        self._lines = [
            [self._line(index) for index, _ in enumerate(self.stores)] for _ in range(GATEWAYS)
        ]
        self.checker.may_lose = self._may_lose
        for index in range(len(self.stores)):
            self._start_broker(index)
        self._gateways = [Gateway(self, number, lines) for number, lines in enumerate(self._lines)]

    # Simulation.

    async def bus_up(self, plan: Plan) -> Gateway:
        # Two ways to a fragment have no order between them.
        is_choosy = plan.is_ordered_by is not None or plan.is_patient
        return self._gateways[0 if is_choosy else self.chance.randrange(GATEWAYS)]

    def gate_beside(self, gate: Gate) -> Gate:
        return self.chance.choice(self._gateways) if self.chance.random() < 0.2 else gate

    def gates(self) -> list[Gate]:
        return list(self._gateways)

    def taps_of(self, plan: Plan) -> list[Tap]:
        return [
            process.broker.taps[fragment]
            for fragment in plan.fragment_ids()
            if (process := self._processes[store_of(fragment, len(self.stores))]) is not None
        ]

    def opened_of(self, plan: Plan) -> list[Tap]:
        running = [process for process in self._processes if process is not None]
        opened = [process.broker.taps for process in running]
        return [taps[one] for one in plan.fragment_ids() for taps in opened if one in taps]

    def is_whole(self) -> bool:
        return None not in self._processes and all(map(Gateway.is_available, self._gateways))

    def start_disasters(self, chaos_s: float, clients: asyncio.TaskGroup) -> None:
        if not self.faults.severity:
            return
        kinds = self.chance.sample(range(6), self.chance.choice([1, 1, 2, 4, 6]))
        if self.chance.random() < 0.2:
            # Nothing is lost for good, so nothing is forgiven.
            kinds = [STALL]
        self.loop.call_later(SILENCE_S_MAX, self._check_silence)
        at_s = self.chance.expovariate(self.faults.severity)
        while at_s < chaos_s:
            self.loop.call_later(at_s, self._befall, self.chance.choice(kinds))
            at_s += self.chance.expovariate(self.faults.severity)

    def calm(self) -> None:
        super().calm()
        for lines in self._lines:
            for line in lines:
                line.calm()
        for process in self._processes:
            if process is not None:
                process.loop.resume(timers_first=self.chance.random() < 0.5)

    # What goes wrong.

    def crash(self, index: int) -> None:
        """A broker dies, now; it is started again after a while."""
        dead, self._processes[index] = self._processes[index], None
        if dead is None:
            return
        self.crashes += 1
        befell("broker crash")
        self.note(f"broker {index} crashes")
        for lines in self._lines:
            lines[index].cut(0.0)
        dead.die()
        self._lost(index, 0.0)
        self.check_conservation()
        self.loop.call_later(self.chance.uniform(0.05, 3.0), self._start_broker, index)

    def plan_of(self, entity_id: int) -> Plan:
        return next(plan for plan in self.plans if plan.entity_id == entity_id)

    def _befall(self, kind: int) -> None:
        if self.is_over:
            return
        chance = self.chance
        index = chance.randrange(len(self.stores))
        line = chance.choice(self._lines)[index]
        self.note(f"disaster {kind} at broker {index}")
        self.disasters[kind] += 1
        if kind == CUT:
            befell("cut link")
            line.cut(chance.choice([0.0, 0.0, 1.0, 5.0]))
        elif kind == CUT_AFTER:
            befell("cut link")
            line.cut_after(chance.choice([TO_BROKER, TO_GATEWAY]), chance.randint(0, 3_000))
        elif kind == STALL:
            befell("link stall")
            seconds = chance.choice([0.2, 1.0, 3.0, 8.0, 35.0])
            for direction in chance.choice([[TO_BROKER], [TO_GATEWAY], [TO_BROKER, TO_GATEWAY]]):
                line.stall(direction, seconds)
        elif kind == CRASH:
            self.crash(index)
        elif kind == PAUSE:
            self._pause(index, chance.choice([0.2, 0.7, 2.0, 8.0, 35.0]))
        else:
            self._restart_gateway(chance.randrange(GATEWAYS))

    def _check_silence(self) -> None:
        for gateway, lines in zip(self._gateways, self._lines, strict=True):
            gateway.check_silence(lines)
        if not self.is_over:
            self.loop.call_later(SILENCE_S_MAX / 3, self._check_silence)

    def _pause(self, index: int, seconds: float) -> None:
        process = self._processes[index]
        if process is None or process.loop.is_paused:
            return
        befell("process pause")
        process.loop.pause()
        self._lost(index, seconds)

        def resume() -> None:
            process.loop.resume(timers_first=self.chance.random() < 0.5)

        self.loop.call_later(seconds, resume)

    def _restart_gateway(self, number: int) -> None:
        befell("gateway crash")
        for index in range(len(self.stores)):
            self._lost(index, 0.0)
        # What it would have let go later ends by its own deadline.
        self.checker.forgiven.update(self._gateways[number].owed())
        self._gateways[number].die()
        self._gateways[number] = Gateway(self, number, self._lines[number])

    # Lives.

    def _start_broker(self, index: int) -> None:
        self._processes[index] = BrokerProcess(self, index)
        self.note(f"broker {index} starts")

    def _line(self, index: int) -> Line:
        def served() -> Served | None:
            process = self._processes[index]
            return None if process is None else process.served

        # What was lost with a connection is let go as soon as there is another one.
        return Line(self.loop, self.chance, served, lambda seconds: None)

    def _lost(self, index: int, seconds: float) -> None:
        """What a broker says from now on, for so long, may never be heard."""
        now_ms = EPOCH_MS + int(self.loop.time() * 1000)
        self._losses[index].append((now_ms, now_ms + int(seconds * 1000) + 1))

    def _may_lose(self, fragment: FragmentId, from_ms: int, to_ms: int) -> bool:
        losses = self._losses[store_of(fragment, len(self.stores))]
        return any(start <= to_ms and from_ms <= end for start, end in losses)


def broker_name(index: int) -> str:
    return f"broker-{index}"


def entity_of(plan: Plan, brokers: int) -> Entity:
    spec = EntitySpec()
    spec.lock_ms = plan.rules.lock_ms
    spec.delivery_count_max = plan.rules.delivery_count_max
    spec.default_ttl_ms = (
        plan.rules.default_ttl_ms if plan.rules.default_ttl_ms >= 0 else INFINITE_MS
    )
    spec.dead_letters_on_expiration = plan.rules.dead_letters_on_expiration
    spec.requires_session = plan.rules.requires_session
    spec.requires_duplicate_detection = plan.rules.duplicate_window_ms > 0
    spec.duplicate_window_ms = plan.rules.duplicate_window_ms
    spec.is_partitioned = plan.rules.is_partitioned
    spec.lifecycle = plan.rules.lifecycle
    entity = Entity(plan.entity_id, f"entity-{plan.entity_id}", spec, EPOCH_MS)
    entity.fragments = spread_fragments(plan.entity_id, plan.fragments, brokers)
    entity.hash_starts = even_hash_starts(plan.fragments)
    return entity
