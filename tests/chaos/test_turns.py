"""Management goes on when the broker with the catalogue stood still in the middle of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from shardbus.app.cli.failures import CommandError
from tests.chaos.processes import ProcessServer, process_server
from tests.support.queues import create_queue

PAUSES = 4
PAUSE_S = 1.4
BETWEEN_S = 1.0
# Long for a busy machine, and much less than the minute for which a lost turn would be taken.
BLOCKED_S_MAX = 25.0


@contextmanager
def creating(server: ProcessServer, threads: int) -> Iterator[None]:
    """Queues are made without pause while the block lasts; some attempts fail."""
    is_over = Event()

    def create_on(name: str) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            try:
                create_queue(server, f"{name}-{number}", EnablePartitioning="false")
            except CommandError:
                continue

    workers = [Thread(target=create_on, args=(f"t{number}",)) for number in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        is_over.set()
        for worker in workers:
            worker.join()


def blocked_s(server: ProcessServer, name: str) -> float:
    """How long it takes until a queue can be made."""
    started = time.monotonic()
    while True:
        try:
            create_queue(server, name, EnablePartitioning="false")
        except CommandError:
            if time.monotonic() > started + BLOCKED_S_MAX:
                raise
            time.sleep(0.1)
        else:
            return time.monotonic() - started


def test_a_pause_of_the_broker_with_the_catalogue_blocks_management_only_while_it_lasts(
    tmp_path: Path,
) -> None:
    with process_server(tmp_path) as server:
        for number in range(PAUSES):
            with creating(server, 2):
                time.sleep(BETWEEN_S)
                server.pause_broker(0)
                time.sleep(PAUSE_S)
                server.resume_broker(0)

            assert blocked_s(server, f"after-{number}") < BLOCKED_S_MAX
