"""Functions in a process of their own: libraries of stores do not outlive a fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Protocol, TypeVar, TypeVarTuple

Told = TypeVar("Told")
Given = TypeVarTuple("Given")


class Run(Protocol):
    """Calls a function elsewhere."""

    def __call__(self, act: Callable[[*Given], Told], *arguments: *Given) -> Told: ...


@contextmanager
def running_apart() -> Iterator[Run]:
    with ProcessPoolExecutor(1, get_context("spawn")) as own_process:

        def run(act: Callable[[*Given], Told], *arguments: *Given) -> Told:
            return own_process.submit(act, *arguments).result()

        yield run
