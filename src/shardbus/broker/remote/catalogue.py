"""A gateway's view of the catalogue that one broker keeps for all gateways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Final, final

from shardbus.broker.remote.broker import RemoteBroker
from shardbus.broker.remote.catalogue_answerer import (
    BEGIN,
    END_TURN,
    FINISH,
    PUT,
    RAISE,
    READ,
    REMOVE,
    RESERVE,
    SET_RULES,
    TAKE_TURN,
)
from shardbus.core.document import Fields
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.namespace.access import AccessRule, rule_from_document
from shardbus.core.namespace.entity import Entity, entity_from_json, with_topic_maps
from shardbus.stores.base.store import StoreError, Unfinished

ANSWER_S_MAX: Final = 30


@final
class RemoteCatalogue:
    """A `namespace_records.Catalogue`. Blocking: only for a worker's thread, never in the loop.

    `known_version` is the version that the gateway has read or written last.
    """

    def __init__(self, remote: RemoteBroker, loop: asyncio.AbstractEventLoop) -> None:
        self.known_version = 0
        self.turn = 0
        self._remote = remote
        self._loop = loop
        self._snapshot: Fields | None = None

    def created_at_ms(self) -> int:
        return self._read().integer("created_at_ms")

    def namespace_id(self) -> str:
        return self._read().text("namespace_id")

    def entities(self) -> list[Entity]:
        self._snapshot = None
        documents = [str(document) for document in self._read().values("entities")]
        return with_topic_maps(entity_from_json(document) for document in documents)

    def damaged(self) -> list[int]:
        return self._read().integers("damaged")

    def rules(self) -> list[AccessRule]:
        return [rule_from_document(rule) for rule in self._read().values("rules")]

    def unfinished(self) -> list[Unfinished]:
        documents = [Fields(value, "record") for value in self._read().values("unfinished")]
        return [
            Unfinished(entity_from_json(fields.text("entity")), is_final=fields.boolean("is_final"))
            for fields in documents
        ]

    def reserve_id(self) -> int:
        return self._ask(RESERVE, {"turn": self.turn}).integer("entity_id")

    def raise_ids(self, above: int) -> None:
        self._write(RAISE, {"above": above})

    def begin(self, entity: Entity) -> None:
        self._write(BEGIN, {"entity": entity.to_json()})

    def put(self, entity: Entity) -> None:
        self._write(PUT, {"entity": entity.to_json()})

    def remove(self, *entity_ids: int) -> None:
        self._write(REMOVE, {"entity_ids": list(entity_ids)})

    def finish(self, *entity_ids: int) -> None:
        self._write(FINISH, {"entity_ids": list(entity_ids)})

    def set_rules(self, rules: Sequence[AccessRule]) -> None:
        self._write(SET_RULES, {"rules": [rule.to_document() for rule in rules]})

    def _read(self) -> Fields:
        """What the catalogue held at the last call of `entities`: the same moment for all
        methods.
        """
        if self._snapshot is None:
            self._snapshot = self._ask(READ, {"turn": self.turn})
            self.known_version = self._snapshot.integer("version")
        return self._snapshot

    def _write(self, do: str, fields: dict[str, object]) -> None:
        self.known_version = self._ask(do, {"turn": self.turn, **fields}).integer("version")

    def _ask(self, do: str, fields: dict[str, object]) -> Fields:
        document = json.dumps({"do": do, **fields}, separators=(",", ":"))
        asked = asyncio.run_coroutine_threadsafe(self._remote.ask(document), self._loop)
        try:
            return Fields(json.loads(asked.result(ANSWER_S_MAX)), "answer of the catalogue")
        except (Refused, Unavailable) as failure:
            raise StoreError(failure.message) from failure
        except TimeoutError as error:
            asked.cancel()
            raise StoreError("the broker that keeps it does not answer") from error
        except ValueError as error:
            raise StoreError(
                f"the broker that keeps it gives an invalid answer: {error}"
            ) from error


@final
class SharedTurns:
    """The turn to manage a namespace that several gateways share. A `turn.TurnTaker`.

    There is one turn for all keys. `refresh` is called with the turn when other gateways have made
    changes that this one has not seen.
    """

    def __init__(self, remote: RemoteBroker, catalogue: RemoteCatalogue) -> None:
        self.refresh: Callable[[], Coroutine[object, object, None]] = _nothing
        self._remote = remote
        self._catalogue = catalogue
        self._mine = asyncio.Lock()

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        async with self._mine:
            answer = await self._remote.ask(json.dumps({"do": TAKE_TURN}), self._give_back)
            fields = Fields(json.loads(answer), "turn")
            turn = fields.integer("turn")
            self._catalogue.turn = turn
            try:
                if fields.integer("version") != self._catalogue.known_version:
                    await self.refresh()
                yield
            finally:
                self._catalogue.turn = 0
                self._end(turn)

    def _give_back(self, answer: str) -> None:
        """Return a turn that came after the caller had given up waiting."""
        self._end(Fields(json.loads(answer), "turn").integer("turn"))

    def _end(self, turn: int) -> None:
        self._remote.ask_soon(json.dumps({"do": END_TURN, "turn": turn}))


async def _nothing() -> None:
    """Nothing to refresh."""
