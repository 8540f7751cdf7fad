"""Waiting in the event loop for what a worker does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from shardbus.broker.fragment.storage import Worker
from shardbus.stores.base.store import StoreError

T = TypeVar("T")


async def asked(worker: Worker, job: Callable[[], T]) -> T:
    """The result of a job; raises its StoreError. The job goes on if the caller is cancelled."""
    answer: asyncio.Future[T | StoreError] = asyncio.get_running_loop().create_future()

    def then(result: T | StoreError) -> None:
        if not answer.done():
            answer.set_result(result)

    worker.submit(job, then)
    result = await answer
    if isinstance(result, StoreError):
        raise result
    return result
