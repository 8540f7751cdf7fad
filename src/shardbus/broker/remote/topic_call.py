"""How a gateway tells a broker in another process the subscriptions of a topic.

A topic may have very many rules, and every change of one is sent. So a broker keeps the
descriptions it got: it is told the stamps of all, and asks only for those that it does not have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from hashlib import blake2b
from typing import Final, final

from shardbus.broker.namespace.host import FragmentHost
from shardbus.core.document import Fields
from shardbus.core.errors import Unavailable
from shardbus.core.namespace.entity import Entity, entity_from_json

UPDATE_TOPIC: Final = "update-topic"
DESCRIBE: Final = "describe-subscriptions"

# Descriptions in one question; a single longer one is sent alone.
DESCRIBED_BYTES_MAX: Final = 4 * 1024 * 1024
# Another gateway may make the broker forget in between, but not for ever.
ATTEMPTS_MAX: Final = 3

_STAMP_BYTES: Final = 16


@final
class TopicTeller:
    """The gateway's end. `turn_now` is the turn in which the gateway manages the namespace."""

    def __init__(self, name: str, ask: Callable[[str], Coroutine[object, object, str]]) -> None:
        self.turn_now: Callable[[], int] = _no_turn
        self._name = name
        self._ask = ask
        # By topic and subscription. An entity is replaced and never changed, so its stamp is
        # computed only once.
        self._stamps: dict[int, dict[int, tuple[Entity, str]]] = {}

    async def tell(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        """Let the broker publish to exactly these subscriptions; Unavailable when that fails."""
        stamps = self._stamped(topic.entity_id, subscriptions)
        question = _document(
            UPDATE_TOPIC,
            {
                "topic": topic.to_json(),
                "subscriptions": [[one.entity_id, stamps[one.entity_id]] for one in subscriptions],
                "numbers": list(numbers),
                "turn": self.turn_now(),
            },
        )
        for _ in range(ATTEMPTS_MAX):
            missing = self._missing(await self._ask(question))
            if not missing:
                return
            for described in _portions([one for one in subscriptions if one.entity_id in missing]):
                await self._ask(
                    _document(DESCRIBE, {"topic_id": topic.entity_id, "subscriptions": described})
                )
        raise Unavailable(
            f"Broker {self._name} keeps forgetting the subscriptions of '{topic.name}': try again."
        )

    def forget(self, topic_id: int) -> None:
        self._stamps.pop(topic_id, None)

    def _stamped(self, topic_id: int, subscriptions: Sequence[Entity]) -> dict[int, str]:
        known = self._stamps.get(topic_id, {})
        now: dict[int, tuple[Entity, str]] = {}
        for entity in subscriptions:
            before = known.get(entity.entity_id)
            is_same = before is not None and before[0] is entity
            now[entity.entity_id] = (
                before if before is not None and is_same else (entity, _stamp(entity.to_json()))
            )
        self._stamps[topic_id] = now
        return {entity_id: stamp for entity_id, (_, stamp) in now.items()}

    def _missing(self, answer: str) -> set[int]:
        try:
            return set(Fields(json.loads(answer), "answer").integers("missing"))
        except ValueError as error:
            raise Unavailable(f"Broker {self._name} gives an invalid answer: {error}") from error


@final
class TopicHearer:
    """The broker's end."""

    def __init__(self, host: FragmentHost) -> None:
        self._host = host
        self._turn = 0
        # By topic and subscription: those in use, and those described since.
        self._known: dict[int, dict[int, tuple[str, Entity]]] = {}

    async def answer(self, do: str, fields: Fields) -> str | None:
        """The document to answer with; None when the question is another one.

        Raises ValueError for a damaged question, and the broker's exceptions.
        """
        if do == DESCRIBE:
            self._describe(fields.integer("topic_id"), fields.values("subscriptions"))
            return "{}"
        if do == UPDATE_TOPIC:
            return json.dumps({"missing": await self._update(fields)})
        return None

    def forget(self, topic_id: int) -> None:
        self._known.pop(topic_id, None)

    def end_turns(self, last: int) -> None:
        """Refuse what is told in a turn up to this one, which is over."""
        self._turn = max(self._turn, last + 1)

    def _describe(self, topic_id: int, documents: list[object]) -> None:
        known = self._known.setdefault(topic_id, {})
        for document in documents:
            if not isinstance(document, str):
                raise ValueError("a description is not text")
            known_as = _stamp(document)
            entity = entity_from_json(document)
            known[entity.entity_id] = (known_as, entity)

    async def _update(self, fields: Fields) -> list[int]:
        """The missing descriptions; when none is missing, the topic publishes as told."""
        topic = entity_from_json(fields.text("topic"))
        turn = fields.integer("turn")
        if turn < self._turn:
            # A gateway that was paused: another one has had the turn since, and knows more.
            raise Unavailable("The turn to change the namespace is over: try again.")
        self._turn = turn
        known = self._known.get(topic.entity_id, {})
        wanted = [_pair(pair) for pair in fields.values("subscriptions")]
        missing = [
            entity_id
            for entity_id, stamp in wanted
            if entity_id not in known or known[entity_id][0] != stamp
        ]
        if missing:
            return missing
        in_use = {entity_id: known[entity_id] for entity_id, _ in wanted}
        self._known[topic.entity_id] = in_use
        subscriptions = [entity for _, entity in in_use.values()]
        await self._host.update_topic(topic, subscriptions, fields.integers("numbers"))
        return []


def _portions(entities: Sequence[Entity]) -> list[list[str]]:
    portions: list[list[str]] = []
    size = DESCRIBED_BYTES_MAX
    for entity in entities:
        document = entity.to_json()
        if size + len(document) > DESCRIBED_BYTES_MAX:
            portions.append([])
            size = 0
        portions[-1].append(document)
        size += len(document)
    return portions


def _pair(value: object) -> tuple[int, str]:
    if isinstance(value, list) and len(value) == 2:
        entity_id: object = value[0]
        stamp: object = value[1]
        if isinstance(entity_id, int) and isinstance(stamp, str):
            return entity_id, stamp
    raise ValueError("a subscription is not a pair of an id and a stamp")


def _stamp(document: str) -> str:
    encoded = document.encode("utf-8", "surrogatepass")
    return blake2b(encoded, digest_size=_STAMP_BYTES).hexdigest()


def _document(do: str, fields: dict[str, object]) -> str:
    return json.dumps({"do": do, **fields}, separators=(",", ":"))


def _no_turn() -> int:
    return 0
