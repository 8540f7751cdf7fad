"""Backups of a real server under load: each is restored, checked, served and drained (R43)."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.outcomes import Accepted, DeliveryState
from shardbus.message.sections import encode_data_message
from tests.durability import ring
from tests.durability.backup_load import (
    CHAIN,
    SESSIONS,
    WORK,
    Book,
    Load,
    drained,
    in_order_by_session,
)
from tests.support.commands import SHARDBUS, run
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

log = logging.getLogger(__name__)

SEED: Final = 20_261_118
BACKUPS: Final = 3
BETWEEN_S: Final = (0.1, 0.8)
KILLS: Final = 5
FILL: Final = 150
FILL_BYTES: Final = 200_000


@dataclass(frozen=True)
class Taken:
    """A backup, and what was known when it was asked for and when it was there."""

    path: Path
    before: dict[str, Book]
    after: dict[str, Book]


async def take(load: Load, server: Server, name: str) -> Taken:
    before = load.known()
    code, output = await asyncio.to_thread(run, server, "backup", name)
    assert code == 0, output
    log.info("%s", output)
    return Taken(server.data_dir / "backups" / name, before, load.known())


def restore(backup: Path, target: Path) -> tuple[int, str]:
    done = subprocess.run(
        [SHARDBUS, "restore", str(backup), str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode()


async def check(server: Server, taken: Taken) -> None:
    """What a client may expect of a server that begins where the backup was made."""
    queues = ((WORK, WORK), (CHAIN[1], CHAIN[0]), (SESSIONS, SESSIONS))
    async with asyncio.TaskGroup() as tasks:
        moved = tasks.create_task(ring.drain(server))
        for queue, source in queues:
            tasks.create_task(check_queue(server, queue, taken.before[source], taken.after[source]))
    assert sorted(moved.result()) == list(range(ring.MESSAGES))


async def check_queue(server: Server, queue: str, before: Book, after: Book) -> None:
    expected = before.accepted - after.touched
    found = await drained(server, queue, expected)
    assert len(found) == len(set(found)), f"{queue}: something is there twice"
    assert expected <= set(found), f"{queue}: something that was accepted is missing"
    assert not before.completed & set(found), f"{queue}: something completed is back"
    if queue == SESSIONS:
        assert in_order_by_session(found)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "backups"),
    [((), BACKUPS), pytest.param(("--broker-processes",), 2, marks=pytest.mark.release)],
    ids=["one", "processes"],
)
def test_backups_under_load_are_whole(
    tmp_path: Path, options: tuple[str, ...], backups: int
) -> None:
    """R43: accepted and not completed is there, completed is not, transactions are whole."""
    dice = random.Random(SEED)
    chosen = ("--tls-port", "0", "--brokers", "4", *options)
    taken: list[Taken] = []
    with running_server(tmp_path / "data", *chosen) as server:
        load = Load(server, dice)
        load.prepare()

        async def take_all() -> None:
            for number in range(backups):
                await asyncio.sleep(dice.uniform(*BETWEEN_S))
                taken.append(await take(load, server, f"backup-{number}"))

        asyncio.run(load.run(take_all()))
        moved = sum(mover.moved for mover in load.movers)

    assert moved > 0, "nothing was moved, so the test proves nothing"
    assert taken[-1].before[WORK].completed, "nothing was completed, so the test proves nothing"
    for number, each in enumerate(taken):
        target = tmp_path / f"restored-{number}"
        code, output = restore(each.path, target)
        assert code == 0, output
        assert "everything is sound" in output
        with running_server(target, *chosen) as server:
            asyncio.run(check(server, each))


async def fill(server: Server) -> set[int]:
    """So much that a backup takes a while; what was accepted."""
    accepted: set[int] = set()

    def heard(position: int, state: DeliveryState | None) -> None:
        if isinstance(state, Accepted):
            accepted.add(position)

    async with ring.client_of(server) as client:
        sender = await client.sender(WORK)
        bodies = (b"%d".ljust(FILL_BYTES) % number for number in range(FILL))
        await sender.send_all([encode_data_message(body) for body in bodies], heard)
    return accepted


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.release), ("--broker-processes",)],
    ids=["one", "processes"],
)
def test_a_server_that_is_killed_leaves_a_whole_backup_or_none(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """R43: and the next start needs no repair, and makes backups again."""
    dice = random.Random(SEED)
    chosen = ("--tls-port", "0", "--brokers", "4", *options)
    with running_server(tmp_path / "data", *chosen) as server:
        create_queue(server, WORK)
        accepted = asyncio.run(fill(server))
        for kill in range(KILLS):
            asking = subprocess.Popen(
                [
                    *(SHARDBUS, "backup", f"killed-{kill}"),
                    *("--endpoint", f"http://{server.host}:{server.http_port}"),
                ],
                stderr=subprocess.DEVNULL,
            )
            wait_for_directory(server.data_dir / "backups" / f"killed-{kill}")
            time.sleep(dice.uniform(0.0, 0.3))
            server.kill()
            asking.wait(60)
            server.start()
        code, output = run(server, "backup", "last")
        assert code == 0, output

    whole = 0
    for backup in sorted((tmp_path / "data" / "backups").iterdir()):
        code, output = restore(backup, tmp_path / f"of-{backup.name}")
        is_whole = (backup / "manifest.json").exists()
        log.info("%s: %s", backup.name, output)
        assert (code == 0) == is_whole, output
        assert (tmp_path / f"of-{backup.name}").exists() == is_whole
        whole += is_whole
    assert whole >= 1
    with running_server(tmp_path / "of-last", *chosen) as server:
        assert set(asyncio.run(drained(server, WORK, accepted))) == accepted


def wait_for_directory(path: Path) -> None:
    deadline_s = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline_s, "no backup was begun"
        time.sleep(0.005)
