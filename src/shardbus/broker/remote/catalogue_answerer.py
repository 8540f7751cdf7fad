"""The catalogue of a namespace that several gateways share: read by all, changed by one at a time.

One broker keeps it. A gateway takes the turn before it manages anything, and a write is refused
unless it names the present turn, so that a gateway that was paused can change nothing afterwards. A
turn ends with the connection on which it was taken; see docs/adr/0037-turns-at-the-catalogue.md.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, final

from shardbus.broker.fragment.asking import asked
from shardbus.broker.fragment.storage import Worker
from shardbus.core.document import Fields
from shardbus.core.errors import Unavailable
from shardbus.core.namespace.access import rule_from_document
from shardbus.core.namespace.entity import entity_from_json
from shardbus.stores.base.catalogue import Catalogue
from shardbus.stores.base.store import StoreError

T = TypeVar("T")

READ: Final = "catalogue-read"
TAKE_TURN: Final = "catalogue-take-turn"
END_TURN: Final = "catalogue-end-turn"
RESERVE: Final = "catalogue-reserve-id"
RAISE: Final = "catalogue-raise-ids"
BEGIN: Final = "catalogue-begin"
PUT: Final = "catalogue-put"
REMOVE: Final = "catalogue-remove"
FINISH: Final = "catalogue-finish"
SET_RULES: Final = "catalogue-set-rules"

# The refusal while another gateway has the turn; a gateway that starts recognises it and waits.
TURN_TAKEN_TEXT: Final = "Another gateway is changing the namespace: try again."

TURN_MS_MAX: Final = 60_000
TURN_WAIT_MS: Final = 10_000
WAITING_MAX: Final = 1_000


class Asker(Protocol):
    """The connection that asks."""

    @property
    def is_open(self) -> bool: ...


@final
class _Waiting:
    """A gateway that waits for the turn."""

    def __init__(self, asker: Asker, turn: asyncio.Future[int]) -> None:
        self.asker = asker
        self.turn = turn

    def is_over(self) -> bool:
        return self.turn.done() or not self.asker.is_open


@final
class CatalogueAnswerer:
    """Answers questions about the catalogue. An `endpoint.TurnKeeper`.

    `version` changes with every write and every start; `on_change` is called with it.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        worker: Worker,
        *,
        loop: asyncio.AbstractEventLoop,
        version: int,
        on_change: Callable[[int], None],
    ) -> None:
        self.version = version
        self._catalogue = catalogue
        self._worker = worker
        self._loop = loop
        self._on_change = on_change
        self._turns_given = version
        self._turn = 0
        self._holder: Asker | None = None
        self._writes = 0
        self._expiry: asyncio.TimerHandle | None = None
        self._waiting: deque[_Waiting] = deque()

    async def answer_to(self, asker: Asker, do: str, fields: Fields) -> str | None:
        if do == READ:
            if fields.integer("turn"):
                # A read within a turn must see the present state: after that turn others may have
                # changed it.
                self._check_turn(fields)
            return await self._call(self._read)
        if do == TAKE_TURN:
            return json.dumps({"turn": await self._take_turn(asker), "version": self.version})
        if do == END_TURN:
            self._end_turn(fields.integer("turn"))
            return "{}"
        if do == RESERVE:
            self._check_turn(fields)
            return json.dumps({"entity_id": await self._call(self._catalogue.reserve_id)})
        return await self._change(do, fields)

    def gone(self, asker: Asker) -> None:
        """A connection is lost: its turn ends, and it waits for none."""
        for waiting in self._waiting:
            if waiting.asker is asker:
                waiting.turn.cancel()
        if self._holder is asker:
            self._end_turn(self._turn)

    def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    async def _change(self, do: str, fields: Fields) -> str | None:
        if do == RAISE:
            above = fields.integer("above")
            return await self._noted(fields, lambda: self._catalogue.raise_ids(above))
        if do == BEGIN:
            begun = entity_from_json(fields.text("entity"))
            return await self._noted(fields, lambda: self._catalogue.begin(begun))
        if do == PUT:
            entity = entity_from_json(fields.text("entity"))
            return await self._written(fields, lambda: self._catalogue.put(entity))
        if do == REMOVE:
            entity_ids = fields.integers("entity_ids")
            return await self._written(fields, lambda: self._catalogue.remove(*entity_ids))
        if do == FINISH:
            finished = fields.integers("entity_ids")
            return await self._noted(fields, lambda: self._catalogue.finish(*finished))
        if do == SET_RULES:
            rules = [rule_from_document(rule) for rule in fields.values("rules")]
            return await self._written(fields, lambda: self._catalogue.set_rules(rules))
        return None

    async def _noted(self, fields: Fields, work: Callable[[], None]) -> str:
        """Write what changes nothing for the other gateways."""
        self._check_turn(fields)
        self._writes += 1
        try:
            await self._call(work)
        finally:
            self._writes -= 1
            self._pass_on()
        return json.dumps({"version": self.version})

    async def _written(self, fields: Fields, work: Callable[[], None]) -> str:
        self._check_turn(fields)
        self._writes += 1
        try:
            await self._call(work)
        finally:
            # Also after a failure: the outcome is unknown, and every gateway must read again.
            self.version += 1
            self._on_change(self.version)
            self._writes -= 1
            self._pass_on()
        return json.dumps({"version": self.version})

    def _read(self) -> str:
        entities = [entity.to_json() for entity in self._catalogue.entities()]
        return json.dumps(
            {
                "created_at_ms": self._catalogue.created_at_ms(),
                "namespace_id": self._catalogue.namespace_id(),
                "entities": entities,
                "damaged": self._catalogue.damaged(),
                "unfinished": [
                    {"entity": each.entity.to_json(), "is_final": each.is_final}
                    for each in self._catalogue.unfinished()
                ],
                "rules": [rule.to_document() for rule in self._catalogue.rules()],
                "version": self.version,
            }
        )

    # Turns.

    async def _take_turn(self, asker: Asker) -> int:
        if len(self._waiting) >= WAITING_MAX:
            raise Unavailable(
                "Too many gateways wait for their turn at the catalogue: try again later."
            )
        mine = _Waiting(asker, self._loop.create_future())
        self._waiting.append(mine)
        self._pass_on()
        try:
            async with asyncio.timeout(TURN_WAIT_MS / 1000):
                return await mine.turn
        except TimeoutError as error:
            raise Unavailable(TURN_TAKEN_TEXT) from error
        except asyncio.CancelledError:
            if asker.is_open:
                raise
            raise Unavailable("The gateway that wanted the turn has gone.") from None

    def _give_turn(self, asker: Asker) -> int:
        self._turns_given += 1
        self._turn = self._turns_given
        self._holder = asker
        self._expiry = self._loop.call_later(TURN_MS_MAX / 1000, self._end_turn, self._turn)
        return self._turn

    def _end_turn(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._turn = 0
        self._holder = None
        if self._expiry is not None:
            self._expiry.cancel()
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the next gateway, as soon as nobody has it and nothing is being written.

        Otherwise the next gateway would not see the result of a write under way.
        """
        while self._waiting and not self._turn and not self._writes:
            next_one = self._waiting.popleft()
            if not next_one.is_over():
                next_one.turn.set_result(self._give_turn(next_one.asker))

    def _check_turn(self, fields: Fields) -> None:
        if not self._turn or fields.integer("turn") != self._turn:
            raise Unavailable("The turn to change the namespace is over: try again.")

    async def _call(self, job: Callable[[], T]) -> T:
        try:
            return await asked(self._worker, job)
        except StoreError as error:
            raise Unavailable(f"The catalogue: {error}", is_unknown=True) from error
