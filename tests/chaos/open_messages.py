"""Where the messages are that were accepted, and which of them the bus has completed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.failures import CommandError
from shardbus.core.sequence import fragment_of

DEAD: Final = "/$DeadLetterQueue"
PAGE: Final = 200
PAGES_MAX: Final = 1_000
PROBED: Final = 250
PROBED_MS: Final = 2_000
RECORDS: Final = 10_000
RECORD_PAGES_MAX: Final = 1_000

Name = tuple[str, int]
Numbered = tuple[str, int]
"""A queue, and the sequence number of a message of it."""


@dataclass(slots=True)
class Recorded:
    """What the lifecycle records of queues say."""

    # How often each message was completed.
    completed: Counter[Numbered] = field(default_factory=Counter)
    # Fragments of queues from which records are missing.
    incomplete: set[tuple[str, int]] = field(default_factory=set)
    damaged: int = 0

    def is_whole(self, message: Numbered) -> bool:
        """Whether a completion of this message that is not recorded has not happened."""
        queue, number = message
        return (queue, fragment_of(number)) not in self.incomplete


def left_in(api: ApiClient, queues: tuple[str, ...]) -> dict[Name, str] | str:
    """What these queues have, by name: which line, and how. A text says why that is not known."""
    found: dict[Name, str] = {}
    try:
        for queue in queues:
            for line, where in (("", "in the queue"), (DEAD, "dead-lettered")):
                for each in _pages(api, _path(queue + line)):
                    if (name := _name(each)) is not None:
                        told = ", ".join(f"{what} {each.get(what)}" for what in _TOLD)
                        found[name] = f"{where} ({told})"
    except (CommandError, OSError) as error:
        return f"the queue does not answer: {error!r}"
    return found


_TOLD: Final = ("state", "sequence_number", "delivery_count", "enqueued_at")


def free_in(api: ApiClient, queue: str) -> set[Name] | str:
    """What a new receiver is given at once: of the others somebody has the lock."""
    asked: Document = {"count": PROBED, "wait_ms": PROBED_MS}
    try:
        given = api.post(f"{_path(queue)}/receive", asked)["messages"]
    except (CommandError, OSError) as error:
        return f"the queue does not answer: {error!r}"
    assert isinstance(given, list)
    names = [_name(each) for each in given if isinstance(each, dict)]
    return {name for name in names if name is not None}


def recorded_in(api: ApiClient, queues: tuple[str, ...]) -> Recorded | str:
    """The completions that these queues have recorded. A text says why they are not known."""
    found = Recorded()
    try:
        for queue in queues:
            for page in _record_pages(api, queue):
                _add(found, queue, page)
    except (CommandError, OSError) as error:
        return f"the queue does not answer: {error!r}"
    return found


def _record_pages(api: ApiClient, queue: str) -> Iterator[Document]:
    cursor = "0.0"
    for _ in range(RECORD_PAGES_MAX):
        page = api.get(f"entities/{quote(queue, safe='')}/lifecycle", after=cursor, rows=RECORDS)
        yield page
        if page["is_end"]:
            return
        cursor = str(page["next"])
    raise AssertionError(f"the records of {queue} have no end")


def _add(found: Recorded, queue: str, page: Document) -> None:
    columns = page["columns"]
    assert isinstance(columns, dict)
    events, numbers, fragments = (columns[n] for n in ("event", "sequence_number", "fragment"))
    assert isinstance(events, list) and isinstance(numbers, list) and isinstance(fragments, list)
    for event, number, fragment in zip(events, numbers, fragments, strict=True):
        if event == "complete":
            assert isinstance(number, int)
            found.completed[queue, number] += 1
        elif event == "gap":
            assert isinstance(fragment, int)
            found.incomplete.add((queue, fragment))
    damaged = page["damaged"]
    assert isinstance(damaged, int)
    found.damaged += damaged


def _path(entity: str) -> str:
    return f"entities/{quote(entity, safe='')}/messages"


def _pages(api: ApiClient, path: str) -> Iterator[Document]:
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = api.get(path, top=PAGE, cursor=cursor)
        messages, following = page["messages"], page.get("next")
        assert isinstance(messages, list)
        yield from (each for each in messages if isinstance(each, dict))
        if not isinstance(following, str):
            return
        cursor = following


def _name(message: Document) -> Name | None:
    """Which message of a line it is; None of one that is not ours."""
    line, _, number = str(message.get("body", "")).partition(":")
    return (line, int(number)) if number.isdigit() else None
