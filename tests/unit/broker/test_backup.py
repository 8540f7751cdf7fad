"""All stores stand still together, for a moment and not longer, whoever dies meanwhile."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.broker.backup.backup import HOLD_MS_MAX, BackupOrder
from shardbus.broker.backup.part import FORSAKEN_MS
from shardbus.core.errors import ALREADY_EXISTS, INVALID_ARGUMENT, NOT_FOUND
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.backup_world import FAR, NEAR, BackupWorld

HOLD_S = HOLD_MS_MAX / 1000
# From before a transaction over two stores to its end.
MOMENTS_S = [step * 0.003 for step in range(12)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BackupWorld]:
    world = BackupWorld(tmp_path / "data")
    world.make_queues()
    yield world
    world.close()


async def backed_up_later(world: BackupWorld, wait_s: float) -> None:
    await asyncio.sleep(wait_s)
    await world.back_up()


async def both(world: BackupWorld, wait_s: float) -> None:
    await asyncio.gather(world.move(), backed_up_later(world, wait_s))


@pytest.mark.parametrize("late", [NEAR, FAR])
@pytest.mark.parametrize("wait_s", MOMENTS_S)
def test_a_transaction_is_whole_in_a_backup_of_any_moment(
    world: BackupWorld, wait_s: float, late: int
) -> None:
    """R43: one hears of it later than the other, and both keep the same moment all the same."""
    world.send(NEAR, b"message")
    world.late = late

    world.run(both(world, wait_s))

    restored = world.restored()
    try:
        restored.settle_down()
        found = restored.contents(NEAR), restored.contents(FAR)
        assert found in (([b"message"], []), ([], [b"message"]))
    finally:
        restored.close()


def test_what_was_accepted_is_in_it_and_what_comes_later_is_not(world: BackupWorld) -> None:
    """R43."""
    world.send(NEAR, b"before")
    world.run(world.back_up())
    world.send(NEAR, b"after")

    restored = world.restored()
    try:
        assert restored.contents(NEAR) == [b"before"]
    finally:
        restored.close()
    assert world.contents(NEAR) == [b"before", b"after"]


def test_entities_that_are_made_while_stores_stand_still_wait(world: BackupWorld) -> None:
    """R43: the set of fragments changes no more than the messages do."""
    backup = world.backup()
    world.run(backup.prepare())
    world.run(world.parts[0].hold("1"))
    before = world.stores[0].fragments()
    fragments = world.handle(NEAR).entity

    async def create() -> None:
        await world.brokers[0].create_fragments(fragments, [7])

    async def look() -> None:
        creating = asyncio.ensure_future(create())
        await asyncio.sleep(0.5)
        assert world.stores[0].fragments() == before
        await world.parts[0].let_go("1")
        await creating

    world.run(look())
    assert len(world.stores[0].fragments()) == len(before) + 1


def test_a_coordinator_that_died_stops_nobody(world: BackupWorld) -> None:
    """R43: each store goes on by itself, and says that its moment is nobody's."""
    backup = world.backup()
    world.run(backup.prepare())
    for part in world.parts[:-1]:
        world.run(part.hold("1"))

    async def send() -> float:
        began_s = world.loop.time()
        await world.sending(NEAR, b"waits")
        return world.loop.time() - began_s

    assert HOLD_S / 2 < world.run(send()) < HOLD_S + 0.1
    for part in world.parts[:-1]:
        with unavailability():
            world.run(part.let_go("1"))
        with unavailability():
            world.run(part.copy("1"))


def test_a_backup_that_nobody_asks_about_is_over(world: BackupWorld) -> None:
    """R43: and nothing of it is left."""
    backup = world.backup()
    world.run(backup.prepare())
    world.run(backup.cut(lambda: None))
    world.run(backup.copy(lambda _: None))
    assert (world.backups / "copy" / "broker-0.db").exists()

    world.pass_s(FORSAKEN_MS / 1000 + 1)

    assert not (world.backups / "copy").exists()
    with refusal_of(NOT_FOUND):
        world.run(world.parts[0].look("1"))
    world.run(world.backup("2").prepare())


def test_a_store_that_hangs_ends_the_backup_and_holds_nobody_up(world: BackupWorld) -> None:
    """R43: it fails after the attempts that it has, and says which store it was."""
    world.slowness_s[1] = 60.0
    backup = world.backup()
    world.run(backup.prepare())

    async def fail() -> None:
        with unavailability("broker-1", "2000"):
            await backup.cut(lambda: None)

    world.run(fail())

    world.send(NEAR, b"goes on")
    assert world.contents(NEAR) == [b"goes on"]
    # What the hanging disk gives at last is nobody's any more.
    world.pass_s(600)
    world.run(backup.drop())


def test_a_moment_that_one_store_could_not_wait_for_is_no_moment(world: BackupWorld) -> None:
    """R43: what it kept before it went on may be older than what the others have."""
    world.late, world.late_s = FAR, HOLD_S + 1
    backup = world.backup()
    world.run(backup.prepare())

    async def fail() -> None:
        with unavailability("broker-0"):
            await backup.cut(lambda: None)

    world.run(fail())
    world.run(backup.drop())


def test_a_store_that_stalls_once_is_held_at_the_next_attempt(world: BackupWorld) -> None:
    """R43."""
    world.slowness_s[1] = 2.5
    world.loop.call_later(2.2, world.slowness_s.__setitem__, 1, 0.001)
    world.send(NEAR, b"message")

    world.run(world.back_up())

    restored = world.restored()
    try:
        assert restored.contents(NEAR) == [b"message"]
    finally:
        restored.close()


def test_two_backups_at_once_are_one_too_many(world: BackupWorld) -> None:
    """R43."""
    first, second = world.backup("1"), world.backup("2")
    world.run(first.prepare())

    with refusal_of(ALREADY_EXISTS):
        world.run(second.prepare())
    world.run(second.drop())

    world.run(first.cut(lambda: None))
    world.run(first.drop())
    world.run(world.backup("3").prepare())


def test_a_backup_never_writes_over_anything(world: BackupWorld) -> None:
    """R43."""
    (world.backups / "copy").mkdir(parents=True)
    (world.backups / "copy" / "broker-1.db").write_bytes(b"mine")
    backup = world.backup()

    with unavailability("broker-1.db"):
        world.run(backup.prepare())
    world.run(backup.drop())

    assert (world.backups / "copy" / "broker-1.db").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "a\0b", "-x", "a" * 101, "ä"])
def test_a_name_that_leads_elsewhere_is_refused_by_whoever_writes(
    world: BackupWorld, name: str
) -> None:
    """R43: also by a broker, whatever a gateway has let pass."""
    with refusal_of(INVALID_ARGUMENT):
        world.run(world.parts[0].prepare(BackupOrder("1", name)))
    assert not world.backups.exists()


def test_a_disk_without_room_is_noticed_before_anybody_stands_still(
    world: BackupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43: all that is to be on one disk is counted together."""
    monkeypatch.setattr("shardbus.broker.backup.backup.SPARE_BYTES", 1 << 60)

    with unavailability():
        world.run(world.backup().prepare())


def test_a_copy_that_fails_is_told_and_leaves_nothing(
    world: BackupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43: a log that grows without end, say."""
    monkeypatch.setattr("shardbus.stores.sqlite.snapshot.LOG_BYTES_MAX", 0)
    world.send(NEAR, b"message")
    backup = world.backup()
    world.run(backup.prepare())
    world.run(backup.cut(lambda: None))

    with unavailability():
        world.run(backup.copy(lambda _: None))
    world.run(backup.drop())

    assert not (world.backups / "copy").exists()
