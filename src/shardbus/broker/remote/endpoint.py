"""A broker's end of the connections to gateways in other processes."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, final

from shardbus.broker.remote.host_call import DELETE, UPDATE, HostCalls, read_question
from shardbus.broker.remote.served import ServedBroker, ServedFragment
from shardbus.broker.remote.served_gateway import Gateway
from shardbus.broker.wire.frames import Answered, Ask, Open, State, Told, Versions
from shardbus.core.document import Fields
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    NOT_IMPLEMENTED,
    NOT_SERVED_TEXT,
    Refused,
    Unavailable,
)
from shardbus.core.namespace.entity import Entity, entity_from_json
from shardbus.stores.base.store import FragmentId

log = logging.getLogger(__name__)

TICK_MS: Final = 250
# Two ticks late: less than the three after which a gateway gives requests up.
STALL_MS: Final = 600

STATES_PER_TICK: Final = 1_000
GATEWAYS_MAX: Final = 256
QUESTIONS_MAX: Final = 1_000


class Answerer(Protocol):
    """Answers some questions of gateways; None means that it does not answer this one."""

    async def answer(self, do: str, fields: Fields) -> str | None: ...


class TurnKeeper(Protocol):
    """Like an `Answerer`, but what it gives to a connection ends with the connection."""

    async def answer_to(self, asker: Gateway, do: str, fields: Fields) -> str | None: ...

    def gone(self, asker: Gateway) -> None:
        """A connection is lost."""
        ...


@final
class Endpoint:
    """Serves one broker to many gateways. Use it as a context manager; `accept` makes protocols.

    `monotonic_s` is a clock that runs while the process is stopped.
    """

    def __init__(
        self,
        broker: ServedBroker,
        secret: bytes,
        *,
        loop: asyncio.AbstractEventLoop,
        monotonic_s: Callable[[], float],
        new_nonce: Callable[[], bytes],
        versions: Versions | None = None,
    ) -> None:
        self.versions = Versions() if versions is None else versions
        self.broker = broker
        self.secret = secret
        self.loop = loop
        self.new_nonce = new_nonce
        self.catalogue_version = 0
        # Of a broker that leases its store: whether it may take something in, and hand it out, now.
        self.may_take: Callable[[], bool] = _always
        self.may_give: Callable[[], bool] = _always
        self.runners: dict[FragmentId, ServedFragment] = {}
        self._monotonic_s = monotonic_s
        self._calls = HostCalls(broker)
        self._answerers: list[Answerer] = [self._calls]
        self._turn_keeper: TurnKeeper | None = None
        self._updated_at_ms: dict[int, int] = {}
        self._told: dict[FragmentId, tuple[str, str]] = {}
        self._unseen: list[FragmentId] = []
        # In the order of their connection: the order of a set would differ from run to run.
        self._gateways: dict[Gateway, None] = {}
        self._questions = asyncio.TaskGroup()
        self._question_count = 0
        self._ticked_at_s = monotonic_s()
        self._timer: asyncio.TimerHandle | None = None
        self._fence = 0

    async def __aenter__(self) -> Self:
        await self._questions.__aenter__()
        self._ticked_at_s = self._monotonic_s()
        self._tick()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for gateway in list(self._gateways):
            gateway.abort("the broker is closing")
        # Questions are answered even if the gateway is gone, so that no management operation is
        # left half done.
        await self._questions.__aexit__(None, None, None)

    def accept(self) -> Gateway:
        """The protocol of one more connection."""
        return Gateway(self)

    @property
    def is_asked(self) -> bool:
        """Whether questions are being answered."""
        return self._question_count > 0

    @property
    def is_connected(self) -> bool:
        return bool(self._gateways)

    def hang_up(self, reason: str) -> None:
        """Close all connections, after everything that was said."""
        for gateway in list(self._gateways):
            gateway.hang_up(reason)

    def add_answerer(self, answerer: Answerer) -> None:
        """Add an object that answers questions that are not about fragments."""
        self._answerers.append(answerer)

    def keep_turns(self, keeper: TurnKeeper) -> None:
        """Let the keeper of the catalogue answer all remaining questions."""
        self._turn_keeper = keeper

    def joined(self, gateway: Gateway) -> bool:
        """Register a connection, unless there are too many."""
        if len(self._gateways) >= GATEWAYS_MAX:
            return False
        self._gateways[gateway] = None
        return True

    def left(self, gateway: Gateway) -> None:
        self._gateways.pop(gateway, None)
        if self._turn_keeper is not None:
            self._turn_keeper.gone(gateway)

    def open(self, frame: Open) -> list[FragmentId]:
        """Run fragments; ValueError when the entity cannot be read."""
        entity = entity_from_json(frame.entity)
        opened = [FragmentId(entity.entity_id, number) for number in frame.numbers]
        for fragment in opened:
            self.runners[fragment] = self.broker.runner(entity, fragment.number)
        # Gateways learn of an update one after the other: the latest description wins.
        if self._is_newer(entity):
            self.broker.configure(entity, frame.numbers)
        return opened

    def learn(self, entity: Entity, numbers: list[int]) -> None:
        """Apply a description that the broker has read itself."""
        if self._is_newer(entity):
            self.broker.configure(entity, numbers)

    def end_turns(self, last: int) -> None:
        """Heed no gateway that tells something in a turn up to this one: all of them are over."""
        self._calls.end_turns(last)

    def ask(self, gateway: Gateway, question: Ask) -> None:
        if not self.may_take():
            gateway.send(Answered(question.request_id, Unavailable(NOT_SERVED_TEXT)))
            return
        if self._question_count >= QUESTIONS_MAX:
            busy = Unavailable(
                f"Broker {self.broker.name} has too many questions waiting: try again later."
            )
            gateway.send(Answered(question.request_id, busy))
            return
        self._question_count += 1
        self._questions.create_task(self._answer(gateway, question))

    def state(self, fragment: FragmentId) -> State:
        runner = self.runners[fragment]
        return State(fragment, runner.state, runner.reason)

    def state_for_one(self, fragment: FragmentId) -> State:
        """The state, for a gateway that asks; if it is new, the next tick tells it to every
        gateway.

        Otherwise this gateway would never hear the end of a state that lasted less than a tick.
        """
        frame = self.state(fragment)
        if self._told.get(fragment) != (frame.state, frame.reason):
            self._told.pop(fragment, None)
        return frame

    def check_stall(self) -> None:
        """If this process was stopped, ask every gateway which requests it gave up in the
        meantime.
        """
        now_s = self._monotonic_s()
        if (now_s - self._ticked_at_s) * 1000 >= STALL_MS:
            self._fence += 1
            log.warning("%s was stopped for %.1f s", self.broker.name, now_s - self._ticked_at_s)
            for gateway in list(self._gateways):
                gateway.raise_fence(self._fence)
        self._ticked_at_s = max(now_s, self._ticked_at_s)

    def publish_catalogue(self, version: int) -> None:
        """Tell every gateway that the catalogue changed."""
        self.catalogue_version = version
        for gateway in list(self._gateways):
            gateway.beat(version)

    async def _answer(self, gateway: Gateway, question: Ask) -> None:
        try:
            gateway.send(
                Told(question.request_id, await self._document(question.document, gateway))
            )
        except (Refused, Unavailable) as failure:
            gateway.send(Answered(question.request_id, failure))
        except ValueError as error:
            refusal = Refused(INVALID_ARGUMENT, f"The question cannot be read: {error}")
            gateway.send(Answered(question.request_id, refusal))
        finally:
            self._question_count -= 1

    async def _document(self, question: str, gateway: Gateway) -> str:
        do, fields = read_question(question)
        if do == DELETE:
            self._forget(fields.integer("entity_id"), fields.integers("numbers"))
        elif do == UPDATE:
            self._is_newer(entity_from_json(fields.text("entity")))
        for answerer in self._answerers:
            document = await answerer.answer(do, fields)
            if document is not None:
                return document
        if self._turn_keeper is not None:
            document = await self._turn_keeper.answer_to(gateway, do, fields)
            if document is not None:
                return document
        raise Refused(
            NOT_IMPLEMENTED, f"Broker {self.broker.name} does not know the question '{do}'."
        )

    def _is_newer(self, entity: Entity) -> bool:
        known_ms = self._updated_at_ms.get(entity.entity_id, 0)
        self._updated_at_ms[entity.entity_id] = max(known_ms, entity.updated_at_ms)
        return entity.updated_at_ms > known_ms

    def _forget(self, entity_id: int, numbers: list[int]) -> None:
        self._updated_at_ms.pop(entity_id, None)
        for number in numbers:
            self.runners.pop(FragmentId(entity_id, number), None)
            self._told.pop(FragmentId(entity_id, number), None)

    def _tick(self) -> None:
        self.check_stall()
        changes = self._changes()
        for gateway in list(self._gateways):
            gateway.tick(self.catalogue_version, changes)
        self._timer = self.loop.call_later(TICK_MS / 1000, self._tick)

    def _changes(self) -> list[State]:
        """Fragments whose state has changed; with very many, each tick checks only some."""
        if not self._unseen:
            self._unseen = list(self.runners)
        looked_at = self._unseen[-STATES_PER_TICK:]
        del self._unseen[-STATES_PER_TICK:]
        states = [self.state(fragment) for fragment in looked_at if fragment in self.runners]
        return [frame for frame in states if self._is_news(frame)]

    def _is_news(self, frame: State) -> bool:
        now = (frame.state, frame.reason)
        is_news = self._told.get(frame.fragment) != now
        self._told[frame.fragment] = now
        return is_news


def _always() -> bool:
    return True
