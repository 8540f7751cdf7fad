"""Random faults in a row in a cluster under load (`make storm-cluster ARGS="--seed 7"`).

Three brokers, each with a network of its own, and a PostgreSQL primary with a synchronous standby
are killed, paused, restarted, cut off and filled, while applications use a gateway that lives. At
the end every message is accounted for. Where no networks can be made, nothing is cut off or filled.

A storm that is told to stop (SIGINT, SIGTERM, `--minutes`) mends its last fault, lets the receiver
finish and judges what it has seen; told so again, it ends at once and judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.databases import Databases
from tests.chaos.holders import LOCK_S, SESSIONS, SHARED, HolderBook, Holders
from tests.chaos.networks import DATABASES, GATEWAYS, Machine, become_a_world, prepare_world
from tests.chaos.nodes import (
    COMMAND,
    KEYS,
    QUEUE,
    SLOTS,
    Applications,
    Book,
    Node,
    NotJudged,
    wait_until_even,
)
from tests.support.ports import free_port
from tests.support.queues import create_queue

NAMES: Final = ("a", "b", "c")
# Nothing of it outlives this process, however it ends.
TIED: Final = ("setpriv", "--pdeathsig", "KILL", "--", *COMMAND)
# What each cut leaves of a cable: whether the node sends, and whether it hears.
CUTS: Final = {
    "cut from database": (DATABASES, False, False),
    "cannot ask database": (DATABASES, False, True),
    "cannot hear database": (DATABASES, True, False),
    "cut from gateways": (GATEWAYS, False, False),
    "cannot ask gateways": (GATEWAYS, False, True),
    "cannot hear gateways": (GATEWAYS, True, False),
}
LONG_PAUSE: Final = "long pause"
ROLL: Final = "roll"
OF_NODES: Final = ("kill", "pause", LONG_PAUSE, "restart", ROLL)
# Locks and sessions are handed over, or nobody notices anything.
KEEPS_LOCKS: Final = ("restart", ROLL, "hold snapshot")
LONG_PAUSE_S: Final = 60.0
OF_DATABASES: Final = ("kill database", "promote standby", "hold snapshot")
FULL: Final = "fill disk"
LASTS_S: Final = (1.0, 12.0)
AWAY_S: Final = (0.0, 2.0)
FULL_S: Final = (1.0, 6.0)
CALM_S: Final = (0.0, 3.0)
SENT_S: Final = 60.0
NOT_JUDGED: Final = 3


class Storm:
    """One storm, which a seed determines."""

    def __init__(
        self,
        seed: int,
        kinds: Sequence[str],
        lasts_s: tuple[float, float],
        *,
        is_in_turn: bool,
    ) -> None:
        self._chance = Random(seed)
        self._is_in_turn = is_in_turn
        self._kinds = kinds
        self._lasts_s = lasts_s
        # By kind: how often, the longest time until all was well, and the slowest send.
        self.faults: dict[str, tuple[int, float, float]] = {}
        self._is_over = asyncio.Event()

    @property
    def count(self) -> int:
        return sum(count for count, _, _ in self.faults.values())

    def stop(self) -> None:
        """Begin no other fault, and end this one now."""
        self._is_over.set()

    async def rage(self, world: World, faults: int) -> None:
        book = world.applications.book
        excuses = world.holders.book.excuses
        async with world.holders.at_work(), world.applications.at_work():
            for number in range(faults):
                await self._wait(CALM_S)
                if self._is_over.is_set():
                    return
                kind, victim = self._chance.choice(self._kinds), self._chance.choice(NAMES)
                if self._is_in_turn:
                    kind = self._kinds[number % len(self._kinds)]
                book.slowest_s = 0.0
                began_s = time.monotonic()
                await self._do(kind, victim, world)
                await asyncio.to_thread(wait_until_even, world.nodes, SLOTS, world.door)
                lasted_s = time.monotonic() - began_s
                await _all_sent(book)
                if kind not in KEEPS_LOCKS:
                    excuses.append((began_s, time.monotonic()))
                self._note(kind, lasted_s, book.slowest_s)
                sessions = world.databases.number("SELECT count(*) FROM pg_stat_activity")
                say(
                    f"{number + 1}: {kind} {victim}: {lasted_s:.1f} s, "
                    f"from {began_s - world.holders.book.began_s:.1f} s on, "
                    f"slowest send {book.slowest_s:.1f} s, {sessions} sessions"
                )

    def _note(self, kind: str, lasted_s: float, slowest_s: float) -> None:
        count, longest_s, slowest = self.faults.get(kind, (0, 0.0, 0.0))
        self.faults[kind] = (count + 1, max(longest_s, lasted_s), max(slowest, slowest_s))

    async def _do(self, kind: str, name: str, world: World) -> None:
        node, databases = world.node(name), world.databases
        if kind in CUTS:
            cable, sends, hears = CUTS[kind]
            machine = world.machines[name]
            machine.cut(cable, sends=sends, hears=hears)
            await self._wait(self._lasts_s)
            machine.mend()
        elif kind == "kill":
            await asyncio.to_thread(node.kill)
            await self._wait(self._lasts_s)
            await asyncio.to_thread(node.start)
        elif kind in ("pause", LONG_PAUSE):
            node.pause()
            lasts_s = self._lasts_s if kind == "pause" else (LONG_PAUSE_S, LONG_PAUSE_S)
            await self._wait(lasts_s)
            node.resume()
        elif kind == ROLL:
            await _roll(world)
        elif kind == "restart":
            await asyncio.to_thread(node.restart)
        elif kind == "kill database":
            await asyncio.to_thread(databases.kill, self._chance.uniform(*AWAY_S))
        elif kind == "promote standby":
            await asyncio.to_thread(databases.promote)
        else:
            held = databases.full() if kind == FULL else databases.snapshot()
            await asyncio.to_thread(held.__enter__)
            try:
                await self._wait(FULL_S if kind == FULL else self._lasts_s)
            finally:
                await asyncio.to_thread(held.__exit__, None, None, None)

    async def _wait(self, between_s: tuple[float, float]) -> None:
        """For a while, or until told to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._chance.uniform(*between_s)):
                await self._is_over.wait()


async def _roll(world: World) -> None:
    """Restart every node but the one whose order is judged: brokers, then a gateway with a lane."""
    for each in (*world.nodes, world.second):
        await asyncio.to_thread(each.restart)
        await asyncio.to_thread(wait_until_even, world.nodes, SLOTS, world.door)


async def _all_sent(book: Book) -> None:
    """Wait until a message of each key was accepted from now on."""
    before = {key: len(book.accepted[key]) for key in KEYS}
    until_s = time.monotonic() + SENT_S
    while waiting := [key for key in KEYS if len(book.accepted[key]) == before[key]]:
        now_s = time.monotonic()
        since_s = now_s - book.doing_since_s
        assert now_s < until_s, (
            f"nothing of {', '.join(waiting)} was sent for {SENT_S:.0f} s; "
            f"the receiver {book.doing} since {since_s:.0f} s, {len(book.missing())} are to come"
        )
        await asyncio.sleep(0.05)


class World:
    """The nodes, each on its machine, the databases and the gateway."""

    def __init__(
        self, directory: Path, *, has_networks: bool, again_s: float | None, seed: int
    ) -> None:
        self._again_s = again_s
        self._seed = seed
        self.databases = Databases(directory, has_disks=has_networks)
        self.machines: dict[str, Machine] = {}
        self._directory = directory
        self._has_networks = has_networks

    @contextmanager
    def running(self) -> Iterator[None]:
        started: list[Node] = []
        try:
            self.databases.start()
            self.nodes = [self._new_node(name, number) for number, name in enumerate(NAMES, 1)]
            url = self.databases.url()
            self.door = Node("door", self._directory, [url], "--roles", "gateway", command=TIED)
            lane = ("--roles", "gateway,lane", "--flight-port", str(free_port()))
            self.second = Node("second", self._directory, [url], *lane, command=TIED)
            for node in (*self.nodes, self.door, self.second):
                node.start()
                started.append(node)
            create_queue(self.door, QUEUE)
            create_queue(self.door, SHARED, LockDuration=f"PT{LOCK_S:.0f}S", Lifecycle="true")
            create_queue(self.door, SESSIONS, RequiresSession="true", Lifecycle="true")
            self.holders = Holders(self.second, self._seed)
            wait_until_even(self.nodes, SLOTS, self.door)
            self.applications = Applications(self.door, self.door, again_s=self._again_s)
            yield
        except BaseException as failure:
            for node in started:
                failure.add_note(f"output of node {node.name}:\n{node.output[-20_000:]}")
            raise
        finally:
            for node in started:
                if node.is_running:
                    node.resume()
                node.close()
            self.databases.remove()

    def node(self, name: str) -> Node:
        return self.nodes[NAMES.index(name)]

    def _new_node(self, name: str, number: int) -> Node:
        if not self._has_networks:
            return Node(name, self._directory, [self.databases.url()], command=TIED)
        machine = self.machines[name] = Machine(name, number)
        url = self.databases.url(machine.databases)
        listens = ("--listen", machine.listens)
        return Node(name, self._directory, [url], *listens, command=machine.command(TIED))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def rage_until_told(storm: Storm, world: World, faults: int, minutes: float | None) -> None:
    """Raises CancelledError when it is told to stop twice."""
    loop = asyncio.get_running_loop()
    raging = asyncio.ensure_future(storm.rage(world, faults))

    def stop() -> None:
        if is_told:
            raging.cancel()
        is_told.append(True)
        storm.stop()

    is_told: list[bool] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    timer = None if minutes is None else loop.call_later(minutes * 60, storm.stop)
    try:
        await raging
    finally:
        if timer is not None:
            timer.cancel()


def kinds_here(*, has_networks: bool) -> list[str]:
    kinds = [*OF_NODES, *OF_DATABASES]
    return [*kinds, *CUTS, FULL] if has_networks else kinds


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", help="only faults of this kind; repeatable")
    parser.add_argument("--in-turn", action="store_true", help="one kind after the other")
    parser.add_argument("--directory", help="where logs are kept; default: nowhere")
    parser.add_argument("--lasts", type=float, help="how long each cut, pause and death lasts")
    parser.add_argument("--again", type=float, help="how long the SDK waits before it sends again")
    parser.add_argument("--minutes", type=float, help="begin no fault after that time")
    given = parser.parse_args(arguments)
    has_networks = become_a_world("tests.chaos.cluster_storm", arguments)
    known = kinds_here(has_networks=has_networks)
    kinds = given.kind or known
    if unknown := set(kinds) - set(known):
        parser.error(f"not possible here: {', '.join(sorted(unknown))}; possible: {known}")
    if has_networks:
        prepare_world()
    else:
        say("no networks can be made here: nothing is cut off, and no disk filled")
    lasts_s = LASTS_S if given.lasts is None else (given.lasts, given.lasts)
    storm = Storm(given.seed, kinds, lasts_s, is_in_turn=given.in_turn)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(given.directory or temporary)
        directory.mkdir(parents=True, exist_ok=True)
        # Not root runs PostgreSQL, and it has to come to its disk.
        directory.chmod(0o755)
        world = World(directory, has_networks=has_networks, again_s=given.again, seed=given.seed)
        try:
            with world.running():
                asyncio.run(rage_until_told(storm, world, given.faults, given.minutes))
        except asyncio.CancelledError:
            say(f"{storm.count} faults, not judged: it was told to stop at once")
            return NOT_JUDGED
    return judge(storm, world.applications.book, world.holders.book)


def judge(storm: Storm, book: Book, held: HolderBook) -> int:
    """Tell what was seen; the exit code says whether it is what must be."""
    for kind, (count, longest_s, slowest_s) in sorted(storm.faults.items()):
        say(f"| {kind} | {count} | {longest_s:.1f} s | {slowest_s:.1f} s |")
    sent, locks = sum(map(len, book.accepted.values())), len(book.lost_locks)
    competed = sum(map(len, held.accepted.values()))
    told = f"{storm.count} faults, {sent} messages, {competed} to receivers that compete"
    doubts: list[str] = []
    for each in (book, held):
        try:
            each.check()
        except NotJudged as reason:
            doubts.append(str(reason))
        except AssertionError as failure:
            say(f"{told}: {failure}")
            return 1
    if doubts:
        say(f"{told}, not judged: {'; '.join(doubts)}")
        return NOT_JUDGED
    say(
        f"{told}, none lost, none twice, each key and session in order, one holder; {locks} locks "
        f"lost, {len(held.interrupted)} receivers interrupted, {held.unanswered()} completions "
        "recorded and not answered"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
