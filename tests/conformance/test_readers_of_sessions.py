"""Receivers of the SDKs and readers of the bulk lane never hold one session at a time (P2, R26)."""

import asyncio
from collections.abc import Callable

import pytest
from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import Document
from shardbus.app.cli.sas import Credential
from tests.conformance.conftest import LOCK_SHORT_S, Queue
from tests.conformance.sdk import NOTHING_S, Sdk, receive_all, send_texts, texts
from tests.support.server import Server

LEASE_MS = 10_000


class Reader:
    """A reader of a queue over the JSON API; each fragment has its own ordinals."""

    def __init__(self, server: Server, queue: Queue) -> None:
        self._api = ClientAccess(f"http://127.0.0.1:{server.http_port}", Credential(), None).api()
        self._queue = queue.name
        self._who = {"reader": "lake", "owner": "test"}
        self._last: dict[int, int] = {}

    def open(self) -> None:
        opened = self._ask("open", {"lease_ms": LEASE_MS})
        for part in _listed(opened, "fragments"):
            self._last[_number(part, "number")] = _number(part, "last")

    def claim(self) -> int:
        """How many messages are claimed, all that can be."""
        wishes = [{"fragment": each, "ordinal": last + 1} for each, last in self._last.items()]
        claims = _listed(self._ask("claim", {"claims": wishes}), "claims")
        for claim in claims:
            self._last[_number(claim, "fragment")] += bool(claim["is_made"])
        return sum(_number(claim, "count") for claim in claims)

    def complete(self) -> None:
        done = [{"fragment": each, "ordinal": last} for each, last in self._last.items() if last]
        self._ask("complete", {"claims": done})

    def release(self) -> None:
        self._ask("release", {})

    def _ask(self, verb: str, body: Document) -> Document:
        return self._api.post(f"entities/{self._queue}/readers/{verb}", {**self._who, **body})


def _listed(document: Document, name: str) -> list[Document]:
    found = document[name]
    assert isinstance(found, list)
    return found


def _number(document: Document, name: str) -> int:
    found = document[name]
    assert isinstance(found, int)
    return found


async def send(sdk: Sdk, queue: Queue, *names: str) -> None:
    async with sdk.sender(queue.name) as sender:
        for number, name in enumerate(names):
            await send_texts(sender, f"{name} {number}", session=name)


async def cannot_accept(sdk: Sdk, queue: Queue, name: str) -> None:
    with pytest.raises(SessionCannotBeLockedError, match="reader 'lake'"):
        async with sdk.session(queue.name, name):
            pass


async def test_a_session_that_a_reader_holds_cannot_be_accepted(
    sdk: Sdk, server: Server, session_queue: Queue
) -> None:
    await send(sdk, session_queue, "red", "blue", "red")
    reader = Reader(server, session_queue)
    reader.open()

    assert reader.claim() == 3

    await cannot_accept(sdk, session_queue, "RED")
    with pytest.raises(OperationTimeoutError):
        async with sdk.session(session_queue.name, wait_s=NOTHING_S):
            pass
    await send(sdk, session_queue, "red")
    await cannot_accept(sdk, session_queue, "red")
    reader.complete()
    async with sdk.session(session_queue.name) as session:
        assert session.session_id == "red"
        assert texts(await receive_all(session, 1)) == ["red 0"]


async def test_a_session_that_a_receiver_holds_is_not_claimed(
    sdk: Sdk, server: Server, session_queue: Queue
) -> None:
    await send(sdk, session_queue, "red", "blue", "red")
    reader = Reader(server, session_queue)
    reader.open()
    async with sdk.session(session_queue.name, "red") as session:
        assert reader.claim() == 1
        [first] = await receive_all(session, 1)
        await session.complete(first)

    assert await until_some(reader.claim) == 1


async def test_released_sessions_go_to_receivers_whole_and_in_order(
    sdk: Sdk, server: Server, session_queue: Queue
) -> None:
    await send(sdk, session_queue, "red", "red", "red")
    reader = Reader(server, session_queue)
    reader.open()
    assert reader.claim() == 3

    reader.release()

    async with sdk.session(session_queue.name, "red") as session:
        messages = await receive_all(session, 3)
    assert texts(messages) == ["red 0", "red 1", "red 2"]
    assert {message.delivery_count for message in messages} == {0}


async def until_some(count: Callable[[], int]) -> int:
    """A closed link releases its session a moment later."""
    for _ in range(int(LOCK_SHORT_S * 20)):
        found = count()
        if found:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError("nothing was claimed")
