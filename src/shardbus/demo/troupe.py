"""All actors of the demo, turn by turn, until it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from random import Random
from typing import Final, final

from shardbus.app.cli.access import ClientAccess
from shardbus.demo.capture import DemoCapture
from shardbus.demo.orders import OrderBook
from shardbus.demo.scene import EVENTS, LARGE, Scene
from shardbus.demo.tally import Counts, orders_due
from shardbus.demo.trickle import (
    DEAD_LETTERS_KEPT,
    SEND_MAX,
    OrderWorker,
    Sender,
    Subscriber,
    remove_dead_letters,
)
from shardbus.demo.turns import turns
from shardbus.demo.watching import Seen, Watcher

WORKERS: Final = 2
SEND_TURN_S: Final = 0.25
WORK_TURN_S: Final = 0.6
LOOK_TURN_S: Final = 0.5
CARE_TURN_S: Final = 2.0
PROBLEM_S: Final = 20.0
# Together they take a little more than the average rate, and less than the peak of a wave.
WORK_SHARE: Final = 0.34


@final
class Troupe:
    """Acts until `over` is set; `counts` is what it did and `seen` what it saw."""

    def __init__(
        self, access: ClientAccess, scene: Scene, capture: DemoCapture, *, orders_per_s: int
    ) -> None:
        self._access = access
        self._scene = scene
        self._capture = capture
        self._per_s = orders_per_s
        self._problem = ""
        self._problem_at_s = 0.0
        self.over = asyncio.Event()
        self.counts = Counts()
        self.seen = Seen()

    async def run(self) -> None:
        """Run until it ends; a turn that has begun is finished, so that the counts are right."""
        topic = EVENTS if self._scene.has_topic else ""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._send())
            for _ in range(WORKERS):
                tasks.create_task(self._work(OrderWorker(self._access.api(), topic)))
            if topic:
                tasks.create_task(self._subscribe(Subscriber(self._access.api(), LARGE)))
            tasks.create_task(self._take_care())

    def complain(self, problem: str) -> None:
        self._problem, self._problem_at_s = problem, time.monotonic()

    @property
    def problem(self) -> str:
        """A recent failure."""
        return self._problem if time.monotonic() - self._problem_at_s < PROBLEM_S else ""

    async def _turns(self, turn: Callable[[], Awaitable[None]], turn_s: float) -> None:
        await turns(turn, turn_s, self.over, self.complain)

    async def _watch(self) -> None:
        watcher = Watcher(self._access.api(), self._scene)

        async def turn() -> None:
            self.seen = await asyncio.to_thread(watcher.step, time.monotonic())

        await self._turns(turn, LOOK_TURN_S)

    async def _send(self) -> None:
        run = f"{int(time.time()):x}"
        book = OrderBook(Random(run), run)
        sender = Sender(self._access.api(), book, lambda: datetime.now(UTC))
        began_s, done = time.monotonic(), 0

        async def turn() -> None:
            nonlocal done
            due = orders_due(time.monotonic() - began_s, self._per_s)
            # After a suspend of the machine the missed orders are not sent.
            count = min(due - done, SEND_MAX, 2 * self._per_s)
            done = due
            self._add(await asyncio.to_thread(sender.step, count))

        await self._turns(turn, SEND_TURN_S)

    async def _work(self, worker: OrderWorker) -> None:
        async def turn() -> None:
            waiting = sum(fragment.waiting for fragment in self.seen.fragments)
            # A long queue is emptied faster, so that it cannot grow for ever.
            count = max(round(self._per_s * WORK_SHARE), waiting // 8, 1)
            self._add(await asyncio.to_thread(worker.step, count))

        await self._turns(turn, WORK_TURN_S)

    async def _subscribe(self, subscriber: Subscriber) -> None:
        async def turn() -> None:
            self._add(await asyncio.to_thread(subscriber.step))

        await self._turns(turn, WORK_TURN_S)

    async def _take_care(self) -> None:
        api = self._access.api()

        async def turn() -> None:
            excess = self.seen.dead_letters - DEAD_LETTERS_KEPT
            if excess > 0:
                await asyncio.to_thread(remove_dead_letters, api, excess)
            await self._capture.turn(self.seen.pipeline, time.monotonic())

        await self._turns(turn, CARE_TURN_S)

    def _add(self, counts: Counts) -> None:
        self.counts += counts
