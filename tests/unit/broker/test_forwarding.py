"""Forwarding over two brokers: each message once, wherever and whenever something fails (R27)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.broker.broker import Broker
from shardbus.broker.forwarding.forwarder import MISSING_MS, Forwarder
from shardbus.broker.forwarding.plan import (
    DISABLED_REASON,
    HOPS_REASON,
    NOT_FOUND_REASON,
)
from shardbus.broker.fragment.runner import Runner
from shardbus.core.errors import Unavailable
from shardbus.core.limits import HOPS_MAX, TRANSFER_MARK_KEPT_MS
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE, Message
from shardbus.core.messages.command import Delivery
from shardbus.core.namespace.entity import DISABLED_STATUS, EntitySpec
from shardbus.message.forwarded import Forwarded
from shardbus.stores.base.store import FragmentId
from shardbus.stores.memory.store import MemoryStore
from tests.unit.broker.two_brokers import AFTER, BEFORE, TwoBrokers
from tests.unit.core.desk import rules

MESSAGES = [b"m%d" % number for number in range(5)]
# More commits than it takes to forward a few messages: given out, taken over, done.
STEPS = 6


class Forwarding(TwoBrokers):
    """Two brokers with `count` gateways that forward from `near` to `far`."""

    def __init__(self, gateways: int = 1) -> None:
        self._gateways = gateways
        self.forwarders: list[Forwarder] = []
        super().__init__()
        self.forward(self.near, self.far)
        self.begin()
        self.pass_s(0.1)

    def begin(self) -> None:
        self.forwarders = [Forwarder(self.bus, as_it_is) for _ in range(self._gateways)]
        for forwarder in self.forwarders:
            self.loop.create_task(forwarder.run())

    def restart(self) -> None:
        super().restart()
        self.begin()

    def forward(self, source: str, target: str, *, dead_letters_to: str = "") -> None:
        spec = self.handle(source).entity.spec.copy()
        spec.forward_to = target
        spec.forward_dead_letters_to = dead_letters_to
        self.run(self.namespace.update_queue(source, spec))

    def set_status(self, name: str, status: str) -> None:
        spec = self.handle(name).entity.spec.copy()
        spec.status = status
        self.run(self.namespace.update_queue(name, spec))

    def make(self, name: str) -> str:
        self.run(self.namespace.create_queue(name, EntitySpec()))
        return name

    def send_with_fate(self, step: int, when: str, *, is_crash: bool) -> None:
        """Send all messages; the `step`-th commit that comes of it fails, if so many do."""
        self.fate.plan(step + 1, when, is_crash=is_crash)
        self.send(self.near, *MESSAGES)
        self.pass_s(0.1)
        self.fate.at = 0

    def settle(self) -> None:
        if self.has_died:
            self.restart()
        self.pass_s(20)

    def line(self, name: str, line: int) -> list[tuple[bytes, str | None]]:
        """Payloads and reasons of what a line holds on disk."""
        handle = self.handle(name)
        fragment = FragmentId(handle.entity.entity_id, handle.router.numbers[0])
        kept = self.disks[handle.entity.fragments[0].broker_index].kept._fragments[fragment]
        return [
            (kept.payload(number) or b"", entry.reason)
            for number, entry in sorted(kept.entries.items())
            if entry.line == line
        ]


def as_it_is(delivery: Delivery, source: str, now_ms: int) -> Forwarded:
    """Payloads that begin with a digit have been forwarded so often."""
    payload = delivery.payload or b""
    return Forwarded(Message(payload), int(payload[:1]) if payload[:1].isdigit() else 0)


@pytest.fixture
def town() -> Iterator[Forwarding]:
    town = Forwarding()
    yield town
    town.close()


def test_messages_move_on_in_their_order(town: Forwarding) -> None:
    """R27."""
    town.send(town.near, *MESSAGES)

    town.pass_s(0.1)

    assert town.contents(town.near) == []
    assert town.contents(town.far) == MESSAGES


def test_what_was_moved_on_is_counted(town: Forwarding) -> None:
    town.send(town.near, *MESSAGES)
    town.settle()

    assert town.forwarders[0].moved_total == len(MESSAGES)


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize("is_crash", [True, False])
def test_each_message_arrives_once_whatever_fails_at_any_step(
    town: Forwarding, step: int, when: str, is_crash: bool
) -> None:
    """R27: a crash of everything, or a store that fails for a moment."""
    town.send_with_fate(step, when, is_crash=is_crash)

    town.settle()

    assert town.contents(town.near) == []
    assert town.contents(town.far) == MESSAGES


def test_the_steps_cover_the_whole_way(town: Forwarding) -> None:
    """The test above is worth nothing if it stops too soon."""
    town.send_with_fate(STEPS, AFTER, is_crash=True)

    assert town.fate.commits == 1 + 3


@pytest.mark.parametrize("step", range(1, STEPS))
def test_several_gateways_forward_each_message_once(step: int) -> None:
    """R27."""
    town = Forwarding(gateways=3)
    town.send_with_fate(step, AFTER, is_crash=step % 2 == 0)
    town.settle()
    town.send(town.near, b"one more")
    town.pass_s(5)

    assert town.contents(town.near) == []
    assert town.contents(town.far) == [*MESSAGES, b"one more"]
    town.close()


def test_an_old_copy_of_the_source_loses_nothing_that_is_sent_to_it(town: Forwarding) -> None:
    """R27: it gives out numbers again that the destination has had."""
    disk = town.disks[town.handle(town.near).entity.fragments[0].broker_index]
    copy = MemoryStore()
    copy.create(disk.kept.fragments())
    town.send(town.near, *MESSAGES)
    town.settle()
    disk.kept = copy
    town.restart()

    town.send(town.near, b"after", b"the", b"restore")
    town.settle()

    assert town.contents(town.near) == []
    assert town.contents(town.far) == [*MESSAGES, b"after", b"the", b"restore"]


@pytest.mark.parametrize("step", range(1, STEPS))
def test_what_was_on_its_way_can_be_received_from_a_recovered_orphan(
    town: Forwarding, step: int
) -> None:
    """R27, R28: the queue that is made of it forwards nothing."""
    town.send_with_fate(step, AFTER, is_crash=True)
    source = town.handle(town.near).entity.entity_id
    town.catalogue.remove(source)
    town.catalogue.finish(source)
    town.restart()
    town.pass_s(5)

    town.run(town.namespace.recover_orphan(source, "rescued"))
    town.settle()

    found = [delivery.payload for delivery in town.receive("rescued")]
    assert found + town.contents(town.far) == MESSAGES


@pytest.mark.parametrize("step", range(1, STEPS))
def test_what_was_on_its_way_is_called_back_when_its_broker_is_back(
    town: Forwarding, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R27: it was away when the gateway began, and its queue forwards nothing any more."""
    town.send_with_fate(step, AFTER, is_crash=True)
    entity = town.handle(town.near).entity
    spec = entity.spec.copy()
    spec.forward_to = ""
    town.catalogue.put(entity.updated(spec, town.clock.now_ms()))

    async def away(self: Broker) -> list[FragmentId]:
        raise Unavailable("no route")

    with monkeypatch.context() as patched:
        patched.setattr(Broker, "transferring", away)
        town.restart()
        town.pass_s(20)
    town.settle()

    found = [delivery.payload for delivery in town.receive(town.near)]
    assert found + town.contents(town.far) == MESSAGES


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize("is_forwarding_on", [True, False])
def test_a_change_of_the_destination_doubles_and_loses_nothing(
    town: Forwarding, step: int, when: str, is_forwarding_on: bool
) -> None:
    """R27: what is on its way to the former destination arrives there, or at the new one."""
    third = town.make("third")
    town.send_with_fate(step, when, is_crash=True)
    if town.has_died:
        TwoBrokers.restart(town)
    town.forward(town.near, third if is_forwarding_on else "")
    town.begin()

    town.pass_s(20)

    new_home = town.contents(third if is_forwarding_on else town.near)
    assert sorted([*town.contents(town.far), *new_home]) == MESSAGES
    assert town.contents(third) == [] or town.contents(town.near) == []


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_what_was_taken_over_is_no_transfer_dead_letter_too(
    town: Forwarding, step: int, when: str
) -> None:
    """R27: the destination is disabled just when everything dies."""
    town.send_with_fate(step, when, is_crash=True)
    if town.has_died:
        TwoBrokers.restart(town)
    town.set_status(town.far, DISABLED_STATUS)
    town.begin()

    town.pass_s(20)

    refused = town.line(town.near, TRANSFER_DEAD_LETTER_LINE)
    assert sorted([*town.contents(town.far), *(payload for payload, _ in refused)]) == MESSAGES
    assert {reason for _, reason in refused} <= {DISABLED_REASON}
    assert town.line(town.near, MAIN_LINE) == []


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_refusal_that_was_interrupted_is_not_taken_for_an_arrival(
    town: Forwarding, step: int, when: str
) -> None:
    """R27: the destination left a message out, and its source does not know yet."""
    town.set_status(town.far, DISABLED_STATUS)
    town.send_with_fate(step, when, is_crash=True)
    if town.has_died:
        TwoBrokers.restart(town)
    town.set_status(town.far, "Active")
    town.begin()

    town.pass_s(20)

    refused = [payload for payload, _ in town.line(town.near, TRANSFER_DEAD_LETTER_LINE)]
    assert sorted([*town.contents(town.far), *refused]) == MESSAGES
    assert town.line(town.near, MAIN_LINE) == []


def test_a_destination_that_is_gone_leaves_transfer_dead_letters(town: Forwarding) -> None:
    """R27."""
    town.run(town.namespace.delete(town.far))
    town.send(town.near, b"lost")

    town.pass_s(MISSING_MS / 1000 + 3)

    assert town.line(town.near, TRANSFER_DEAD_LETTER_LINE) == [(b"lost", NOT_FOUND_REASON)]


def test_a_destination_may_be_one_whose_description_cannot_be_read(
    town: Forwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R27, R42, P6: it is of a later version, for example, or damaged; its messages wait."""
    town.run(town.namespace.delete(town.far))
    monkeypatch.setattr(town.catalogue, "damaged", lambda: [9])
    town.restart()
    town.send(town.near, b"kept")

    town.pass_s(MISSING_MS / 1000 + 20)

    assert town.line(town.near, TRANSFER_DEAD_LETTER_LINE) == []
    assert [payload for payload, _ in town.line(town.near, MAIN_LINE)] == [b"kept"]


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_destination_that_the_catalogue_forgot_may_have_taken_messages_over(
    town: Forwarding, step: int, when: str
) -> None:
    """R27: it comes back with them, so nobody else may get them meanwhile."""
    town.send_with_fate(step, when, is_crash=True)
    TwoBrokers.restart(town)
    town.restart_without(town.far)
    town.pass_s(MISSING_MS / 1000 + 20)
    town.restart_with_all()
    town.pass_s(20)

    refused = [payload for payload, _ in town.line(town.near, TRANSFER_DEAD_LETTER_LINE)]
    assert sorted([*town.contents(town.far), *refused]) == MESSAGES
    assert town.line(town.near, MAIN_LINE) == []


def test_a_full_destination_is_waited_for(town: Forwarding) -> None:
    """R27: it heals, so nothing becomes a dead letter."""
    [port] = town.handle(town.far).runners
    assert isinstance(port, Runner)
    port.configure(rules(size_bytes_max=1))
    town.send(town.far, b"in the way")
    town.send(town.near, *MESSAGES)
    town.pass_s(60)
    assert town.contents(town.far) == [b"in the way"]
    assert town.line(town.near, MAIN_LINE) == [(payload, None) for payload in MESSAGES]

    port.configure(rules())
    town.pass_s(5)

    assert town.contents(town.far) == [b"in the way", *MESSAGES]
    assert town.contents(town.near) == []


def test_too_many_hops_end_among_the_dead_letters(town: Forwarding) -> None:
    """R27."""
    town.send(town.near, b"%d" % HOPS_MAX, b"%d" % (HOPS_MAX - 1))

    town.pass_s(1)

    assert town.line(town.near, DEAD_LETTER_LINE) == [(b"%d" % HOPS_MAX, HOPS_REASON)]
    assert town.contents(town.far) == [b"%d" % (HOPS_MAX - 1)]


def test_a_store_that_fails_for_long_heals_and_nothing_is_lost(town: Forwarding) -> None:
    """R27."""
    for step in range(1, 4):
        town.send(town.near, b"m%d" % step)
        town.fate.plan(step, BEFORE, is_crash=False)
        town.pass_s(15)

    assert town.contents(town.far) == [b"m1", b"m2", b"m3"]


def test_dead_letters_are_forwarded_and_messages_are_not() -> None:
    """R27."""
    town = Forwarding()
    town.forward(town.near, "", dead_letters_to=town.far)
    town.send(town.near, b"kept")
    town.pass_s(1)
    spec = town.handle(town.near).entity.spec.copy()
    spec.delivery_count_max = 1
    town.run(town.namespace.update_queue(town.near, spec))

    assert len(town.receive(town.near)) == 1
    town.pass_s(120)

    assert town.contents(town.far) == [b"kept"]
    assert town.contents(town.near) == []
    town.close()


def test_forwarding_begins_again_after_a_restart_although_nobody_asks(town: Forwarding) -> None:
    """R27."""
    TwoBrokers.restart(town)
    town.send(town.near, *MESSAGES)
    TwoBrokers.restart(town)

    town.begin()
    town.pass_s(5)

    assert town.contents(town.far) == MESSAGES


def test_deleted_sources_are_forgotten_where_there_is_no_room_for_others(
    town: Forwarding,
) -> None:
    """R27: what cannot be told from a double waits at its source, but not for ever."""
    old = town.make("old")
    town.forward(old, town.far)
    town.send(old, b"long ago")
    town.settle()
    [port] = town.handle(town.far).runners
    assert isinstance(port, Runner)
    fragment = port.statistics()
    assert fragment is not None
    fragment._ledger.bounds.transfer_marks_max = 1
    town.send(town.near, *MESSAGES)
    town.pass_s(120)
    assert town.contents(town.far) == [b"long ago"]
    assert town.line(town.near, MAIN_LINE) == [(payload, None) for payload in MESSAGES]

    town.run(town.namespace.delete(old))
    town.pass_s(120)
    assert town.contents(town.far) == [b"long ago"]
    town.loop.pass_time(TRANSFER_MARK_KEPT_MS / 1000)
    town.pass_s(120)

    assert town.contents(town.far) == [b"long ago", *MESSAGES]
    assert town.contents(town.near) == []


class ToSessions(Forwarding):
    """Forwards to a queue of sessions; payloads are the ids of theirs, `-` is none."""

    def begin(self) -> None:
        self.forwarders = [Forwarder(self.bus, as_it_is_called)]
        self.loop.create_task(self.forwarders[0].run())


def as_it_is_called(delivery: Delivery, source: str, now_ms: int) -> Forwarded:
    payload = delivery.payload or b""
    name = None if payload == b"-" else payload.decode()
    return Forwarded(Message(payload, session_id=name), 0)


def test_what_is_forwarded_to_sessions_is_placed_by_session_in_any_spelling() -> None:
    """Also where the id is empty; only a message without one is a dead letter."""
    town = ToSessions()
    spec = EntitySpec()
    spec.requires_session = True
    spec.is_partitioned = True
    town.run(town.namespace.create_queue("talk", spec))
    town.forward(town.near, "talk")
    names = ["Red", "red", "", "RED", "rEd"]
    for name in names:
        town.send(town.near, name.encode())
    town.send(town.near, b"-")
    town.pass_s(5)

    handle = town.handle("talk")
    found: dict[int, list[str | None]] = {}
    for each in handle.entity.fragments:
        fragment = FragmentId(handle.entity.entity_id, each.number)
        kept = town.disks[each.broker_index].kept._fragments[fragment]
        for entry in kept.entries.values():
            found.setdefault(each.number, []).append(entry.session_id)
    home, empty = handle.router.index_of_key("red"), handle.router.index_of_key("")
    assert found[handle.router.numbers[home]] == ["Red", "red", "RED", "rEd"]
    assert found[handle.router.numbers[empty]] == [""]
    assert len(found) == 2
    assert [payload for payload, _ in town.line(town.near, TRANSFER_DEAD_LETTER_LINE)] == [b"-"]
    town.close()
