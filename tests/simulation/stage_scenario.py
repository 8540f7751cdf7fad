"""Sinks stage and publish batches, and begin anew with other tasks, while processes die."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.asking import ask
from shardbus.broker.operations.recovering import TransactionRecovery
from shardbus.broker.operations.staging import DECIDE_MS, EntityStages
from shardbus.core.errors import (
    BATCH_DIFFERS,
    BEING_PUBLISHED,
    QUOTA_EXCEEDED,
    STAGE_LOST,
    Refused,
    Unavailable,
)
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.records import DECISION, PREPARED, PRODUCER, PUBLISHING, STAGE
from shardbus.core.limits import PRODUCER_ONCE_KEPT_MS, STAGE_MS_MIN
from shardbus.core.message import MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import COMPLETE, Receive, Received, Settle, Settled
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.stages.record import unpack_producer
from shardbus.core.transactions.command import COMMITTED
from shardbus.stores.base.store import FragmentCommit
from tests.simulation.reader_scenario import CutSite
from tests.simulation.sending import Violation
from tests.simulation.sites import Site, SitePort
from tests.simulation.stage_book import (
    BEFORE,
    DIFFERS,
    PENDING,
    PUBLISHED,
    REFUSED,
    SETTLED,
    Batch,
    Row,
    StageBook,
)
from tests.simulation.town import Gateway, Town, outcome_of

CHAOS_S = (60.0, 120.0)
DRAIN_S_MAX = 60.0 + 2 * STAGE_MS_MIN / 1000 + 2 * DECIDE_MS / 1000
QUEUES = ("plain", "parted")
SINKS = 4
ROWS = range(1, 10)
# Producers of one batch count from here.
ONCE = 2_000
PUBLISH_TRIES = 4
PIECE_TRIES = 3
LAST_TRIES = 5


class BittenSite(CutSite):
    """Where most of what is published is stored in bites."""

    bounds = Bounds(whole_count_max=2, bite_count_max=1, checked_bytes_max=60)


class StageTown(Town):
    def __init__(self, seed: int) -> None:
        self.book = StageBook()
        super().__init__(seed, sites=3)

    def new_site(self, name: str) -> Site:
        return BittenSite(name, self.loop, self.chance, self.faults, self.stored)

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        self.book.stored(commits)

    def once(self) -> list[str]:
        """The producers on all disks that have published their only batch."""
        return [
            producer.name.decode()
            for site in self.sites
            for fragment in site.disk.kept.fragments()
            for (kind, key), data in site.disk.kept.load(fragment).records.items()
            if kind == PRODUCER
            for producer in [unpack_producer(key, data)]
            if producer.is_once or key.startswith(b"write ")
        ]

    def is_empty(self) -> bool:
        """Whether no disk holds a message, a stage, a promise, or a decision to commit."""
        kept = [site.disk.kept for site in self.sites]
        return (
            super().is_empty()
            and not any(each.stages for store in kept for each in store._fragments.values())
            and not any(
                kind in (STAGE, PREPARED, PUBLISHING) or (kind == DECISION and data[0] == COMMITTED)
                for store in kept
                for fragment in store.fragments()
                for (kind, _), data in store.load(fragment).records.items()
            )
        )


class Run:
    """One attempt to publish a batch: its tasks stage some rows each."""

    def __init__(self, town: StageTown, queue: str, batch: Batch, rows: str = "") -> None:
        """`rows` tells those of the batch from others under its number."""
        self._fingerprint = f"{batch.number}{rows}"
        self.number = town.new_mark()
        self._town = town
        self._queue = queue
        self._batch = batch
        self._counts: dict[str, int] = {}
        self._job = f"{self.number}/"
        # When it began, or was last heard of by all fragments.
        self._heard_s = town.loop.time()
        # A piece was repeated, and may be somewhere else, too.
        self._is_doubtful = False

    async def go(self) -> str:
        """How it ended; what is PENDING may happen yet."""
        town = self._town
        outcome = REFUSED
        if await self._stage():
            if town.chance.random() < 0.1 and not town.is_over:
                # A straggler: the time of the stages may be over meanwhile.
                await asyncio.sleep(town.chance.uniform(0.8, 1.2) * STAGE_MS_MIN / 1000)
            elif town.chance.random() < 0.1:
                await self._prolong()
            outcome = await self._publish()
        if self._batch.is_once and outcome in (PUBLISHED, SETTLED):
            await self._forget()
        if (outcome != PENDING or self._batch.is_once) and town.chance.random() < 0.5:
            # All attempts, also those that were not chosen.
            gateway = await town.open_gateway()
            await town.attempt(gateway, _staging(gateway, self._queue).discard([self._job]))
        town.note(f"run {self.number} of batch {self._batch.number}: {outcome}")
        town.book.told(self._batch, self.number, outcome)
        return outcome

    async def _forget(self) -> None:
        """A producer that has no other batch is done; it says so once, whatever comes of that."""
        town, name = self._town, self._batch.producer_name
        gateway = await town.open_gateway()
        answer = await town.attempt(gateway, _staging(gateway, self._queue).forget(name))
        if isinstance(answer, Refused | Unavailable):
            town.book.events["not forgotten"] += 1
        elif name in town.once():
            raise Violation(f"producer {name} was told that it is forgotten, and is stored")
        else:
            town.book.events["forgotten"] += 1

    async def _prolong(self) -> None:
        """A straggler that says that it lives: nothing of its job ends."""
        town = self._town
        for _ in range(4):
            await asyncio.sleep(town.chance.uniform(0.1, 0.4) * STAGE_MS_MIN / 1000)
            gateway = await town.open_gateway()
            began_s = town.loop.time()
            work = _staging(gateway, self._queue).prolong([self._job])
            answer = await town.attempt(gateway, work)
            if isinstance(answer, Refused | Unavailable) or answer.missing:
                return
            self._heard_s = began_s
            town.book.events["prolonged"] += 1

    async def _stage(self) -> bool:
        rows = list(range(self._batch.rows))
        tasks = self._town.chance.randint(1, 3)
        staged = [await self._task(task, rows[task::tasks]) for task in range(tasks)]
        return all(staged)

    async def _task(self, task: int, rows: list[int]) -> bool:
        """One task; some fail half-way and are begun anew as other attempts, which win."""
        chance = self._town.chance
        for attempt in range(3):
            stage = f"{self._job}{task}-{attempt}"
            step = chance.randint(1, 4)
            pieces = [rows[at : at + step] for at in range(0, len(rows), step)]
            if chance.random() < 0.15:
                await self._pieces(stage, pieces[:-1])
            elif await self._pieces(stage, pieces):
                self._counts[stage] = len(rows)
                return True
        return False

    async def _pieces(self, stage: str, pieces: list[list[int]]) -> bool:
        for piece, rows in enumerate(pieces):
            if not await self._piece(stage, piece, rows):
                return False
        return True

    async def _piece(self, stage: str, piece: int, rows: list[int]) -> bool:
        town, batch = self._town, self._batch
        messages = [
            Message(
                Row(batch.producer, batch.number, row, self.number).payload(row % 3 * 20),
                partition_key=f"key {row}" if row % 2 else None,
                # What is scheduled is not adopted where it lies, even if its time has come.
                scheduled_at_ms=1 if row % 3 == 0 else NEVER_MS,
            )
            for row in rows
        ]
        for _ in range(PIECE_TRIES):
            gateway = await town.open_gateway()
            staging = _staging(gateway, self._queue)
            work = staging.stage(stage, piece, messages, lifetime_ms=STAGE_MS_MIN)
            answer = await town.attempt(gateway, work)
            if not isinstance(answer, Refused | Unavailable):
                town.book.events["staged"] += 1
                return True
            # A full disk takes nothing in; a moment later it may.
            if isinstance(answer, Refused) and answer.kind is not QUOTA_EXCEEDED:
                raise Violation(f"nothing is wrong with piece {piece}: {answer}")
            self._is_doubtful = True
            await asyncio.sleep(town.chance.uniform(0.0, 1.0))
        return False

    async def _publish(self) -> str:
        town, batch = self._town, self._batch
        outcome = REFUSED
        for _ in range(PUBLISH_TRIES):
            gateway = await town.open_gateway()
            staging = _staging(gateway, self._queue)
            work = staging.publish(
                batch.producer_name,
                batch.number,
                self._counts,
                fingerprint=self._fingerprint,
                is_once=batch.is_once,
            )
            answer = await self._asked(gateway, work)
            if isinstance(answer, Refused) and answer.kind is BATCH_DIFFERS:
                return DIFFERS
            if isinstance(answer, bool):
                is_known = outcome != PENDING
                return PUBLISHED if answer else BEFORE if is_known else SETTLED
            if isinstance(answer, Unavailable) and answer.is_unknown:
                outcome = PENDING
                town.book.events["unknown"] += 1
            if isinstance(answer, Refused) and answer.kind is BEING_PUBLISHED:
                outcome = PENDING
                town.book.events["being published"] += 1
            if isinstance(answer, Refused) and answer.kind is STAGE_LOST:
                self._check_lost(answer)
                return REFUSED
            await asyncio.sleep(town.chance.uniform(0.0, 2.0))
        return outcome

    async def _asked(
        self, gateway: Gateway, work: Coroutine[object, object, bool]
    ) -> bool | Refused | Unavailable:
        """Some clients do not wait for their answer, and ask again while the first is at it."""
        town = self._town
        if town.chance.random() < 0.9:
            return await town.attempt(gateway, work)
        asking = town.loop.create_task(town.attempt(gateway, work))
        await asyncio.wait({asking}, timeout=town.chance.expovariate(10.0))
        if asking.done():
            return asking.result()
        town.book.events["impatient"] += 1
        return Unavailable("nobody waited for it", is_unknown=True)

    def _check_lost(self, refusal: Refused) -> None:
        """A stage that was accepted is there until its time is over."""
        is_early = self._town.loop.time() < self._heard_s + STAGE_MS_MIN / 1000
        if is_early and not self._is_doubtful:
            raise Violation(f"run {self.number} lost what it had staged: {refusal}")
        self._town.book.events["doubled" if is_early else "expired"] += 1


class Sink:
    """A producer: one batch after the other, each until it is published."""

    def __init__(self, town: StageTown, number: int, rows: Sequence[int] = ROWS) -> None:
        """A batch has as many rows as one of `rows`."""
        self._town = town
        self._number = number
        self._rows = rows
        self._queue = QUEUES[number % len(QUEUES)]
        self._batches = 0

    async def run(self) -> None:
        town, chance = self._town, self._town.chance
        while not town.is_over:
            await asyncio.sleep(chance.expovariate(1.0))
            batch = Batch(self._number, self._batches, chance.choice(self._rows))
            self._batches += 1
            town.book.begin(batch)
            while not batch.is_published and not town.is_over:
                await self._try(batch)
            if chance.random() < 0.2 and batch.is_published:
                # The driver died before it had noted that the batch is done.
                await self._again(batch)
            if chance.random() < 0.2 and batch.is_published:
                await self._set_back()

    async def finish(self) -> None:
        """Without faults the last batch is published, too."""
        for batch in self._town.book.batches:
            if batch.producer != self._number or batch.is_published:
                continue
            for _ in range(LAST_TRIES):
                if not batch.is_published:
                    await self._attempt(batch)
            if not batch.is_published:
                raise Violation(f"batch {batch.number} of {self._number} cannot be published")

    async def _try(self, batch: Batch) -> None:
        # Two drivers that do not know of each other: one of them wins.
        rivals = 2 if self._town.chance.random() < 0.2 else 1
        outcomes = await asyncio.gather(*(self._attempt(batch) for _ in range(rivals)))
        if rivals == 2 and PUBLISHED in outcomes and BEFORE in outcomes:
            self._town.book.events["rivals"] += 1
        await asyncio.sleep(self._town.chance.uniform(0.0, 1.0))

    async def _again(self, batch: Batch) -> None:
        if await self._attempt(batch) == PUBLISHED:
            raise Violation(f"batch {batch.number} of {self._number} was published again")
        self._town.book.events["repeated"] += 1

    async def _set_back(self) -> None:
        """A checkpoint was restored: a number that was used comes with other rows."""
        chance = self._town.chance
        number = chance.randint(max(self._batches - 3, 0), self._batches - 1)
        outcome = await self._attempt(Batch(self._number, number, chance.randint(1, 9)), " other")
        if outcome in (PUBLISHED, BEFORE, SETTLED):
            raise Violation(f"other rows under {number} of {self._number}: {outcome}")

    async def _attempt(self, batch: Batch, rows: str = "") -> str:
        return await Run(self._town, self._queue, batch, rows).go()


class Writer:
    """Writes that nobody repeats: each is a producer of its own, with one batch."""

    def __init__(self, town: StageTown, queue: str) -> None:
        self._town = town
        self._queue = queue

    async def run(self) -> None:
        town, chance = self._town, self._town.chance
        while not town.is_over:
            await asyncio.sleep(chance.expovariate(1.0))
            batch = Batch(ONCE + town.new_mark(), 1, chance.randint(0, 9), is_once=True)
            town.book.begin(batch)
            run = Run(town, self._queue, batch)
            task = town.loop.create_task(run.go())
            if chance.random() < 0.15:
                await asyncio.wait({task}, timeout=chance.expovariate(0.5))
            else:
                await asyncio.wait({task})
            if task.done():
                task.result()
                continue
            # The driver dies. What it has asked for goes on without it.
            task.cancel()
            town.note(f"run {run.number} is left alone")
            town.book.told(batch, run.number, PENDING)
            town.book.events["left alone"] += 1


def run_stages(seed: int) -> StageTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = StageTown(seed)
    town.play(_play(town))
    return town


def run_stage_maps(seed: int) -> StageTown:
    """The same while the queues get other fragments."""
    town = StageTown(seed)
    town.play(_play(town, is_remapped=True))
    return town


async def found_queues(town: StageTown) -> None:
    town.faults.is_paused = True
    town.start_gateway()
    gateway = await town.open_gateway()
    for name in QUEUES:
        spec = EntitySpec()
        spec.is_partitioned = name == "parted"
        await gateway.namespace.create_queue(name, spec)
    town.faults.is_paused = False


async def _play(town: StageTown, *, is_remapped: bool = False) -> None:
    await found_queues(town)
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)
    sinks = [Sink(town, number) for number in range(SINKS)]
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(recover(town))
        clients.create_task(_receive_on(town))
        for name in QUEUES if is_remapped else ():
            clients.create_task(_repartition(town, name))
        for sink in sinks:
            clients.create_task(sink.run())
        for name in QUEUES:
            clients.create_task(Writer(town, name).run())
    gateway = await town.whole()
    for sink in sinks:
        await sink.finish()
    await drain(town, gateway)
    town.book.finish()


async def recover(town: StageTown) -> None:
    """Other gateways recover too, in the middle of everything."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(4.0))
        gateway = await town.open_gateway()
        await town.attempt(gateway, TransactionRecovery(gateway.bus, town.clock).recover())


async def _receive_on(town: StageTown) -> None:
    """Somebody looks for messages all the time, and lets them go again."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(2.0))
        gateway = await town.open_gateway()
        for port in _ports(gateway):
            command = Receive(MAIN_LINE, 2, is_locking=True, token_seed=town.seed())
            await town.attempt(gateway, ask(port, command))


async def _repartition(town: StageTown, name: str) -> None:
    """Once: nobody completes messages, and former fragments must be empty before the next time."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(2.0))
        gateway = await town.open_gateway()
        changing = gateway.namespace.maps.change(name, town.chance.choice((1, 2, 4)))
        outcome = outcome_of(await town.attempt(gateway, changing))
        town.book.events[f"repartitioned {outcome}"] += 1
        if outcome == "accepted":
            return


async def drain(town: StageTown, gateway: Gateway) -> None:
    """Until nothing is left: no message, no stage, no promise, and none that published once."""
    deadline_s = town.loop.time() + DRAIN_S_MAX
    while not town.is_empty():
        if town.loop.time() > deadline_s:
            raise Violation("it takes too long until nothing is left")
        for port in _ports(gateway):
            await _take(town, gateway, port)
        await asyncio.sleep(1)
    if town.once():
        # Whose driver died, or could not say that it is done.
        town.book.events["outlived"] += 1
        await asyncio.sleep(PRODUCER_ONCE_KEPT_MS / 1000 + 1)
    if town.once():
        raise Violation(f"{town.once()} have published once, and are remembered for ever")


async def _take(town: StageTown, gateway: Gateway, port: SitePort) -> None:
    command = Receive(MAIN_LINE, 100, is_locking=True, token_seed=town.seed())
    received = await town.attempt(gateway, ask(port, command))
    if not isinstance(received, Received):
        raise Violation(f"without faults {port.fragment_id} answered {received}")
    if received.deliveries:
        tokens = [delivery.token for delivery in received.deliveries]
        settled = await town.attempt(gateway, ask(port, Settle(COMPLETE, tokens)))
        if not isinstance(settled, Settled) or any(settled.lost):
            raise Violation(f"without faults {port.fragment_id} answered {settled}")
        town.book.received([delivery.payload for delivery in received.deliveries])


def _staging(gateway: Gateway, queue: str) -> EntityStages:
    return handle_of(gateway, queue).staging


def handle_of(gateway: Gateway, queue: str) -> EntityHandle:
    handle = gateway.bus.find(queue)
    assert handle is not None
    return handle


def _ports(gateway: Gateway) -> list[SitePort]:
    ports: list[SitePort] = []
    for name in QUEUES:
        runners = handle_of(gateway, name).runners
        ports += [port for port in runners if isinstance(port, SitePort)]
    return ports
