"""Where the messages are that were accepted, and that no competing receiver completed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.failures import CommandError

DEAD: Final = "/$DeadLetterQueue"
PAGE: Final = 200
PAGES_MAX: Final = 1_000
PROBED: Final = 250
PROBED_MS: Final = 2_000

Name = tuple[str, int]


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
