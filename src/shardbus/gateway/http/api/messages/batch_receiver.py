"""One receive of several messages: waits for the first, and takes others that are available."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from shardbus.broker.routing.dispatch import Dispatcher
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import TIMEOUT, Refused, Unavailable
from shardbus.core.messages.command import Delivery
from shardbus.core.namespace.entity import Entity
from shardbus.core.sessions.command import SessionAccepted
from shardbus.gateway.http.messaging.head_receiver import LOOK_MS_MAX, release
from shardbus.gateway.http.server.message import Departure

# Taken at once: memory can exceed `BYTES_MAX` by up to this many messages.
STEP_COUNT: Final = 32
BYTES_MAX: Final = 1024 * 1024
# How long fragments may take to report a free session when the client does not want to wait.
SESSION_LOOK_MS: Final = 250


@final
class BatchReceiver:
    """A dispatch.Receiver that ends when it has enough messages, or when no more are available.

    It locks even messages that are to be deleted: messages removed for a client that has
    disconnected would be lost.
    """

    def __init__(
        self, router: EntityRouter, dispatcher: Dispatcher, *, count_max: int, wait_ms: int
    ) -> None:
        self._router = router
        self._dispatcher = dispatcher
        self._count_max = count_max
        self._wait_ms = wait_ms
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._deliveries: list[Delivery] = []
        self._size_bytes = 0

    @property
    def is_locking(self) -> bool:
        return True

    @property
    def is_draining(self) -> bool:
        """Whether only available messages are wanted: always after the first has come."""
        return self._wait_ms == 0 or bool(self._deliveries)

    async def receive(self) -> list[Delivery]:
        """Messages, locked; none when none came in time, or `end` was called."""
        self._end_after(self._wait_ms or LOOK_MS_MAX)
        self._dispatcher.add(self, "http")
        try:
            self._dispatcher.wake(self)
            await asyncio.shield(self._ended)
            return self._deliveries
        except asyncio.CancelledError:
            self.end()
            release(self._router, *self._deliveries)
            raise
        finally:
            self._end_after(0)
            self._dispatcher.remove(self)

    def end(self) -> None:
        """Stop, and return the messages received so far."""
        if not self._ended.done():
            self._ended.set_result(None)

    def fail(self, failure: Refused) -> None:
        """Stop with a failure."""
        if self._deliveries:
            self.end()
        elif not self._ended.done():
            self._ended.set_exception(failure)

    def credit(self) -> int:
        if self._ended.done() or self._size_bytes >= BYTES_MAX:
            return 0
        return min(self._count_max - len(self._deliveries), STEP_COUNT)

    def deliver(self, deliveries: list[Delivery]) -> int:
        is_first = not self._deliveries
        self._deliveries += deliveries
        self._size_bytes += sum(delivery.entry.size_bytes for delivery in deliveries)
        if self.credit() == 0:
            self.end()
        elif is_first:
            self._end_after(LOOK_MS_MAX)
            # Not at once: the dispatcher is in the middle of a delivery.
            self._loop.call_soon(self._dispatcher.wake, self)
        return len(deliveries)

    def drained(self) -> None:
        self.end()

    def lost(self, failure: Refused) -> None:
        self.fail(failure)

    def _end_after(self, delay_ms: int) -> None:
        """Replace the limit by this time from now; 0: stop waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay_ms:
            self._timer = self._loop.call_later(delay_ms / 1000, self.end)


@final
class ReceiveWait:
    """The receivers that wait at entities. A `directory.EntityListener`."""

    def __init__(self) -> None:
        self._receivers: dict[int, set[BatchReceiver]] = {}

    async def receive(
        self, entity: Entity, receiver: BatchReceiver, departure: Departure
    ) -> list[Delivery]:
        """See `BatchReceiver.receive`; the deletion of the entity, or the departure of the client,
        ends it.
        """
        waiting = self._receivers.setdefault(entity.entity_id, set())
        waiting.add(receiver)
        departure.then(receiver.end)
        try:
            return await receiver.receive()
        finally:
            waiting.discard(receiver)
            if not waiting and self._receivers.get(entity.entity_id) is waiting:
                del self._receivers[entity.entity_id]

    def entity_created(self, entity: Entity) -> None:
        """Do nothing: no receiver can wait at a new entity yet."""

    def entity_updated(self, entity: Entity) -> None:
        if not entity.spec.is_receivable():
            self._end(entity)

    def entity_deleted(self, entity: Entity) -> None:
        self._end(entity)

    def _end(self, entity: Entity) -> None:
        for receiver in list(self._receivers.get(entity.entity_id, ())):
            receiver.end()


async def accept_session(
    router: EntityRouter, session_id: str | None, wait_ms: int, departure: Departure
) -> SessionAccepted | None:
    """Hold the named session, or the next free one with messages; None if there is none.

    Refused when another client holds the named one.
    """
    future: asyncio.Future[SessionAccepted | None] = asyncio.get_running_loop().create_future()
    tell = _telling(future)
    wait = max(wait_ms, SESSION_LOOK_MS)
    asking = router.sessions.accept(session_id, wait, tell)

    def leave() -> None:
        asking.cancel()
        if not future.done():
            future.set_result(None)

    departure.then(leave)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        leave()
        if future.exception() is None:
            accepted = future.result()
            if accepted is not None:
                router.release_session(accepted.token)
        raise


def _telling(
    future: asyncio.Future[SessionAccepted | None],
) -> Callable[[SessionAccepted | Refused | Unavailable], None]:
    def tell(answer: SessionAccepted | Refused | Unavailable) -> None:
        if future.done():
            return
        if isinstance(answer, SessionAccepted):
            future.set_result(answer)
        elif isinstance(answer, Refused) and answer.kind is TIMEOUT:
            future.set_result(None)
        else:
            future.set_exception(answer)

    return tell
