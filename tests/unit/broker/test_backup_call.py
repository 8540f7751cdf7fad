"""A part in a backup that is in another process answers as one in this process does."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.broker.backup.backup import Backup, BackupOrder
from shardbus.broker.backup.call import BackupAnswerer, RemotePart
from shardbus.broker.remote.host_call import read_question
from shardbus.core.errors import INVALID_ARGUMENT, NOT_FOUND, Unavailable
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.backup_world import FAR, NEAR, BackupWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BackupWorld]:
    world = BackupWorld(tmp_path / "data")
    world.make_queues()
    yield world
    world.close()


class Wire:
    """Asks a broker's parts as a gateway asks a broker."""

    def __init__(self, world: BackupWorld) -> None:
        self._answerer = BackupAnswerer(world.parts[:1])
        for part in world.parts[1:]:
            self._answerer.add(part)

    async def ask(self, document: str) -> str:
        do, fields = read_question(document)
        answer = await self._answerer.answer(do, fields)
        assert answer is not None
        return answer

    def part(self, name: str) -> RemotePart:
        return RemotePart(name, self.ask)


def test_a_backup_over_questions_is_whole(world: BackupWorld) -> None:
    """R43."""
    world.send(NEAR, b"one")
    world.send(FAR, b"two", b"three")
    wire = Wire(world)
    stores = [wire.part("broker-0"), wire.part("broker-1")]
    backup = Backup(BackupOrder("1", "copy"), stores, wire.part("catalogue"), world.clock)

    world.run(backup.prepare())
    world.run(backup.cut(lambda: None))
    copies = world.run(backup.copy(lambda _: None))
    world.run(backup.keep())

    assert [copy.file for copy in copies] == ["broker-0.db", "broker-1.db", "catalogue.db"]
    assert [copy.messages for copy in copies] == [1, 2, 0]
    assert all(copy.where.endswith(f"/backups/copy/{copy.file}") for copy in copies)
    restored = world.restored()
    try:
        assert restored.contents(FAR) == [b"two", b"three"]
    finally:
        restored.close()


def test_what_is_dropped_over_questions_is_gone(world: BackupWorld) -> None:
    """R43."""
    part = Wire(world).part("broker-0")
    world.run(part.prepare(BackupOrder("1", "copy")))
    world.run(part.hold("1"))
    world.run(part.let_go("1"))
    world.run(part.copy("1"))
    world.pass_s(1)
    assert world.run(part.look("1")).sha256

    world.run(part.end("1", is_kept=False))

    assert not (world.backups / "copy").exists()


def test_a_question_about_nothing_that_is_kept_here_is_refused(world: BackupWorld) -> None:
    wire = Wire(world)
    with refusal_of(NOT_FOUND):
        world.run(wire.part("broker-7").hold("1"))
    with refusal_of(NOT_FOUND):
        world.run(wire.part("broker-0").hold("1"))
    with refusal_of(INVALID_ARGUMENT, "'jump'"):
        world.run(
            wire.ask('{"do": "backup", "part": "broker-0", "step": "jump", "backup_id": "1"}')
        )


def test_other_questions_are_for_others(world: BackupWorld) -> None:
    do, fields = read_question('{"do": "statistics"}')
    assert world.run(BackupAnswerer([]).answer(do, fields)) is None


@pytest.mark.parametrize("answer", ["", "[]", "{}", json.dumps({"size_bytes": "1"})])
def test_an_answer_that_is_none_is_a_broker_that_is_not_there(
    world: BackupWorld, answer: str
) -> None:
    async def ask(document: str) -> str:
        return answer

    with unavailability():
        world.run(RemotePart("broker-0", ask).prepare(BackupOrder("1", "copy")))
    with unavailability():
        world.run(RemotePart("broker-0", ask).look("1"))


@pytest.mark.parametrize(("out_s", "is_given_up"), [(10, False), (1_000, True)])
def test_a_broker_that_is_out_of_reach_for_a_while_may_go_on_copying(
    world: BackupWorld, out_s: int, is_given_up: bool
) -> None:
    """R43: it is asked again, and only given up when that lasts."""
    wire = Wire(world)
    out_until_s = 0.0

    async def ask(document: str) -> str:
        nonlocal out_until_s
        if "look" in document and not out_until_s:
            out_until_s = world.loop.time() + out_s
        if world.loop.time() < out_until_s:
            raise Unavailable("Broker broker-0 is out")
        return await wire.ask(document)

    stores = [RemotePart("broker-0", ask), wire.part("broker-1")]
    backup = Backup(BackupOrder("1", "copy"), stores, wire.part("catalogue"), world.clock)
    world.run(backup.prepare())
    world.run(backup.cut(lambda: None))

    if is_given_up:
        with unavailability():
            world.run(backup.copy(lambda _: None))
    else:
        assert all(copy.sha256 for copy in world.run(backup.copy(lambda _: None)))
        assert world.loop.time() > out_until_s
    world.run(backup.drop())
