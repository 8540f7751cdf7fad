"""One receive over HTTP: waits for one message, and leaves nothing locked."""

from __future__ import annotations

import asyncio
from typing import final

from shardbus.broker.routing.dispatch import Dispatcher
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import Refused
from shardbus.core.messages.command import Delivery

# How long fragments may take to report that they have nothing, when the client does not want to
# wait.
LOOK_MS_MAX = 1000


@final
class HeadReceiver:
    """A dispatch.Receiver with one credit.

    It locks even when the message is to be deleted: a message removed for a client that has gone,
    or whose time is over, would be lost.
    """

    def __init__(self, router: EntityRouter, line: int, wait_ms: int) -> None:
        self._router = router
        self._dispatcher: Dispatcher = router.dispatcher(line)
        self._wait_ms = wait_ms
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Delivery | None] = self._loop.create_future()

    @property
    def is_locking(self) -> bool:
        return True

    @property
    def is_draining(self) -> bool:
        return self._wait_ms == 0

    async def receive(self) -> Delivery | None:
        """The first message that comes; None when none came in time, or `end` was called."""
        timer = self._loop.call_later((self._wait_ms or LOOK_MS_MAX) / 1000, self.end)
        self._dispatcher.add(self, "http")
        try:
            self._dispatcher.wake(self)
            return await asyncio.shield(self._answer)
        except asyncio.CancelledError:
            self._give_back()
            raise
        finally:
            timer.cancel()
            self._dispatcher.remove(self)

    def end(self) -> None:
        """Stop waiting."""
        if not self._answer.done():
            self._answer.set_result(None)

    def fail(self, failure: Refused) -> None:
        """Stop with a failure."""
        if not self._answer.done():
            self._answer.set_exception(failure)

    def credit(self) -> int:
        return 0 if self._answer.done() else 1

    def deliver(self, deliveries: list[Delivery]) -> int:
        [delivery] = deliveries
        self._answer.set_result(delivery)
        return 1

    def drained(self) -> None:
        self.end()

    def lost(self, failure: Refused) -> None:
        self.fail(failure)

    def _give_back(self) -> None:
        """The request was cancelled; a message that came for it returns to its place."""
        self.end()
        if self._answer.exception() is None:
            delivery = self._answer.result()
            if delivery is not None:
                release(self._router, delivery)


def release(router: EntityRouter, *deliveries: Delivery) -> None:
    """Unlock messages that nobody got; if that fails, their locks expire."""
    router.release([delivery.token for delivery in deliveries])
