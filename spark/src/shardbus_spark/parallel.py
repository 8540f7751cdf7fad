"""Merges several streams into one, with a bound on what waits to be taken."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

Fetch = Callable[[bytes], Iterator[pa.RecordBatch]]


def in_parallel(fetch: Fetch, tickets: Sequence[bytes], streams: int) -> Iterator[pa.RecordBatch]:
    """The batches of all tickets as they come, those of one ticket in order.

    Each stream holds one batch, and as many batches as there are streams wait to be taken: a slow
    consumer slows the streams down. The first failure of any of them is raised, and ends the
    others.
    """
    waiting: queue.Queue[pa.RecordBatch | Exception | None] = queue.Queue(streams)
    left = iter(tickets)
    turn = threading.Lock()
    ended = threading.Event()

    def work() -> None:
        try:
            while not ended.is_set():
                with turn:
                    ticket = next(left, None)
                if ticket is None:
                    break
                for batch in fetch(ticket):
                    waiting.put(batch)
                    if ended.is_set():
                        return
            waiting.put(None)
        except Exception as error:  # noqa: BLE001 - raised again where the batches are taken
            waiting.put(error)

    workers = [
        threading.Thread(target=work, name=f"shardbus stream {number}", daemon=True)
        for number in range(streams)
    ]
    for worker in workers:
        worker.start()
    try:
        yield from _taken(waiting, len(workers))
    finally:
        ended.set()
        # Each stream puts at most one more item: now there is room for all of them.
        _empty(waiting)


def _taken(
    waiting: queue.Queue[pa.RecordBatch | Exception | None], workers: int
) -> Iterator[pa.RecordBatch]:
    while workers:
        found = waiting.get()
        if found is None:
            workers -= 1
        elif isinstance(found, Exception):
            raise found
        else:
            yield found


def _empty(waiting: queue.Queue[pa.RecordBatch | Exception | None]) -> None:
    with suppress(queue.Empty):
        while True:
            waiting.get_nowait()
