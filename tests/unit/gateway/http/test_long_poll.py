"""Receives that wait: woken at once, ended in time, never holding what nobody gets (R18, R19)."""

import gc

import pytest

from shardbus.core.namespace.access import LISTEN, AccessRule
from shardbus.core.namespace.entity import DISABLED_STATUS
from shardbus.gateway.http.messaging.head_receiver import HeadReceiver
from tests.unit.gateway.http.web import Web, Wire, broker_properties, settle_path

HEAD = "/many/messages/head?timeout=30"


def delivery_counts(web: Web, queue: str = "many") -> list[object]:
    """What can be received right now, by how often it was delivered before."""
    found: list[object] = []
    while (response := web.lock(queue)).status == 201:
        found.append(broker_properties(response)["DeliveryCount"])
    return found


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_message_wakes_who_waits_for_it_at_once(web: Web, method: str) -> None:
    """R19: in any of sixteen fragments."""
    waiting = web.start(web.request(method, HEAD))
    web.pass_s(20)
    assert not waiting.done()

    web.send("many", b"news")
    web.pass_s(0.01)

    assert waiting.result().body == b"news"


def test_who_waited_in_vain_hears_it_in_time(web: Web) -> None:
    started = web.loop.time()

    short = web.fetch("POST", "/q/messages/head?timeout=2.5")
    long = web.fetch("POST", "/q/messages/head")
    longest = web.fetch("POST", "/q/messages/head?timeout=3600")

    assert [short.status, long.status, longest.status] == [204, 204, 204]
    assert short.body == b""
    assert web.loop.time() - started == pytest.approx(2.5 + 60 + 60)


def test_an_answer_without_a_message_has_no_length_and_keeps_the_connection(web: Web) -> None:
    """RFC 9110, 8.6."""
    wire = Wire(web)
    for _ in range(2):
        wire.send("DELETE", "/q/messages/head?timeout=0")
        web.pass_s(1)

    assert wire.statuses() == [204, 204]
    assert b"content-length" not in wire.transport.written.lower()
    assert not wire.transport.is_closed
    wire.close()


def test_who_does_not_want_to_wait_looks_once(web: Web) -> None:
    started = web.loop.time()

    assert web.take("many").status == 204

    assert web.loop.time() - started < 0.1


def test_each_of_several_clients_gets_one_message(web: Web) -> None:
    waiting = [web.start(web.request("POST", HEAD)) for _ in range(5)]
    web.pass_s()

    for number in range(7):
        web.send("many", str(number).encode())
    web.pass_s()

    bodies = [task.result().body for task in waiting]
    assert len(set(bodies)) == 5
    assert len(delivery_counts(web)) == 2


def test_a_receive_takes_one_message_and_locks_no_other(web: Web) -> None:
    """R18."""
    for _ in range(20):
        web.send("many")

    web.lock("many")

    assert delivery_counts(web) == [1] * 19


@pytest.mark.parametrize("is_polite", [True, False], ids=["closes", "is cut off"])
def test_a_client_that_leaves_while_it_waits_leaves_nothing_locked(
    web: Web, is_polite: bool
) -> None:
    wire = Wire(web)
    wire.send("POST", HEAD)
    web.pass_s(1)
    if is_polite:
        web.loop.call_soon(wire.protocol.eof_received)
    else:
        web.loop.call_soon(wire.protocol.connection_lost, None)
    web.pass_s(1)

    web.send("many", b"mine")

    assert delivery_counts(web) == [1]
    wire.close()


@pytest.mark.parametrize("turns", range(8))
def test_a_message_that_comes_while_the_client_leaves_is_there_for_others(
    web: Web, turns: int
) -> None:
    """Whatever the moment, what was not answered is unlocked at once and uncounted."""
    web.send("many", b"mine")
    wire = Wire(web)
    wire.send("POST", HEAD)
    for _ in range(turns):
        web.run(_nothing())

    web.loop.call_soon(wire.protocol.connection_lost, None)
    web.pass_s(0.1)

    is_answered = b"mine" in wire.transport.written
    assert delivery_counts(web) == ([] if is_answered else [1])
    wire.close()


def test_a_message_for_a_client_that_has_gone_is_not_deleted(web: Web) -> None:
    left: list[list[object]] = []
    for turns in range(8):
        web.send("many", b"mine")
        wire = Wire(web)
        wire.send("DELETE", HEAD)
        for _ in range(turns):
            web.run(_nothing())
        web.loop.call_soon(wire.protocol.connection_lost, None)
        web.pass_s(0.1)
        left.append(delivery_counts(web))
        wire.close()
        web.pass_s(61)
        web.take("many")

    # Once the deletion is under way it cannot be called back; until then nothing is deleted.
    assert left[0] == left[1] == [1]
    assert left == sorted(left, reverse=True)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_message_that_comes_when_time_is_over_is_not_lost(web: Web, method: str) -> None:
    """Whoever is faster: the answer has it, or the queue has."""
    for step in range(12):
        waiting = web.start(web.request(method, "/many/messages/head?timeout=1"))
        web.loop.call_later(
            1 - 0.006 + step * 0.0005,
            lambda: web.start(web.request("POST", "/many/messages", b"late")),
        )
        web.pass_s(2)
        answered = waiting.result().status != 204
        left = delivery_counts(web)
        assert answered != bool(left)
        assert left in ([], [1])
        web.pass_s(61)
        while web.take("many").status == 200:
            pass


def test_a_cancelled_receive_gives_its_message_back_at_once(web: Web) -> None:
    """Whatever it was doing."""
    cancelled = 0
    for turns in range(12):
        web.send("many")
        task = web.start(web.request("POST", HEAD))
        for _ in range(turns):
            web.run(_nothing())
        task.cancel()
        web.pass_s(0.1)
        if task.cancelled():
            cancelled += 1
            assert delivery_counts(web) == [1]
        web.pass_s(61)
        assert web.take("many").status == 200

    assert 1 < cancelled < 12


def test_nothing_is_left_of_receives_that_ended(web: Web) -> None:
    web.take("many", timeout=1)
    web.send("many")
    web.take("many", timeout=1)
    task = web.start(web.request("POST", HEAD))
    web.pass_s(1)
    task.cancel()
    web.pass_s(1)
    del task
    gc.collect()

    assert [one for one in gc.get_objects() if isinstance(one, HeadReceiver)] == []


async def _nothing() -> None:
    """One turn of the loop."""


def test_shutting_down_ends_the_wait(web: Web) -> None:
    wire = Wire(web)
    wire.send("POST", HEAD)
    web.pass_s(1)
    started = web.loop.time()

    wire.close()

    assert wire.statuses() == [204]
    assert web.loop.time() - started < 1
    web.send("many")
    assert delivery_counts(web) == [1]


def test_who_waits_at_a_deleted_entity_hears_that_it_is_gone(web: Web) -> None:
    waiting = web.start(web.request("POST", HEAD))
    web.pass_s(1)

    web.run(web.namespace.delete("many"))
    web.pass_s()

    assert waiting.result().status == 410


def test_who_waits_at_an_entity_that_is_disabled_hears_it(web: Web) -> None:
    waiting = web.start(web.request("POST", HEAD))
    web.pass_s(1)

    web.set_status("many", DISABLED_STATUS)
    web.pass_s()

    assert waiting.result().status == 400


def test_a_kept_connection_serves_one_request_after_the_other(web: Web) -> None:
    """R33."""
    wire = Wire(web)
    for number in range(100):
        wire.send("POST", "/many/messages", str(number).encode())
        web.pass_s(0.01)
        wire.send("DELETE", HEAD)
        web.pass_s(0.01)

    assert wire.statuses() == [201, 200] * 100
    assert not wire.transport.is_closed
    wire.close()


def test_pipelined_requests_wait_behind_a_receive(web: Web) -> None:
    wire = Wire(web)
    wire.send("POST", "/q/messages/head?timeout=10")
    wire.send("POST", "/q/messages", b"x")
    web.pass_s(5)
    assert wire.statuses() == []
    assert wire.transport.is_paused

    web.pass_s(10)

    assert wire.statuses() == [204, 201]
    wire.close()


def test_messages_are_counted_by_what_became_of_them(web: Web) -> None:
    for _ in range(4):
        web.send("q")
    web.take("q")
    web.fetch("DELETE", settle_path(web.lock("q")))
    path = settle_path(web.lock("q"))
    web.fetch("POST", path)
    web.fetch("PUT", path)

    assert web.counts.messages == {
        ("q", "sent"): 4,
        ("q", "deleted"): 1,
        ("q", "locked"): 2,
        ("q", "completed"): 1,
        ("q", "renewed"): 1,
        ("q", "abandoned"): 1,
    }
    assert web.counts.requests[("POST", 201)] == 6


def test_who_loses_the_key_while_waiting_gets_nothing(web: Web) -> None:
    """R34: a message that comes after the rotation is not for the old key."""
    rules = [AccessRule("ear", LISTEN, "old", "other")]
    web.run(web.namespace.change_access("q", lambda _: rules))
    old, other = (
        web.loop.create_task(
            web.site.respond(
                web.request(
                    "DELETE",
                    "/q/messages/head?timeout=30",
                    token=web.token("http://bus/q", key_name="ear", key=key),
                )
            )
        )
        for key in ("old", "other")
    )
    web.pass_s(1)

    web.run(web.namespace.change_access("q", lambda _: [AccessRule("ear", LISTEN, "new", "other")]))
    web.pass_s(1)
    ended_before = (old.done(), other.done())
    web.send("q", b"secret")
    web.pass_s(1)

    assert ended_before == (True, False)
    assert (old.result().status, old.result().body) == (204, b"")
    assert other.result().body == b"secret"
