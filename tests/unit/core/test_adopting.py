"""Plain messages that were staged are published where they lie (docs/adr/0028)."""

import pytest

from shardbus.core.errors import STAGE_LOST
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import Done
from shardbus.core.transactions.command import Finish, Prepare
from tests.support.refusals import refusal_of
from tests.unit.core.desk import FRAGMENT, rules
from tests.unit.core.staged import NAME, StagingDesk

TRANSACTION = b"transaction"
LATER_MS = 10_000


@pytest.fixture
def desk() -> StagingDesk:
    return StagingDesk()


def promise(desk: StagingDesk) -> None:
    command = Prepare(TRANSACTION, desk.publication(), (9, 9), LATER_MS)
    assert isinstance(desk.do(command), Done)


def test_plain_pieces_and_others_are_published_in_the_order_of_their_numbers(
    desk: StagingDesk,
) -> None:
    desk.send(b"sent before")
    due_ms = desk.now_ms + 50
    desk.stage(b"plain", piece=1)
    desk.stage_all([Message(b"due", scheduled_at_ms=due_ms)], piece=2)
    desk.stage(b"plain too", b"and more", piece=3)
    desk.stage_all([Message(b"due too", scheduled_at_ms=due_ms)], piece=4)
    desk.wait(100)

    desk.publish()
    desk.send(b"sent after")

    assert desk.payloads(9) == [b"sent before"]
    expected = [b"plain", b"due", b"plain too", b"and more", b"due too", b"sent after"]
    assert desk.payloads(9) == expected


def test_the_order_is_that_of_the_numbers_whichever_piece_was_stored_first(
    desk: StagingDesk,
) -> None:
    """The bulk lane has several on their way (docs/adr/0029)."""
    due_ms = desk.now_ms + 50
    desk.stage(b"fourth", piece=9)
    desk.stage(b"first", piece=1)
    desk.stage_all([Message(b"third", scheduled_at_ms=due_ms)], piece=6)
    desk.stage(b"second", piece=4)
    desk.wait(100)

    desk.publish()

    assert desk.payloads(9) == [b"first", b"second", b"third", b"fourth"]


def test_plain_messages_are_published_without_being_read(desk: StagingDesk) -> None:
    desk.stage(b"one", b"two")
    desk.stage_all([Message(b"brief", ttl_ms=1_000), Message(b"for ever")], piece=2)

    desk.publish()

    line = desk.fragment.counters.lines[MAIN_LINE]
    assert (line.count, line.size_bytes) == (4, 19)
    assert len(desk.fragment._ledger.lines[MAIN_LINE]) == 0
    assert desk.fragment.is_ready(MAIN_LINE)
    desk.wait(1_000)
    assert desk.payloads(9) == [b"one", b"two", b"for ever"]


def test_the_time_to_live_of_the_entity_ends_what_was_staged() -> None:
    desk = StagingDesk(rules(default_ttl_ms=500))
    desk.stage_all([Message(b"said"), Message(b"less", ttl_ms=100), Message(b"x", ttl_ms=900)])
    desk.wait(1_000)

    desk.publish()

    found = [delivery.entry.expires_at_ms - desk.now_ms for delivery in desk.receive(9)]
    assert found == [500, 100, 500]


def test_a_damaged_payload_makes_its_stage_unpublishable(desk: StagingDesk) -> None:
    desk.stage(b"one", b"two")
    desk.reload()
    desk.shelf.store.damage_staged(FRAGMENT, NAME, 1)

    with refusal_of(STAGE_LOST) as refused:
        promise(desk)

    assert refused.value.kind is STAGE_LOST
    assert desk.held() == {NAME: 2}


@pytest.mark.parametrize("is_promised_first", [True, False])
def test_a_payload_that_is_damaged_since_it_was_stored_is_set_aside_alone(
    desk: StagingDesk, is_promised_first: bool
) -> None:
    """What this process stored is not read back before it is published."""
    desk.stage(b"one", b"two")
    if is_promised_first:
        promise(desk)
    desk.shelf.store.damage_staged(FRAGMENT, NAME, 1)
    if not is_promised_first:
        promise(desk)

    assert isinstance(desk.do(Finish(TRANSACTION, is_commit=True)), Done)

    assert desk.payloads(9) == [b"two"]
    assert desk.fragment.counters.set_aside == 1
