"""The demo between the ready line and its summary."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, final

from shardbus.app.cli.access import ClientAccess
from shardbus.demo import words
from shardbus.demo.capture import DemoCapture
from shardbus.demo.picture import Picture, PlacePicture
from shardbus.demo.preparing import Preparing
from shardbus.demo.scene import EVENTS, ORDERS, Scene
from shardbus.demo.show import Show
from shardbus.demo.tally import Rate
from shardbus.demo.troupe import Troupe
from shardbus.demo.turns import pause

DRAW_S: Final = 0.5
# Together less than the three seconds in which Ctrl-C ends the demo: a batch that takes longer is
# done again at the next start.
CURTAIN_S: Final = 0.5
CAPTURE_END_S: Final = 1.5


@final
class Performance:
    """One run of the demo: the actors, the installation of Spark, and the output."""

    def __init__(
        self,
        access: ClientAccess,
        scene: Scene,
        place: PlacePicture,
        *,
        orders_per_s: int,
        prepare: str,
    ) -> None:
        self._place = place
        self._topic = EVENTS if scene.has_topic else ""
        self._preparing = Preparing(prepare)
        self._capture = DemoCapture(access.api(), scene.captured, self._preparing)
        self._troupe = Troupe(access, scene, self._capture, orders_per_s=orders_per_s)
        self._began_s = time.monotonic()
        self._rates = tuple(Rate() for _ in range(4))

    def complain(self, problem: str) -> None:
        self._troupe.complain(problem)

    async def run(
        self, show: Show, stopping: asyncio.Event, is_served: Callable[[], bool]
    ) -> list[str]:
        """Run until told to stop, or the end of the bus; returns the summary."""
        async with asyncio.TaskGroup() as tasks:
            acting = tasks.create_task(self._troupe.run())
            installing = tasks.create_task(self._preparing.run())
            try:
                while not stopping.is_set() and _is_seen(show, self._picture()):
                    await pause(DRAW_S, stopping)
                self._troupe.over.set()
                picture = replace(self._picture(), ending="ending; Ctrl-C: at once")
                _is_seen(show, picture)
                installing.cancel()
                # A second Ctrl-C does not wait for the last batch.
                stopping.clear()
                await asyncio.wait({acting}, timeout=CURTAIN_S)
                seen = await self._capture.stop(CAPTURE_END_S, stopping) if is_served() else None
            finally:
                acting.cancel()
                installing.cancel()
        last = replace(self._picture(), elapsed_s=picture.elapsed_s)
        return words.summary(last if seen is None else replace(last, capturing=seen))

    def _picture(self) -> Picture:
        now_s = time.monotonic()
        counts, seen = self._troupe.counts, self._troupe.seen
        totals = (counts.sent, counts.received, counts.completed, counts.published)
        sent, received, completed, published = (
            rate.add(now_s, total) for rate, total in zip(self._rates, totals, strict=True)
        )
        return Picture(
            self._place,
            now_s - self._began_s,
            queue=ORDERS,
            topic=self._topic,
            counts=counts,
            sent_per_s=sent,
            received_per_s=received,
            completed_per_s=completed,
            published_per_s=published,
            fragments=seen.fragments,
            scheduled=seen.scheduled,
            dead_letters=seen.dead_letters,
            subscriptions=seen.subscriptions,
            capturing=self._capture.shown(seen.pipeline, now_s),
            problem=self._troupe.problem,
        )


def _is_seen(show: Show, picture: Picture) -> bool:
    """Show a picture; False when the reader of the output has gone, which ends the demo."""
    try:
        show.show(picture)
    except BrokenPipeError:
        return False
    return True
