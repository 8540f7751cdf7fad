"""A catalogue that gateways share: one changes it at a time, all of them hear of it."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest

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
    TURN_MS_MAX,
    TURN_WAIT_MS,
    CatalogueAnswerer,
)
from shardbus.core.document import Fields
from shardbus.core.errors import Unavailable
from shardbus.core.namespace.access import LISTEN, AccessRule
from shardbus.stores.base.store import StoreError
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.simulation.world import VirtualLoop
from tests.support.refusals import unavailability
from tests.unit.broker.hosts import InlineWorker
from tests.unit.broker.wires import new_entity

T = TypeVar("T")


class Desk:
    """An answerer with a catalogue in memory, and what was published."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.catalogue = MemoryCatalogue(created_at_ms=42)
        self.published: list[int] = []
        self.asker = Asker()
        self.answerer = CatalogueAnswerer(
            self.catalogue,
            InlineWorker(),
            loop=loop,
            version=1000,
            on_change=self.published.append,
        )

    async def ask(self, do: str, **fields: object) -> Fields:
        return await self.ask_as(self.asker, do, **fields)

    async def ask_as(self, asker: "Asker", do: str, **fields: object) -> Fields:
        # As on the wire: what is asked goes through JSON and back.
        question = Fields(json.loads(json.dumps(fields)), "question")
        answer = await self.answerer.answer_to(asker, do, question)
        assert answer is not None
        return Fields(json.loads(answer), "answer")

    async def take_turn(self, asker: "Asker | None" = None) -> int:
        return (await self.ask_as(asker or self.asker, TAKE_TURN)).integer("turn")

    async def read(self, turn: int = 0) -> Fields:
        return await self.ask(READ, turn=turn)

    def hang_up(self, asker: "Asker") -> None:
        asker.is_open = False
        self.answerer.gone(asker)


class Asker:
    def __init__(self) -> None:
        self.is_open = True


def at_the_door(story: Callable[[Desk], Coroutine[object, object, T]]) -> T:
    loop = VirtualLoop()

    async def tell() -> T:
        desk = Desk(loop)
        try:
            return await story(desk)
        finally:
            desk.answerer.close()

    return loop.finish(loop.create_task(tell()))


def test_what_is_put_in_a_turn_is_read_by_all_and_published() -> None:
    async def story(desk: Desk) -> None:
        turn = await desk.take_turn()
        entity = new_entity()

        version = (await desk.ask(PUT, turn=turn, entity=entity.to_json())).integer("version")

        read = await desk.read()
        assert read.values("entities") == [entity.to_json()]
        assert (read.integer("version"), read.integer("created_at_ms")) == (version, 42)
        assert desk.published == [version]
        await desk.ask(REMOVE, turn=turn, entity_ids=[entity.entity_id])
        assert (await desk.read()).values("entities") == []

    at_the_door(story)


def test_ids_are_given_out_once() -> None:
    async def story(desk: Desk) -> None:
        turn = await desk.take_turn()

        ids = [(await desk.ask(RESERVE, turn=turn)).integer("entity_id") for _ in range(3)]

        assert ids == [1, 2, 3]

    at_the_door(story)


def test_what_is_begun_and_finished_is_read_and_is_no_news_for_others() -> None:
    async def story(desk: Desk) -> None:
        turn = await desk.take_turn()
        entity = new_entity()
        await desk.ask(BEGIN, turn=turn, entity=entity.to_json())
        begun = {"entity": entity.to_json(), "is_final": False}
        assert (await desk.ask(READ, turn=turn)).values("unfinished") == [begun]
        await desk.ask(FINISH, turn=turn, entity_ids=[entity.entity_id])
        assert (await desk.ask(READ, turn=turn)).values("unfinished") == []
        await desk.ask(RAISE, turn=turn, above=40)
        assert (await desk.ask(RESERVE, turn=turn)).integer("entity_id") == 41
        assert desk.published == []

    at_the_door(story)


def test_rules_are_kept_and_read() -> None:
    async def story(desk: Desk) -> None:
        turn = await desk.take_turn()

        rule = AccessRule("reader", LISTEN, "key").to_document()
        await desk.ask(SET_RULES, turn=turn, rules=[rule])

        assert (await desk.read()).values("rules") == [rule]

    at_the_door(story)


@pytest.mark.parametrize("do", [PUT, REMOVE, RESERVE, SET_RULES, BEGIN, FINISH, RAISE])
def test_nothing_is_written_without_the_turn(do: str) -> None:
    async def story(desk: Desk) -> None:
        fields = {"entity": new_entity().to_json(), "entity_ids": [1], "rules": [], "above": 9}
        turn = await desk.take_turn()
        await desk.ask(END_TURN, turn=turn)
        for late in (0, turn):
            with unavailability():
                await desk.ask(do, turn=late, **fields)
        assert desk.catalogue.entities() == [] and desk.published == []

    at_the_door(story)


def test_turns_are_taken_one_after_another() -> None:
    async def story(desk: Desk) -> None:
        first = await desk.take_turn()
        waiting = asyncio.ensure_future(desk.take_turn())
        await asyncio.sleep(1)
        assert not waiting.done()

        await desk.ask(END_TURN, turn=first)

        assert await waiting > first

    at_the_door(story)


def test_a_gateway_that_is_gone_does_not_keep_its_turn() -> None:
    """And if it was only paused, it changes nothing any more."""

    async def story(desk: Desk) -> None:
        lost = await desk.take_turn()
        await asyncio.sleep((TURN_MS_MAX + 1) / 1000)

        current = await desk.take_turn()

        with unavailability():
            await desk.ask(PUT, turn=lost, entity=new_entity().to_json())
        await desk.ask(END_TURN, turn=lost)
        await desk.ask(PUT, turn=current, entity=new_entity().to_json())

    at_the_door(story)


def test_a_turn_ends_with_the_connection_on_which_it_was_taken() -> None:
    async def story(desk: Desk) -> None:
        lost, other = Asker(), Asker()
        turn = await desk.take_turn(lost)
        waiting = asyncio.ensure_future(desk.take_turn(other))
        await asyncio.sleep(0.1)

        desk.hang_up(lost)

        async with asyncio.timeout(0.1):
            await waiting
        with unavailability():
            await desk.ask_as(lost, PUT, turn=turn, entity=new_entity().to_json())

    at_the_door(story)


def test_who_has_gone_gets_no_turn_any_more() -> None:
    async def story(desk: Desk) -> None:
        lost, other = Asker(), Asker()
        first = await desk.take_turn()
        gone = asyncio.ensure_future(desk.take_turn(lost))
        waiting = asyncio.ensure_future(desk.take_turn(other))
        await asyncio.sleep(0.1)

        desk.hang_up(lost)
        await desk.ask(END_TURN, turn=first)

        async with asyncio.timeout(0.1):
            await waiting
        with pytest.raises(Unavailable):
            await gone

    at_the_door(story)


def test_a_turn_is_passed_on_when_what_was_written_in_the_last_one_is_known() -> None:
    """Otherwise the next one would not learn of it."""

    async def story(desk: Desk) -> None:
        lost = Asker()
        turn = await desk.take_turn(lost)
        worker = SlowWorker()
        desk.answerer._worker = worker
        put = asyncio.ensure_future(
            desk.ask_as(lost, PUT, turn=turn, entity=new_entity().to_json())
        )
        await asyncio.sleep(0.1)
        desk.hang_up(lost)
        waiting = asyncio.ensure_future(desk.ask(TAKE_TURN))
        await asyncio.sleep(0.1)
        assert not waiting.done()

        worker.finish()

        assert (await waiting).integer("version") == (await put).integer("version")

    at_the_door(story)


def test_who_has_lost_the_turn_does_not_read_on_in_it() -> None:
    """It would act on what others change meanwhile."""

    async def story(desk: Desk) -> None:
        turn = await desk.take_turn()
        await desk.read(turn)
        await desk.ask(END_TURN, turn=turn)

        with unavailability():
            await desk.read(turn)
        await desk.read()

    at_the_door(story)


class SlowWorker:
    """A Worker that does nothing before it is told to."""

    def __init__(self) -> None:
        self._jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], T], then: Callable[[T | StoreError], None]) -> None:
        self._jobs.append(lambda: then(job()))

    def finish(self) -> None:
        for job in self._jobs:
            job()

    def close(self) -> None:
        """Nothing to do."""


def test_who_waits_too_long_for_the_turn_is_told_to_try_again() -> None:
    async def story(desk: Desk) -> float:
        await desk.take_turn()
        started = asyncio.get_running_loop().time()
        with unavailability():
            await desk.take_turn()
        return asyncio.get_running_loop().time() - started

    assert at_the_door(story) == pytest.approx(TURN_WAIT_MS / 1000)


def test_a_write_that_failed_makes_everybody_read_again() -> None:
    async def story(desk: Desk) -> None:
        def fail(entity: object) -> None:
            raise StoreError("the disk is full")

        turn = await desk.take_turn()
        desk.catalogue.put = fail  # type: ignore[method-assign]  # the one fault a disk can have
        with unavailability(is_unknown=True):
            await desk.ask(PUT, turn=turn, entity=new_entity().to_json())
        assert desk.published == [1001]

    at_the_door(story)


def test_questions_about_other_things_are_left_to_others() -> None:
    async def story(desk: Desk) -> str | None:
        return await desk.answerer.answer_to(desk.asker, "statistics", Fields({}, "question"))

    assert at_the_door(story) is None
