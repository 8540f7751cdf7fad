"""Sessions with the Python SDKs: who holds one, for how long, and in what order it is read."""

import asyncio
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.conformance.conftest import LOCK_SHORT_S, Queue
from tests.conformance.sdk import (
    DELETING,
    NOTHING_S,
    Sdk,
    receive_all,
    send_texts,
    texts,
    waiting_for,
)

WOKEN_S = 3.0
"""Well below what a poll, or the end of a wait, would take."""


async def test_a_session_is_accepted_by_its_id_and_gives_its_own_messages_in_order(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26, R11."""
    async with sdk.sender(session_queue.name) as sender:
        for number in range(5):
            await send_texts(sender, f"red {number}", session="red")
            await send_texts(sender, f"blue {number}", session="blue")
    async with sdk.session(session_queue.name, "red") as session:
        messages = await receive_all(session, 5)
        for message in messages:
            await session.complete(message)

        assert session.session_id == "red"
        assert texts(messages) == [f"red {number}" for number in range(5)]
        assert {message.session_id for message in messages} == {"red"}
        assert await session.receive(wait_s=NOTHING_S) == []
        remaining = session.held_until - datetime.now(UTC)
        assert timedelta() < remaining <= timedelta(seconds=LOCK_SHORT_S)


async def test_a_session_id_is_not_case_sensitive(sdk: Sdk, session_queue: Queue) -> None:
    """R26, R11: one lock, order, state and fragment; messages keep their spelling."""
    names = ["SessionId", "sessionId", "SESSIONID", "sessionid"]
    async with sdk.sender(session_queue.name) as sender:
        for name in names:
            await send_texts(sender, f"of {name}", session=name)
    async with sdk.session(session_queue.name, "sessionId") as session:
        await session.set_state(b"kept")
        with pytest.raises(SessionCannotBeLockedError, match="SESSIONID"):
            async with sdk.session(session_queue.name, "SESSIONID"):
                pass
        messages = await receive_all(session, 4)
        [first, *others] = messages
        await session.defer(first)
        for message in others:
            await session.complete(message)
        [deferred] = await session.receive_deferred(first.sequence_number or 0)

        assert session.session_id == "sessionId"
        assert await sdk.sessions(session_queue.name) == ["SessionId"]
    async with sdk.session(session_queue.name, "SESSIONID") as heir:
        state = await heir.state()
        peeked = await heir.peek(9)

    assert [message.session_id for message in messages] == names
    assert texts(messages) == [f"of {name}" for name in names]
    assert len({(message.sequence_number or 0) >> 48 for message in messages}) == 1
    assert (deferred.session_id, state, texts(peeked)) == ("SessionId", b"kept", ["of SessionId"])


async def test_the_next_session_is_spelled_as_its_first_message(
    sdk: Sdk, session_queue: Queue
) -> None:
    async with sdk.sender(session_queue.name) as sender:
        for name in ("Erster", "ERSTER"):
            await send_texts(sender, name, session=name)
    async with sdk.session(session_queue.name) as session:
        messages = await receive_all(session, 2)

        assert session.session_id == "Erster"
        assert texts(messages) == ["Erster", "ERSTER"]


async def test_an_empty_string_is_a_session_id(sdk: Sdk, session_queue: Queue) -> None:
    async with sdk.sender(session_queue.name) as sender:
        await send_texts(sender, "one", "two", session="")
    async with sdk.session(session_queue.name) as session:
        messages = await receive_all(session, 2)
        for message in messages:
            await session.complete(message)

    assert texts(messages) == ["one", "two"]
    assert [message.session_id for message in messages] == ["", ""]


async def test_the_next_session_is_one_with_messages_that_nobody_holds(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26."""
    async with sdk.sender(session_queue.name) as sender:
        for name in ("one", "two"):
            await send_texts(sender, f"of {name}", session=name)
    async with (
        sdk.session(session_queue.name, "empty"),
        sdk.session(session_queue.name) as first,
        sdk.session(session_queue.name) as second,
    ):
        [of_first] = await first.receive()
        [of_second] = await second.receive()

        assert {first.session_id, second.session_id} == {"one", "two"}
        assert texts([of_first]) == [f"of {first.session_id}"]
        assert texts([of_second]) == [f"of {second.session_id}"]


async def test_a_waiting_acceptor_is_woken_by_the_first_message_of_a_session(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26: long poll, over whichever fragment the session falls on."""
    async with (
        sdk.sender(session_queue.name) as sender,
        waiting_for(sdk.session(session_queue.name)) as accepting,
    ):
        await asyncio.sleep(0.8)
        assert not accepting.done()
        sent_at = time.monotonic()
        await send_texts(sender, "wake up", session="new")
        session = await accepting
        waited_s = time.monotonic() - sent_at
        [message] = await session.receive()

        assert session.session_id == "new"
        assert texts([message]) == ["wake up"]
        assert waited_s < WOKEN_S


async def test_without_a_session_in_time_the_acceptor_is_told_so(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26, R16: after the time that the client gave."""
    started = time.monotonic()
    with pytest.raises(OperationTimeoutError):
        async with sdk.session(session_queue.name, wait_s=1):
            pass
    assert 0.9 <= time.monotonic() - started < 1 + WOKEN_S


async def test_a_session_has_one_holder_and_is_free_when_that_one_closes(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26: exclusive; what was delivered and not settled goes back uncounted."""
    async with sdk.sender(session_queue.name) as sender:
        await send_texts(sender, "first", "second", session="shared")
    async with sdk.session(session_queue.name, "shared") as holder:
        held = await receive_all(holder, 2)
        with pytest.raises(SessionCannotBeLockedError, match="shared"):
            async with sdk.session(session_queue.name, "shared"):
                pass
    async with sdk.session(session_queue.name, "shared") as heir:
        messages = await receive_all(heir, 2)

    assert texts(held) == texts(messages) == ["first", "second"]
    assert [message.delivery_count for message in messages] == [0, 0]


async def test_a_session_without_messages_can_be_held_and_gets_its_first_at_once(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26: it comes into existence when it is accepted by name."""
    async with (
        sdk.session(session_queue.name, "early") as session,
        sdk.sender(session_queue.name) as sender,
    ):
        waiting = asyncio.ensure_future(session.receive())
        await asyncio.sleep(0.2)
        sent_at = time.monotonic()
        await send_texts(sender, "elsewhere", session="other")
        await send_texts(sender, "here", session="early")
        [message] = await waiting

        assert texts([message]) == ["here"]
        assert time.monotonic() - sent_at < WOKEN_S


async def test_an_abandoned_message_comes_first_again(sdk: Sdk, session_queue: Queue) -> None:
    """R26: the order of a session outlives a failed delivery."""
    bodies = [str(number) for number in range(5)]
    async with sdk.sender(session_queue.name) as sender:
        await send_texts(sender, *bodies, session="ordered")
    async with sdk.session(session_queue.name, "ordered") as session:
        [first] = await session.receive()
        await session.abandon(first)
        messages = await receive_all(session, 5)

        assert texts(messages) == bodies
        assert [message.delivery_count for message in messages] == [1, 0, 0, 0, 0]


async def test_the_state_of_a_session_stays_until_it_is_cleared(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26: set, replaced, seen by the next holder, cleared."""
    async with sdk.session(session_queue.name, "stateful") as session:
        assert await session.state() is None
        await session.set_state(b"\x00\xff step 1")
        assert await session.state() == b"\x00\xff step 1"
        await session.set_state("Schritt zwei ü")
    async with sdk.session(session_queue.name, "stateful") as session:
        assert await session.state() == "Schritt zwei ü".encode()
        await session.set_state(None)
        assert await session.state() is None
    async with sdk.session(session_queue.name, "another") as session:
        assert await session.state() is None


async def test_sessions_are_listed_by_what_they_hold(sdk: Sdk, session_queue: Queue) -> None:
    """R26, R32: those with messages or a state, over pages; or those whose state is newer."""
    names = [f"session {number:03}" for number in range(105)]
    assert await sdk.sessions(session_queue.name) == []
    async with sdk.sender(session_queue.name) as sender:
        for name in names:
            await send_texts(sender, "x", session=name)
    async with sdk.session(session_queue.name, "old state") as session:
        await session.set_state(b"old")
    await asyncio.sleep(0.01)
    between = datetime.now(UTC)
    await asyncio.sleep(0.01)
    async with sdk.session(session_queue.name, "new state") as session:
        await session.set_state(b"new")
    listed = await sdk.sessions(session_queue.name)

    assert sorted(listed) == sorted([*names, "old state", "new state"])
    assert await sdk.sessions(session_queue.name, between) == ["new state"]


async def test_peeking_in_a_session_shows_that_session(sdk: Sdk, session_queue: Queue) -> None:
    """R20, R26."""
    async with sdk.sender(session_queue.name) as sender:
        for number in range(4):
            await send_texts(sender, f"seen {number}", session="seen")
            await send_texts(sender, f"unseen {number}", session="unseen")
    async with sdk.session(session_queue.name, "seen") as session:
        [locked] = await session.receive()
        found = await session.peek(10)

        assert texts([locked]) == ["seen 0"]
        assert texts(found) == [f"seen {number}" for number in range(4)]


async def test_a_session_can_be_received_and_deleted(sdk: Sdk, session_queue: Queue) -> None:
    """R26."""
    async with sdk.sender(session_queue.name) as sender:
        await send_texts(sender, "one", "two", session="brief")
    async with sdk.session(session_queue.name, "brief", DELETING) as session:
        messages = await receive_all(session, 2)

        assert texts(messages) == ["one", "two"]
        assert await session.peek() == []


async def test_a_message_without_a_session_is_refused_where_sessions_are_required(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R11, R26: alone, in a batch, and when it is scheduled; the sender lives on."""
    async with sdk.sender(session_queue.name) as sender:
        with pytest.raises(ServiceBusError, match="session"):
            await sender.send(ServiceBusMessage("lost"))
        with pytest.raises(ServiceBusError, match="session"):
            await sender.send([ServiceBusMessage("lost"), ServiceBusMessage("lost")])
        with pytest.raises(ServiceBusError, match="session"):
            await sender.schedule(ServiceBusMessage("lost"), datetime.now(UTC))
        await send_texts(sender, "found", session="a")
    async with sdk.session(session_queue.name) as session:
        assert texts(await session.peek(10)) == ["found"]


async def test_receivers_and_queues_must_agree_about_sessions(
    sdk: Sdk, queue: Queue, session_queue: Queue
) -> None:
    """R26."""
    with pytest.raises(ServiceBusError, match="requires sessions"):
        async with sdk.receiver(session_queue.name) as receiver:
            await receiver.receive(wait_s=NOTHING_S)
    with pytest.raises(ServiceBusError, match="non-sessionful"):
        async with sdk.session(queue.name, "any"):
            pass


async def test_many_sessions_are_worked_off_by_several_receivers_each_in_order(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26, R11: every session whole, in order, and by one receiver at a time."""
    names = [f"session {number}" for number in range(8)]
    expected = {name: [f"{name} {number}" for number in range(4)] for name in names}
    found: defaultdict[str, list[str]] = defaultdict(list)
    async with sdk.sender(session_queue.name) as sender:
        for number in range(4):
            for name in names:
                await send_texts(sender, f"{name} {number}", session=name)

    async def work() -> None:
        while len(found) < len(names):
            try:
                async with sdk.session(session_queue.name, wait_s=2) as session:
                    for message in await receive_all(session, 4):
                        found[session.session_id] += texts([message])
                        await session.complete(message)
            except OperationTimeoutError:
                continue

    await asyncio.gather(*(work() for _ in range(4)))

    assert found == expected
    assert await sdk.sessions(session_queue.name) == []


async def test_a_session_that_is_not_renewed_ends_and_passes_to_the_next(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26: the deadline decides. What was delivered counts as failed, and its holder is told."""
    async with sdk.sender(session_queue.name) as sender:
        await send_texts(sender, "first", "second", session="lost")
        await send_texts(sender, "safe", session="renewed")
    async with (
        sdk.session(session_queue.name, "lost") as lost,
        sdk.session(session_queue.name, "renewed") as renewed,
    ):
        [first] = await lost.receive()
        [safe] = await renewed.receive()
        first_end = renewed.held_until
        await asyncio.sleep(1)
        assert await renewed.renew_session() - first_end >= timedelta(seconds=0.9)
        async with sdk.session(session_queue.name) as heir:
            assert datetime.now(UTC) >= lost.held_until
            again = await receive_all(heir, 2)
            with pytest.raises(SessionLockLostError):
                await lost.complete(first)
            with pytest.raises(SessionLockLostError):
                await lost.renew_session()
            with pytest.raises(SessionLockLostError):
                await lost.set_state(b"too late")

            assert heir.session_id == "lost"
            assert texts(again) == ["first", "second"]
            assert [message.delivery_count for message in again] == [1, 0]
        await renewed.complete(safe)
        assert await renewed.peek() == []
