"""Time to live: never delivered after expiry, dead-lettered when told."""

import pytest

from shardbus.core.limits import DUE_COUNT_MAX, WINDOW_COUNT_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.messages.command import ABANDON, COMPLETE, RELEASE, Receive, Received
from tests.unit.core.desk import LOCK_MS, START_MS, Desk, rules


@pytest.mark.parametrize(
    ("own_ms", "default_ms", "effective_ms"),
    [(-1, -1, 0), (500, -1, 500), (-1, 700, 700), (500, 700, 500), (900, 700, 700)],
)
def test_the_shorter_of_the_senders_and_the_entitys_time_to_live_counts(
    own_ms: int, default_ms: int, effective_ms: int
) -> None:
    desk = Desk(rules(default_ttl_ms=default_ms))

    [number] = desk.send(b"a", ttl_ms=own_ms)

    expires_at_ms = desk.shelf.entries[number].expires_at_ms
    assert expires_at_ms == (START_MS + effective_ms if effective_ms else 0)


def test_a_message_is_delivered_until_just_before_it_expires() -> None:
    desk = Desk()
    desk.send(b"a", b"b", ttl_ms=500)

    desk.now_ms += 499
    assert desk.payloads() == [b"a"]
    desk.now_ms += 1
    assert desk.payloads() == []


def test_an_expired_message_is_not_delivered_although_nobody_looked_for_it() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=500)
    desk.send(b"b")
    command = Receive(MAIN_LINE, 5, is_locking=True, token_seed=bytes(8))

    reply = desk.fragment.apply(command, START_MS + 500, desk.steady_ms).reply

    assert isinstance(reply, Received)
    assert [delivery.payload for delivery in reply.deliveries] == [b"b"]


def test_a_message_that_lives_for_no_time_is_never_delivered() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=0)

    assert desk.payloads() == []
    assert desk.shelf.entries == {}


def test_an_expired_message_is_gone_from_the_store_and_the_counters() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=500)

    desk.wait(500)

    assert desk.shelf.entries == {}
    assert desk.shelf.counters.lines[MAIN_LINE].count == 0


def test_an_expired_message_is_dead_lettered_when_the_entity_says_so() -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    desk.send(b"a", ttl_ms=500)

    desk.wait(500)
    desk.reload()

    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.delivery_count) == (b"a", 0)
    assert dead.entry.reason == "TTLExpiredException"


def test_dead_letters_do_not_expire() -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    desk.send(b"a", ttl_ms=500)
    desk.wait(500)

    desk.wait(1 << 40)

    assert desk.payloads(line=DEAD_LETTER_LINE) == [b"a"]
    assert desk.wake_at_ms() == desk.now_ms + LOCK_MS


def test_a_locked_message_may_be_completed_after_it_expired() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=500)
    [delivery] = desk.receive()

    desk.wait(1_000)

    assert desk.settle(COMPLETE, delivery) == [False]


@pytest.mark.parametrize("how", [ABANDON, RELEASE])
def test_a_locked_message_expires_when_it_comes_back(how: int) -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    desk.send(b"a", ttl_ms=500)
    [delivery] = desk.receive()
    desk.wait(1_000)

    assert desk.settle(how, delivery) == [False]

    assert desk.payloads() == []
    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    assert dead.entry.reason == "TTLExpiredException"


def test_a_message_expires_when_its_lock_does() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=500)
    desk.receive()

    desk.wait(LOCK_MS)

    assert desk.shelf.entries == {}


def test_an_expired_message_that_is_locked_does_not_keep_the_fragment_busy() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=500)
    desk.receive()

    desk.wait(500)

    assert desk.wake_at_ms() == START_MS + LOCK_MS


def test_waking_is_asked_for_at_the_next_expiry() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=900)
    desk.send(b"b", ttl_ms=500)
    assert desk.wake_at_ms() == START_MS + 500

    desk.wait(500)
    assert desk.wake_at_ms() == START_MS + 900
    desk.wait(400)
    assert desk.wake_at_ms() == 0


def test_messages_that_wait_in_the_store_alone_expire_too() -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    count = WINDOW_COUNT_MAX + DUE_COUNT_MAX + 100
    desk.send(*[b"a"] * count, ttl_ms=500)
    desk.send(b"last")

    desk.wait(500)

    main, dead, _ = desk.shelf.counters.lines
    assert (main.count, dead.count) == (1, count)
    assert desk.payloads(5) == [b"last"]


def test_expiry_is_found_after_a_reload() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=500)
    desk.reload()

    desk.wait(500)

    assert desk.shelf.entries == {}
