"""A catalogue that gateways share: one changes it at a time, all of them hear of it."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest

from shardbus.broker.catalogue_door import (
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
    CatalogueDoor,
)
from shardbus.core.access import LISTEN, AccessRule
from shardbus.core.document import Fields
from shardbus.core.errors import Unavailable
from shardbus.stores.base import StoreError
from shardbus.stores.catalogue import MemoryCatalogue
from tests.simulation.world import VirtualLoop
from tests.unit.broker.hosts import InlineWorker
from tests.unit.broker.wires import new_entity

T = TypeVar("T")


class Desk:
    """A door with a catalogue in memory behind it, and what was published."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.catalogue = MemoryCatalogue(created_at_ms=42)
        self.published: list[int] = []
        self.door = CatalogueDoor(
            self.catalogue,
            InlineWorker(),
            loop=loop,
            version=1000,
            on_change=self.published.append,
        )

    async def ask(self, do: str, **fields: object) -> Fields:
        # As on the wire: what is asked goes through JSON and back.
        question = Fields(json.loads(json.dumps(fields)), "question")
        answer = await self.door.answer(do, question)
        assert answer is not None
        return Fields(json.loads(answer), "answer")

    async def take_turn(self) -> int:
        return (await self.ask(TAKE_TURN)).integer("turn")


def at_the_door(story: Callable[[Desk], Coroutine[object, object, T]]) -> T:
    loop = VirtualLoop()

    async def tell() -> T:
        desk = Desk(loop)
        try:
            return await story(desk)
        finally:
            desk.door.close()

    return loop.finish(loop.create_task(tell()))


def test_what_is_put_in_a_turn_is_read_by_all_and_published() -> None:
    async def story(desk: Desk) -> None:
        turn = await desk.take_turn()
        entity = new_entity()

        version = (await desk.ask(PUT, turn=turn, entity=entity.to_json())).integer("version")

        read = await desk.ask(READ)
        assert read.values("entities") == [entity.to_json()]
        assert (read.integer("version"), read.integer("created_at_ms")) == (version, 42)
        assert desk.published == [version]
        await desk.ask(REMOVE, turn=turn, entity_ids=[entity.entity_id])
        assert (await desk.ask(READ)).values("entities") == []

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
        assert (await desk.ask(READ)).values("unfinished") == [begun]
        await desk.ask(FINISH, turn=turn, entity_ids=[entity.entity_id])
        assert (await desk.ask(READ)).values("unfinished") == []
        await desk.ask(RAISE, turn=turn, above=40)
        assert (await desk.ask(RESERVE, turn=turn)).integer("entity_id") == 41
        assert desk.published == []

    at_the_door(story)


def test_rules_are_kept_and_read() -> None:
    async def story(desk: Desk) -> None:
        turn = await desk.take_turn()

        rule = AccessRule("reader", LISTEN, "key").to_document()
        await desk.ask(SET_RULES, turn=turn, rules=[rule])

        assert (await desk.ask(READ)).values("rules") == [rule]

    at_the_door(story)


@pytest.mark.parametrize("do", [PUT, REMOVE, RESERVE, SET_RULES, BEGIN, FINISH, RAISE])
def test_nothing_is_written_without_the_turn(do: str) -> None:
    async def story(desk: Desk) -> None:
        fields = {"entity": new_entity().to_json(), "entity_ids": [1], "rules": [], "above": 9}
        turn = await desk.take_turn()
        await desk.ask(END_TURN, turn=turn)
        for late in (0, turn):
            with pytest.raises(Unavailable, match="turn"):
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

        with pytest.raises(Unavailable, match="turn"):
            await desk.ask(PUT, turn=lost, entity=new_entity().to_json())
        await desk.ask(END_TURN, turn=lost)
        await desk.ask(PUT, turn=current, entity=new_entity().to_json())

    at_the_door(story)


def test_who_waits_too_long_for_the_turn_is_told_to_try_again() -> None:
    async def story(desk: Desk) -> float:
        await desk.take_turn()
        started = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable, match="try again"):
            await desk.take_turn()
        return asyncio.get_running_loop().time() - started

    assert at_the_door(story) == pytest.approx(TURN_WAIT_MS / 1000)


def test_a_write_that_failed_makes_everybody_read_again() -> None:
    async def story(desk: Desk) -> None:
        def fail(entity: object) -> None:
            raise StoreError("the disk is full")

        turn = await desk.take_turn()
        desk.catalogue.put = fail  # type: ignore[method-assign]  # the one fault a disk can have
        with pytest.raises(Unavailable, match="disk is full"):
            await desk.ask(PUT, turn=turn, entity=new_entity().to_json())
        assert desk.published == [1001]

    at_the_door(story)


def test_questions_about_other_things_are_left_to_others() -> None:
    async def story(desk: Desk) -> str | None:
        return await desk.door.answer("statistics", Fields({}, "question"))

    assert at_the_door(story) is None
