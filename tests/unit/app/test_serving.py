"""Work with chores beside it."""

import asyncio

import pytest

from shardbus.app.server.serving import alongside


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("chore")


def test_chores_end_with_the_work() -> None:
    ended: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        ended.append("work")

    asyncio.run(alongside(work(), [forever(ended), forever(ended)]))

    assert ended == ["work", "chore", "chore"]


def test_what_the_work_raises_is_not_wrapped() -> None:
    ended: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        raise LookupError("port in use")

    with pytest.raises(LookupError, match="port in use"):
        asyncio.run(alongside(work(), [forever(ended)]))

    assert ended == ["chore"]


def test_a_chore_that_fails_ends_the_work() -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise LookupError("a bug")

    with pytest.raises(ExceptionGroup, match="unhandled"):
        asyncio.run(alongside(forever(ended), [fail()]))

    assert ended == ["chore"]
