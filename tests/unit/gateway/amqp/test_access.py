"""Rules and keys that change while links are open, and clients that guess (R34)."""

import logging
from collections.abc import Iterator

import pytest

from shardbus.broker.access.auth import DEVELOPMENT_KEY_NAME
from shardbus.broker.access.slowdown import (
    DELAY_MS_MAX,
    FREE_FAILURES,
    WAITING_OF_PEER_MAX,
    Slowdown,
)
from shardbus.codec.types import Int, Value
from shardbus.core.namespace.access import ALL_RIGHTS, LISTEN, SEND, AccessRule
from shardbus.message.sections import DecodedMessage
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client, anonymous, plain

UNAUTHORIZED = "amqp:unauthorized-access"
BOTH = AccessRule("worker", LISTEN | SEND, "first", "second")


class Counter:
    """A client that shows tokens on links of its own."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.client = bench.client(anonymous())
        self._requests = self.client.sender("$cbs", "requests")
        self._responses = self.client.receiver("$cbs", 1000, name="responses", target="$cbs")
        bench.pass_s()

    def put(self, key_name: str, key: str, path: str = "q") -> None:
        token = self.bench.token(f"sb://shardbus/{path}", key_name=key_name, key=key)
        properties: dict[str, Value] = {"operation": "put-token", "name": f"sb://shardbus/{path}"}
        self.client.ask(self._requests, token, properties)

    def answers(self) -> list[DecodedMessage]:
        return self.client.answers(self._responses)

    def statuses(self) -> list[Value]:
        return [answer.application_properties["status-code"] for answer in self.answers()]


def set_rules(bench: Bench, path: str, *rules: AccessRule) -> None:
    bench.run(bench.namespace.change_access(path, lambda _: list(rules)))
    bench.pass_s()


@pytest.mark.parametrize("owner", ["", "q"], ids=["namespace", "queue"])
def test_a_rotated_key_ends_its_links_and_the_other_key_goes_on(bench: Bench, owner: str) -> None:
    """R34: no restart, and nobody who has the other key notices."""
    set_rules(bench, owner, BOTH)
    old, other, fresh = Counter(bench), Counter(bench), Counter(bench)
    old.put("worker", "first")
    other.put("worker", "second")
    bench.pass_s()
    lost = [old.client.sender("q"), old.client.receiver("q", 5, name="r")]
    kept = [other.client.sender("q"), other.client.receiver("q", 5, name="r")]
    bench.pass_s()

    set_rules(bench, owner, AccessRule("worker", LISTEN | SEND, "third", "second"))
    fresh.put("worker", "third")
    old.put("worker", "first")
    bench.pass_s()

    assert {old.client.detach_error(link).condition for link in lost} == {UNAUTHORIZED}
    assert all(link.is_attached for link in kept)
    assert old.statuses() == [Int(202), Int(401)]
    assert fresh.statuses() == [Int(202)]
    bench.fill("q", b"not for the old key")
    assert other.client.bodies(kept[1]) == [b"not for the old key"]


def test_a_rule_that_loses_a_right_loses_the_links_that_need_it(bench: Bench) -> None:
    """R34."""
    set_rules(bench, "q", BOTH)
    worker = Counter(bench)
    worker.put("worker", "first")
    bench.pass_s()
    sender, receiver = worker.client.sender("q"), worker.client.receiver("q", 1)
    bench.pass_s()

    set_rules(bench, "q", AccessRule("worker", LISTEN, "first", "second"))

    assert worker.client.detach_error(sender).condition == UNAUTHORIZED
    assert receiver.is_attached


def test_a_deleted_rule_ends_connections_that_showed_its_key_itself(bench: Bench) -> None:
    """R34: SASL PLAIN."""
    set_rules(bench, "", AccessRule("plain", ALL_RIGHTS, "the-key"))
    shown = bench.client(plain(b"\0plain\0the-key"))
    root = bench.client()
    links = [client.receiver("q", 1) for client in (shown, root)]
    bench.pass_s()
    assert all(link.is_attached for link in links)

    set_rules(bench, "")

    again = shown.receiver("q", name="again")
    bench.pass_s()
    assert shown.detach_error(links[0]).condition == UNAUTHORIZED
    assert shown.detach_error(again).condition == UNAUTHORIZED
    assert links[1].is_attached


@pytest.mark.parametrize("loses", ["q", "many"])
def test_who_sends_by_way_of_an_entity_needs_the_keys_of_both(bench: Bench, loses: str) -> None:
    """R34: losing either ends the link."""
    for name in ("q", "many"):
        set_rules(bench, name, BOTH)
    worker = Counter(bench)
    worker.put("worker", "first", "q")
    worker.put("worker", "first", "many")
    bench.pass_s()
    link = worker.client.session.attach_sender(
        "via",
        target="q",
        snd_settle_mode=0,
        properties={"com.microsoft:transfer-destination-address": "many"},
    )
    worker.client.flush()
    bench.pass_s()
    assert link.is_attached

    set_rules(bench, loses, AccessRule("worker", LISTEN | SEND, "third", "second"))

    assert worker.client.detach_error(link).condition == UNAUTHORIZED


def test_a_new_entity_does_not_know_the_keys_of_its_namesake(bench: Bench) -> None:
    """R34."""
    set_rules(bench, "q", BOTH)
    worker = Counter(bench)
    worker.put("worker", "first")
    bench.pass_s()
    bench.run(bench.namespace.delete("q"))
    bench.create("q")

    link = worker.client.receiver("q")
    bench.pass_s()

    assert worker.client.detach_error(link).condition == UNAUTHORIZED


def test_a_change_of_something_else_ends_no_link(bench: Bench) -> None:
    set_rules(bench, "q", BOTH)
    worker = Counter(bench)
    worker.put("worker", "second")
    bench.pass_s()
    link = worker.client.receiver("q", 1)
    bench.pass_s()

    set_rules(bench, "many", AccessRule("other", SEND, "k"))
    set_rules(bench, "", AccessRule("third", SEND, "k"))
    set_rules(bench, "q", AccessRule("more", SEND, "k"), BOTH)

    assert link.is_attached


class GuardedBench(Bench):
    """A namespace whose key is nobody's business, so that guessing is slowed."""

    def __init__(self) -> None:
        super().__init__(connections_max=100)
        self.slowdown = Slowdown(self.clock)
        self.bus.authorizer.slowdown = self.slowdown


@pytest.fixture
def guarded() -> Iterator[GuardedBench]:
    bench = GuardedBench()
    yield bench
    bench.close()


def guess(bench: Bench, count: int) -> Counter:
    guesser = Counter(bench)
    for number in range(count):
        guesser.put(DEVELOPMENT_KEY_NAME, f"guess-{number}")
    return guesser


def test_guesses_are_answered_later_and_later(guarded: GuardedBench) -> None:
    """R34."""
    guesser = guess(guarded, FREE_FAILURES)
    guarded.pass_s(0.1)
    assert len(guesser.statuses()) == FREE_FAILURES

    waits_s: list[float] = []
    for number in range(8):
        asked_at_s = guarded.loop.time()
        guesser.put(DEVELOPMENT_KEY_NAME, f"more-{number}")
        before = len(guesser.answers())
        while len(guesser.answers()) == before:
            guarded.pass_s(0.05)
        waits_s.append(guarded.loop.time() - asked_at_s)

    assert waits_s[0] < 0.3
    assert waits_s == sorted(waits_s)
    assert waits_s[-1] <= DELAY_MS_MAX / 1000 + 0.2
    assert waits_s[-1] > 3
    assert set(guesser.statuses()) == {Int(401)}


def test_a_right_key_is_never_slowed(guarded: GuardedBench) -> None:
    """R34: also from the address of a guesser, and on the guesser's connection."""
    guesser = guess(guarded, FREE_FAILURES + 20)
    honest = Counter(guarded)
    guarded.pass_s(0.05)
    before = len(guesser.statuses())

    honest.put(DEVELOPMENT_KEY_NAME, "SAS_KEY_VALUE")
    guesser.put(DEVELOPMENT_KEY_NAME, "SAS_KEY_VALUE")
    guarded.pass_s(0.01)

    assert honest.statuses() == [Int(202)]
    assert guesser.statuses()[before:] == [Int(202)]


def test_a_success_does_not_clear_the_count(guarded: GuardedBench) -> None:
    """Who has one key of little worth must not be able to guess another at full speed."""
    guesser = guess(guarded, FREE_FAILURES)
    guesser.put(DEVELOPMENT_KEY_NAME, "SAS_KEY_VALUE")
    guarded.pass_s(0.05)
    before = len(guesser.statuses())

    guesser.put(DEVELOPMENT_KEY_NAME, "one more")
    guarded.pass_s(0.05)

    assert len(guesser.statuses()) == before


def test_who_guesses_beyond_what_may_wait_is_hung_up_on(guarded: GuardedBench) -> None:
    bystander = guarded.client()
    guesser = guess(guarded, FREE_FAILURES + WAITING_OF_PEER_MAX)
    guarded.pass_s(0.01)
    assert not guesser.client.is_closed()
    guesser.put(DEVELOPMENT_KEY_NAME, "one too many")
    guarded.pass_s(0.01)

    assert guesser.client.close_error().condition == UNAUTHORIZED
    assert not bystander.is_closed()
    guarded.pass_s(20)
    assert guarded.slowdown.waiting == 0
    assert guarded.slowdown.turned_away == 1


def test_keys_shown_to_sasl_plain_are_slowed_too(guarded: GuardedBench) -> None:
    """R34."""
    guess(guarded, FREE_FAILURES + 20)
    guarded.pass_s(20)

    client = Client(guarded.server.new_protocol(), plain(b"\0worker\0wrong"), guarded.loop)
    guarded.loop.call_soon(client.connect)
    guarded.pass_s(0.5)
    early = client.is_closed()
    guarded.pass_s(10)

    assert not early
    assert client.is_closed()
    assert guarded.slowdown.wrong_keys == FREE_FAILURES + 21


def test_guesses_are_told_once_a_minute_and_without_the_token(
    guarded: GuardedBench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        guess(guarded, 40)
        guarded.pass_s(70)
        guess(guarded, 1)
        guarded.pass_s(10)

    told = [record for record in caplog.records if "wrong keys" in record.getMessage()]
    assert len(told) == 2
    assert "40" in told[1].getMessage()
    assert "guess-" not in caplog.text
    assert "sig=" not in caplog.text
