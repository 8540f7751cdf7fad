"""One test for every SDK and every kind of queue, at the same time.

Most of a test's time is the SDKs' own waiting (they take half a second to open or close anything),
so the variants of a test wait together: a fixture gives an `Each`, and whoever runs the test gives
every variant its own value of it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")

SDKS: Final = ("sync", "aio")
KINDS: Final = ("conventional", "partitioned")
_THREADS_MAX: Final = 32


@dataclass(frozen=True)
class Variant:
    """Which SDK and which kind of queue; "" where a test does not depend on it."""

    sdk: str = ""
    kind: str = ""

    @property
    def is_partitioned(self) -> bool:
        return self.kind == "partitioned"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.sdk, self.kind)))


class Each(Generic[T]):
    """A value that every variant gets its own of, made when the test begins."""

    def __init__(
        self, make: Callable[[Variant], T], *, by_sdk: bool = False, by_kind: bool = False
    ) -> None:
        self.make = make
        self.by_sdk = by_sdk
        self.by_kind = by_kind


def variants_of(arguments: Iterable[object]) -> list[Variant]:
    """Every combination of what the arguments of a test depend on; one, if it is on nothing."""
    each = [argument for argument in arguments if isinstance(argument, Each)]
    sdks = SDKS if any(one.by_sdk for one in each) else ("",)
    kinds = KINDS if any(one.by_kind for one in each) else ("",)
    return [Variant(*names) for names in itertools.product(sdks, kinds)]


def arguments_of(arguments: Mapping[str, object], variant: Variant) -> dict[str, object]:
    return {
        name: argument.make(variant) if isinstance(argument, Each) else argument
        for name, argument in arguments.items()
    }


class Plain(Protocol):
    """A test that is an ordinary function."""

    def __call__(self, **arguments: object) -> object: ...


class Asynchronous(Protocol):
    """A test that is a coroutine function."""

    def __call__(self, **arguments: object) -> Awaitable[object]: ...


def run_one_by_one(test: Plain, arguments: Mapping[str, object]) -> None:
    for variant in variants_of(arguments.values()):
        try:
            test(**arguments_of(arguments, variant))
        except BaseException as failure:
            failure.add_note(f"variant: {variant}")
            raise


async def run_together(test: Asynchronous, arguments: Mapping[str, object]) -> None:
    """All variants at once; those that fail are raised with a note of which they are."""
    # The synchronous SDK blocks a thread for every client that waits.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS_MAX))
    variants = variants_of(arguments.values())
    running = [test(**arguments_of(arguments, variant)) for variant in variants]
    results = await asyncio.gather(*running, return_exceptions=True)
    failures: list[BaseException] = []
    for variant, result in zip(variants, results, strict=True):
        if isinstance(result, BaseException):
            result.add_note(f"variant: {variant}")
            failures.append(result)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(variants)} variants", failures)
