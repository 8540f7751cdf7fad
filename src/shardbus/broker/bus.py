"""The one object that gateways call: the namespace, its access rules, and all entities."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_bytes
from typing import Final, Protocol, final

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.clock import TimedClock
from shardbus.broker.fragment.runner import UNAVAILABLE
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.operations.asking import ask, ask_all, failure_of, to_port
from shardbus.broker.operations.browse import Browsable
from shardbus.broker.operations.entity import Operations
from shardbus.broker.operations.readers import Readers
from shardbus.broker.operations.staging import EntityStages
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.broker.routing.router import EntityRouter
from shardbus.broker.survey import Survey
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.namespace.entity import Entity, FragmentHome
from shardbus.core.sealing.command import IdsTold, LearnIds, Seal, Sealed, TellIds
from shardbus.core.sequence import TOKEN_SEED_BYTES
from shardbus.stores.base.store import FragmentId

log = logging.getLogger(__name__)

# Reasons that `problems` lists; further ones are only counted.
PROBLEMS_MAX: Final = 20
DOUBT_WAIT_MS: Final = 5_000
# The overview is shown every second or two, with or without a broker that is slow.
SURVEY_WAIT_MS: Final = 1_000


def _random_seed() -> bytes:
    return token_bytes(TOKEN_SEED_BYTES)


class OpenFragment(FragmentPort, Browsable, Protocol):
    """A fragment in use, here or in another process."""

    @property
    def state(self) -> str: ...

    @property
    def reason(self) -> str:
        """Why it is unavailable, or accepts no additions."""
        ...


class FragmentOpener(Protocol):
    """The part of a broker that serves users of its fragments."""

    def runner(self, entity: Entity, number: int) -> OpenFragment:
        """A fragment, started when it is first asked for."""
        ...

    async def fragment_ids(self) -> list[FragmentId]:
        """See `host.FragmentHost`."""
        ...

    async def in_doubt(self) -> list[FragmentId]:
        """See `host.FragmentHost`."""
        ...

    async def transferring(self) -> list[FragmentId]:
        """See `host.FragmentHost`."""
        ...

    async def survey(self, since: int) -> Survey:
        """See `host.FragmentHost`."""
        ...


@final
class EntityHandle:
    """An entity in use: its description, its fragments and its router."""

    def __init__(
        self,
        entity: Entity,
        runners: list[OpenFragment],
        router: EntityRouter,
        operations: Operations,
        readers: Readers,
        staging: EntityStages,
    ) -> None:
        self.entity = entity
        self.runners = runners
        self.router = router
        self.operations = operations
        self.readers = readers
        self.staging = staging


@final
class _Maps:
    """The `readers.Maps` of an entity, as the namespace knows them."""

    def __init__(self, namespace: Namespace, entity_id: int) -> None:
        self._namespace = namespace
        self._entity_id = entity_id

    def earlier(self, number: int) -> list[int]:
        entity = self._namespace.find_id(self._entity_id)
        return [] if entity is None else entity.earlier_numbers(number)


@final
class Bus:
    """Everything below the gateways."""

    def __init__(
        self,
        namespace: Namespace,
        brokers: Sequence[FragmentOpener],
        authorizer: Authorizer,
        *,
        clock: TimedClock,
        loop: asyncio.AbstractEventLoop,
        new_seed: Callable[[], bytes] = _random_seed,
    ) -> None:
        self.namespace = namespace
        self.authorizer = authorizer
        self.clock = clock
        # Tokens and certificates are judged by the clock that clients have, too.
        self.clients_clock = clock
        self.loop = loop
        self._brokers = brokers
        self._new_seed = new_seed
        self._handles: dict[int, EntityHandle] = {}
        # Brokers that have not yet been asked for fragments with due messages.
        self._brokers_to_open = set(range(len(brokers)))
        namespace.subscribe(self)
        namespace.maps.sealer = self

    def find(self, name: str) -> EntityHandle | None:
        """The entity of this name (in lower case), ready for use; None if there is none."""
        entity = self.namespace.find(name)
        return None if entity is None else self._handle(entity)

    def fragment(self, entity_id: int, number: int) -> FragmentPort | None:
        """One fragment of an entity, ready for use; None if it does not exist (any more)."""
        entity = self.namespace.find_id(entity_id)
        if entity is None:
            return None
        for index, home in enumerate(entity.fragments):
            if home.number == number:
                return self._handle(entity).runners[index]
        return None

    async def in_doubt(self) -> list[FragmentId]:
        """The fragments with unfinished transactions, of the reachable brokers."""
        found: list[FragmentId] = []
        for broker in self._brokers:
            with suppress(Refused, Unavailable, TimeoutError):
                async with asyncio.timeout(DOUBT_WAIT_MS / 1000):
                    found += await broker.in_doubt()
        return found

    async def may_be_held(self, entity_id: int) -> bool:
        """Whether a broker holds anything of an entity, known or not, or cannot be asked.

        An entity that is missing only in an old catalogue comes back with all that its fragments
        hold.
        """
        return not await self.without_fragments([entity_id])

    async def without_fragments(self, entity_ids: Sequence[int]) -> list[int]:
        """Those of these entities of which no broker holds anything; empty if a broker is away."""
        held: set[int] = set()
        for broker in self._brokers:
            try:
                async with asyncio.timeout(DOUBT_WAIT_MS / 1000):
                    held |= {fragment.entity_id for fragment in await broker.fragment_ids()}
            except (Refused, Unavailable, TimeoutError):
                return []
        return [entity_id for entity_id in entity_ids if entity_id not in held]

    async def seal(
        self, entity: Entity, homes: Sequence[FragmentHome], map_number: int, *, is_open: bool
    ) -> list[Sealed]:
        """Let fragments accept no more messages, or accept them again; Unavailable if one does not
        answer.
        """
        answers = await ask_all(
            [
                to_port(
                    self._brokers[home.broker_index].runner(entity, home.number),
                    Seal(map_number, is_open),
                )
                for home in homes
            ]
        )
        failure = failure_of(answers)
        if failure is not None:
            raise failure
        return [answer for answer in answers if isinstance(answer, Sealed)]

    async def carry_ids(self, entity: Entity, *, has_both_forms: bool) -> None:
        """Let the coming fragments remember what the present ones do, which are sealed.

        Each gets all ids: a digest does not tell to which key it belongs.
        """
        learners = [
            self._brokers[home.broker_index].runner(entity, home.number) for home in entity.coming
        ]
        for home in entity.present():
            source = self._brokers[home.broker_index].runner(entity, home.number)
            start = 0
            while True:
                told = await ask(source, TellIds(start))
                assert isinstance(told, IdsTold)
                if told.page:
                    command = LearnIds(told.page, has_both_forms or told.has_both_forms)
                    failure = failure_of(
                        await ask_all([to_port(learner, command) for learner in learners])
                    )
                    if failure is not None:
                        raise failure
                if told.following == 0:
                    break
                start = told.following

    async def transferring(self) -> tuple[list[FragmentId], bool]:
        """The fragments that have given out messages, and whether all brokers could be asked."""
        found: list[FragmentId] = []
        is_whole = True
        for broker in self._brokers:
            try:
                async with asyncio.timeout(DOUBT_WAIT_MS / 1000):
                    found += await broker.transferring()
            except (Refused, Unavailable, TimeoutError):
                is_whole = False
        return found, is_whole

    def broker_count(self) -> int:
        return len(self._brokers)

    async def survey(self, broker_index: int, since: int) -> Survey:
        """What has changed at a broker after version `since` of an earlier answer; 0: all."""
        try:
            async with asyncio.timeout(SURVEY_WAIT_MS / 1000):
                return await self._brokers[broker_index].survey(since)
        except TimeoutError as error:
            raise Unavailable(f"it did not answer within {SURVEY_WAIT_MS} ms") from error

    def used(self, entity: Entity) -> EntityHandle | None:
        """An entity that was used since the start; None for any other."""
        return self._handles.get(entity.entity_id)

    def _handle(self, entity: Entity) -> EntityHandle:
        handle = self._handles.get(entity.entity_id)
        if handle is None:
            handle = self._open(entity)
            self._handles[entity.entity_id] = handle
        return handle

    async def open_timed(self) -> None:
        """Run the fragments in which messages are or will be due, although nobody uses them.

        Otherwise scheduled messages would wait, after a restart, for the first client. Unreachable
        brokers are left for the next call.
        """
        for index in list(self._brokers_to_open):
            try:
                timed = await self.namespace.timed(index)
            except Unavailable as error:
                log.warning(
                    "broker %s will be asked again for scheduled messages: %s", index, error
                )
                continue
            self._brokers_to_open.discard(index)
            for entity in timed:
                self.find(entity.name.lower())

    def _open(self, entity: Entity) -> EntityHandle:
        runners = [
            self._brokers[home.broker_index].runner(entity, home.number)
            for home in entity.fragments
        ]
        # The router adds to these lists when the entity gets another map.
        ports: list[FragmentPort] = list(runners)
        numbers = [home.number for home in entity.fragments]
        router = EntityRouter(
            ports,
            numbers,
            entity.hash_starts,
            detects_duplicates=entity.spec.requires_duplicate_detection,
            requires_session=entity.spec.requires_session,
            loop=self.loop,
            clock=self.clock,
            new_seed=self._new_seed,
            entity_id=entity.entity_id,
            former_count=entity.former_count,
            former_starts=entity.former_starts,
        )
        operations = Operations(router, runners, clock=self.clock, new_seed=self._new_seed)
        readers = Readers(ports, numbers, _Maps(self.namespace, entity.entity_id))
        staging = EntityStages(entity.entity_id, router, clock=self.clock, new_seed=self._new_seed)
        return EntityHandle(entity, runners, router, operations, readers, staging)

    def in_use(self) -> list[EntityHandle]:
        """The entities that were used since the start."""
        return list(self._handles.values())

    def problems(self) -> list[str]:
        """Texts about fragments in use that are unavailable or accept no additions."""
        found: dict[tuple[str, str], list[int]] = {}
        short: dict[str, int] = {}
        for handle in self._handles.values():
            for runner in handle.runners:
                if runner.state == UNAVAILABLE:
                    numbers = found.setdefault((handle.entity.name, runner.reason), [])
                    numbers.append(runner.fragment_id.number)
                elif runner.is_available and runner.reason:
                    # A full disk affects all entities alike: one line, not one for each.
                    short[runner.reason] = short.get(runner.reason, 0) + 1
        told = [f"{count} fragments accept no new messages: {why}" for why, count in short.items()]
        told += [
            f"fragments of '{name}' are unavailable ({', '.join(map(str, numbers))}): {reason}"
            for (name, reason), numbers in found.items()
        ]
        rest = len(told) - PROBLEMS_MAX
        return [*told[:PROBLEMS_MAX], f"and {rest} more"] if rest > 0 else told

    def entity_created(self, entity: Entity) -> None:
        """Nothing to do: an entity is opened when it is first asked for."""

    def entity_updated(self, entity: Entity) -> None:
        handle = self._handles.get(entity.entity_id)
        if handle is None:
            return
        added = [
            self._brokers[home.broker_index].runner(entity, home.number)
            for home in entity.fragments[len(handle.runners) :]
        ]
        handle.entity = entity
        handle.runners += added
        router = handle.router
        if added or (router.is_holding and not entity.coming):
            numbers = [runner.fragment_id.number for runner in added]
            router.remap(
                list(added),
                numbers,
                entity.hash_starts,
                entity.former_count,
                entity.former_starts,
            )

    def entity_deleted(self, entity: Entity) -> None:
        self._handles.pop(entity.entity_id, None)
