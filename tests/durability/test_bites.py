"""A large publication to a topic, interrupted between two bites: killed, or restored from a backup
of that moment (R43, P3). It goes on by itself, and is whole, and once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from shardbus.app.cli.entities.atom import SUBSCRIPTION, TOPIC
from shardbus.app.cli.sas import parse_connection_string
from shardbus.core.fragment.records import PUBLISHING
from shardbus.message.sections import encode_batch, encode_data_message
from shardbus.stores.sqlite.store import SqliteStore
from tests.conformance.rest import Answer, Rest, connect
from tests.durability.backup_load import drained
from tests.durability.test_backup import restore
from tests.support.queues import management
from tests.support.server import Server, running_server

NEWS: Final = "news"
# Copies make a bite: so many that a publication in each of two fragments takes several.
SUBSCRIPTIONS: Final = 20
PIECES: Final = 16
PIECE: Final = 1_000
MESSAGES: Final = PIECES * PIECE
STORED_S_MAX: Final = 120.0
BACKUPS_MAX: Final = 20
POLL_S: Final = 0.02
KILLS: Final = 3

OPTIONS: Final = ("--tier", "premium", "--premium-generation", "older", "--brokers", "2")
EACH = pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--broker-processes",), marks=pytest.mark.release)],
    ids=["one process", "processes"],
)


@pytest.fixture(name="chosen")
def of_two_fragments(options: tuple[str, ...]) -> tuple[str, ...]:
    return (*OPTIONS, *options)


@contextmanager
def rest(server: Server) -> Iterator[Rest]:
    api = connect(server, parse_connection_string(server.connection_string).credential)
    try:
        yield api
    finally:
        api.connection.close()


def stage(server: Server) -> None:
    manager = management(server)
    manager.create(TOPIC, NEWS, {})
    for number in range(SUBSCRIPTIONS):
        manager.create(SUBSCRIPTION, subscription(number), {})
    with rest(server) as api:
        for piece in range(PIECES):
            numbers = range(piece * PIECE, (piece + 1) * PIECE)
            body = encode_batch([encode_data_message(b"%d" % number) for number in numbers])
            answer = api.ask("PUT", f"/api/v1/entities/{NEWS}/stages/one?piece={piece}", body)
            assert answer.status == 200, answer.body


def subscription(number: int) -> str:
    return f"{NEWS}/Subscriptions/s{number}"


def publish(server: Server) -> Answer:
    chosen = [{"stage": "one", "count": MESSAGES}]
    asked = json.dumps({"producer": "p", "batch": 1, "stages": chosen}).encode()
    with rest(server) as api:
        return api.ask("POST", f"/api/v1/entities/{NEWS}/stages/publish", asked)


def under_way(stores: Iterator[Path]) -> int:
    """How many fragments have decided to publish something and stored a part of it."""
    found = 0
    for path in stores:
        store = SqliteStore(path, to_read=True)
        try:
            for fragment in store.fragments():
                found += any(kind == PUBLISHING for kind, _ in store.load(fragment).records)
        finally:
            store.close()
    return found


def check_whole(server: Server) -> None:
    """Everything is there once, although nobody asked for it."""
    manager = management(server)
    deadline_s = time.monotonic() + STORED_S_MAX
    paths = [subscription(number) for number in range(SUBSCRIPTIONS)]
    while True:
        counts = [manager.entity(SUBSCRIPTION, path).message_count for path in paths]
        if min(counts) >= MESSAGES:
            break
        assert time.monotonic() < deadline_s, counts
        time.sleep(POLL_S)
    answer = publish(server)
    assert (answer.status, json.loads(answer.body)["is_new"]) == (200, False), answer.body
    counts = [manager.entity(SUBSCRIPTION, path).message_count for path in paths]
    assert counts == [MESSAGES] * SUBSCRIPTIONS
    found = asyncio.run(drained(server, paths[0], set(range(MESSAGES))))
    assert sorted(found) == list(range(MESSAGES))


async def backups_meanwhile(server: Server) -> list[Path]:
    """As many as can be made while the stage is published."""
    publishing = asyncio.create_task(asyncio.to_thread(publish, server))
    made: list[Path] = []
    while not publishing.done() and len(made) < BACKUPS_MAX:
        name = f"backup-{len(made)}"
        await back_up(server, name)
        made.append(server.data_dir / "backups" / name)
    answer = await publishing
    assert answer.status == 200, answer.body
    return made


async def back_up(server: Server, name: str) -> None:
    with rest(server) as api:
        body = json.dumps({"name": name}).encode()
        answer = await api.later("POST", "/api/v1/backups", body)
        while json.loads(answer.body)["state"] == "running":
            await asyncio.sleep(POLL_S)
            answer = await api.later("GET", f"/api/v1/backups/{name}")
    assert json.loads(answer.body)["state"] == "done", answer.body


@pytest.mark.long
@EACH
def test_a_backup_of_a_publication_that_is_under_way_goes_on_with_it(
    tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    with running_server(tmp_path / "data", *chosen) as server:
        stage(server)
        made = asyncio.run(backups_meanwhile(server))
    halves = [each for each in made if under_way(each.glob("broker-*.db"))]
    assert halves, "no backup was made between two bites, so the test proves nothing"

    target = tmp_path / "restored"
    code, output = restore(halves[len(halves) // 2], target)
    assert code == 0, output
    with running_server(target, *chosen) as server:
        check_whole(server)


@pytest.mark.long
@EACH
def test_a_bus_that_is_killed_between_bites_goes_on_with_them(
    tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    """Whoever asked for it is gone, too, and it is killed again while it goes on."""
    with running_server(tmp_path / "data", *chosen) as server:
        stage(server)
        asking = Thread(target=publish_and_hear_nothing, args=[server])
        asking.start()
        wait_until_decided(server)
        halves = 0
        seen = 0
        for _ in range(KILLS):
            server.kill()
            halves += under_way(server.data_dir.glob("broker-*.db")) > 0
            server.start()
            seen = wait_for_more(server, seen)
        asking.join()
        assert halves, "the bus was not killed between two bites, so the test proves nothing"
        check_whole(server)


def publish_and_hear_nothing(server: Server) -> None:
    with suppress(OSError, HTTPException):
        publish(server)


def wait_until_decided(server: Server) -> None:
    """Until the first bite is on disk: counts tell of it a moment before."""
    deadline_s = time.monotonic() + STORED_S_MAX
    while not under_way(server.data_dir.glob("broker-*.db")):
        assert time.monotonic() < deadline_s, "nothing is published"
        time.sleep(POLL_S)


def wait_for_more(server: Server, than: int) -> int:
    """Until a subscription has more messages, or all."""
    manager = management(server)
    deadline_s = time.monotonic() + STORED_S_MAX
    while (count := manager.entity(SUBSCRIPTION, subscription(0)).message_count) <= than:
        if count == MESSAGES:
            break
        assert time.monotonic() < deadline_s, "nothing is published"
        time.sleep(POLL_S)
    return count
