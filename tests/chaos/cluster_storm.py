"""Random faults in a row in a cluster under load (`make storm-cluster ARGS="--seed 7"`).

Three brokers and their database are killed, paused and restarted, while applications use a gateway
that lives. At the end every message is accounted for.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.nodes import QUEUE, SLOTS, Applications, Node, cluster, wait_until_even
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue

FAULTS: Final = ("kill", "pause", "restart", "kill database")
PAUSE_S: Final = (1.0, 12.0)
CALM_S: Final = (0.0, 3.0)


class Storm:
    """One storm, which a seed determines."""

    def __init__(self, seed: int, faults: int) -> None:
        self._chance = Random(seed)
        self._faults = faults

    async def rage(
        self, applications: Applications, postgres: PostgresServer, nodes: list[Node]
    ) -> None:
        async with applications.at_work():
            for number in range(self._faults):
                await asyncio.sleep(self._chance.uniform(*CALM_S))
                fault, victim = self._chance.choice(FAULTS), self._chance.choice(nodes)
                began_s = time.monotonic()
                await self._do(fault, victim, postgres)
                await asyncio.to_thread(wait_until_even, nodes, SLOTS)
                lasted_s = time.monotonic() - began_s
                say(f"{number + 1}: {fault} {victim.name}: {lasted_s:.1f} s")

    async def _do(self, fault: str, victim: Node, postgres: PostgresServer) -> None:
        if fault == "kill":
            await asyncio.to_thread(victim.kill)
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))
            await asyncio.to_thread(victim.start)
        elif fault == "pause":
            victim.pause()
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))
            victim.resume()
        elif fault == "restart":
            await asyncio.to_thread(victim.restart)
        else:
            await asyncio.to_thread(postgres.stop, signal.SIGKILL)
            await asyncio.sleep(self._chance.uniform(0.0, 2.0))
            await asyncio.to_thread(lambda: postgres.start(is_same_port=True))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    postgres = PostgresServer(needed_binaries())
    try:
        postgres.make()
        postgres.start()
        urls = [postgres.tcp_url(postgres.new_database())]
        with (
            tempfile.TemporaryDirectory() as directory,
            cluster(Path(directory), urls, "a", "b", "c") as nodes,
        ):
            door = Node("door", Path(directory), urls, "--roles", "gateway")
            try:
                door.start()
                create_queue(door, QUEUE)
                applications = Applications(door, door)
                asyncio.run(Storm(given.seed, given.faults).rage(applications, postgres, nodes))
            finally:
                door.close()
        applications.book.check()
        sent = sum(map(len, applications.book.accepted.values()))
        lost = len(applications.book.lost_locks)
        say(f"{given.faults} faults, {sent} messages, none lost, none twice; {lost} locks lost")
    finally:
        postgres.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
