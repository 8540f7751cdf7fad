"""Messages that are given out to be transferred, and taken over elsewhere (R27)."""

import pytest

from shardbus.core.errors import NOT_ALLOWED, QUOTA_EXCEEDED, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.records import TRANSFERRED
from shardbus.core.integers import pack_integers, unpack_integers
from shardbus.core.limits import TRANSFER_MARK_KEPT_MS, TRANSFERS_MAX
from shardbus.core.message import (
    DEAD_LETTER_LINE,
    MAIN_LINE,
    TRANSFER_DEAD_LETTER_LINE,
    Message,
)
from shardbus.core.messages.command import DEAD_LETTER, RELEASE, Done, Received, Settle
from shardbus.core.transfers.command import (
    ForgetSources,
    ListSources,
    ListTransfers,
    Outstanding,
    RefuseTransfers,
    ReturnTransfers,
    Sources,
    TakenOver,
    TakeOver,
    TakeTransfers,
    TransfersDone,
)
from shardbus.core.transfers.transferring import transfer_number
from tests.unit.core.desk import Desk, rules

HOME = 7
ELSEWHERE = 8
SOURCE = (3, 0, MAIN_LINE)


def take(
    desk: Desk, count: int = 10, line: int = MAIN_LINE, destination: int = HOME
) -> list[tuple[int, bytes | None]]:
    received = desk.do(TakeTransfers(line, count, destination))
    assert isinstance(received, Received)
    return [(transfer_number(each), each.payload) for each in received.deliveries]


def sequence_numbers(desk: Desk, line: int = MAIN_LINE) -> list[int]:
    """Those of what is given out."""
    received = desk.do(TakeTransfers(line, 0, HOME))
    assert isinstance(received, Received)
    return [each.entry.sequence_number for each in received.deliveries]


def take_over(
    desk: Desk,
    numbers: list[int],
    skipped: list[int] | None = None,
    front: int = 0,
    source: tuple[int, int, int] = SOURCE,
) -> list[int]:
    messages = [Message(b"m%d" % number) for number in numbers]
    answer = desk.do(TakeOver(source, messages, numbers, skipped or [], front))
    assert isinstance(answer, TakenOver)
    return answer.skipped


def payloads(
    desk: Desk, count: int = 10, *, line: int = MAIN_LINE, is_locking: bool = True
) -> list[bytes | None]:
    return [each.payload for each in desk.receive(count, line=line, is_locking=is_locking)]


def counts(desk: Desk) -> list[int]:
    return [line.count for line in desk.fragment.counters.lines]


def test_what_is_given_out_is_given_out_again_until_it_is_done() -> None:
    """R27."""
    desk = Desk()
    desk.send(b"a", b"b", b"c")

    assert take(desk, 2) == [(1, b"a"), (2, b"b")]
    assert take(desk, 0) == [(1, b"a"), (2, b"b")]
    assert isinstance(desk.do(TransfersDone(MAIN_LINE, [1, 99])), Done)
    assert take(desk, 10) == [(2, b"b"), (3, b"c")]


def test_what_is_given_out_survives_a_restart() -> None:
    """R27."""
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    take(desk, 2)

    desk.reload()

    assert payloads(desk, is_locking=False) == [b"c"]
    assert take(desk, 0) == [(1, b"a"), (2, b"b")]
    desk.do(TransfersDone(MAIN_LINE, [1]))
    desk.reload()
    assert take(desk, 10) == [(2, b"b")]


def test_transfers_are_settled_after_a_restart_without_being_taken_again() -> None:
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    take(desk)
    desk.reload()

    desk.do(TransfersDone(MAIN_LINE, [1]))
    desk.do(RefuseTransfers(MAIN_LINE, [2], TRANSFER_DEAD_LETTER_LINE, "why", "because"))
    desk.do(ReturnTransfers(MAIN_LINE, [3]))

    assert counts(desk) == [1, 0, 1]
    assert payloads(desk, line=TRANSFER_DEAD_LETTER_LINE) == [b"b"]
    [(number, payload)] = take(desk)
    assert (number > 3, payload) == (True, b"c")


def test_what_is_given_out_is_out_of_reach_and_does_not_expire() -> None:
    desk = Desk(rules(default_ttl_ms=1_000))
    desk.send(b"a", b"b")
    take(desk, 1)

    desk.wait(5_000)

    assert payloads(desk) == []
    assert counts(desk) == [1, 0, 0]
    assert take(desk) == [(1, b"a")]


def test_what_comes_late_is_given_out_under_a_higher_number() -> None:
    """A destination would take it for one that it has had: transfer numbers only rise."""
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    [locked] = desk.receive(1)
    taken = take(desk)
    desk.do(TransfersDone(MAIN_LINE, [number for number, _ in taken]))

    desk.settle(RELEASE, locked)

    assert take(desk) == [(4, b"a")]
    desk.reload()
    assert take(desk) == [(4, b"a")]


@pytest.mark.parametrize("how", ["late", "returned"])
def test_nothing_that_is_transferred_gets_another_sequence_number(how: str) -> None:
    """R27: in a subscription the topic gives them, and would give the same to the next message."""
    desk = Desk()
    desk.send(b"a", b"b")
    [first] = desk.receive(1)
    assert take(desk) == [(2, b"b")]
    if how == "late":
        desk.settle(RELEASE, first)
    else:
        desk.do(ReturnTransfers(MAIN_LINE, [2]))

    take(desk)

    assert sequence_numbers(desk) == ([2, 1] if how == "late" else [2])
    assert desk.fragment.counters.last_counter == 2


def test_a_late_dead_letter_keeps_its_reason() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    first, second = desk.receive(2)
    desk.do(Settle(DEAD_LETTER, [second.token], reason="late", description="later"))
    assert take(desk, line=DEAD_LETTER_LINE) == [(2, b"b")]
    desk.do(TransfersDone(DEAD_LETTER_LINE, [2]))

    desk.do(Settle(DEAD_LETTER, [first.token], reason="early", description="earlier"))
    received = desk.do(TakeTransfers(DEAD_LETTER_LINE, 10, HOME))

    assert isinstance(received, Received)
    [delivery] = received.deliveries
    assert transfer_number(delivery) == 3
    assert (delivery.entry.reason, delivery.entry.description) == ("early", "earlier")
    assert counts(desk) == [0, 1, 0]


def test_what_is_behind_a_late_message_comes_after_it() -> None:
    desk = Desk()
    desk.send(*[b"m%d" % number for number in range(6)])
    [locked] = desk.receive(1)
    taken = take(desk, 1)
    desk.do(TransfersDone(MAIN_LINE, [number for number, _ in taken]))
    desk.settle(RELEASE, locked)

    for _ in range(2):
        take(desk, 2)
    found = take(desk, 2)

    assert [payload for _, payload in found] == [b"m0", b"m2", b"m3", b"m4", b"m5"]
    assert [number for number, _ in found] == [3, 4, 5, 6, 7]


def test_what_was_returned_and_has_expired_meanwhile_is_gone() -> None:
    desk = Desk(rules(default_ttl_ms=1_000))
    desk.send(b"a")
    take(desk)
    desk.wait(5_000)

    desk.do(ReturnTransfers(MAIN_LINE, [1]))

    assert take(desk) == []
    assert counts(desk) == [0, 0, 0]


def test_what_was_given_out_when_transfer_numbers_were_sequence_numbers_is_known() -> None:
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    [first] = desk.receive(1)
    take(desk, 1)
    former = b"".join([value.to_bytes(8, "big") for value in (2, HOME, 2)])
    desk.shelf.kept.records[TRANSFERRED, bytes([MAIN_LINE])] = former
    desk.reload()

    assert take(desk, 0) == [(2, b"b")]
    assert [payload for _, payload in take(desk)] == [b"b", b"a", b"c"]
    assert first.payload == b"a"


def test_a_node_that_does_not_know_of_maps_refuses_what_was_given_out_for_one() -> None:
    """P6, R42: it must not take the map for a message, nor the messages for others."""
    desk = Desk()
    desk.send(b"a", b"b")
    given = desk.do(TakeTransfers(MAIN_LINE, 10, HOME, 3))
    assert isinstance(given, Received) and len(given.deliveries) == 2
    key = TRANSFERRED, bytes([MAIN_LINE])
    values = unpack_integers(desk.shelf.kept.records[key])

    # As the release before reads it.
    assert values[0] == -1
    with pytest.raises(ValueError, match="shorter"):
        dict(zip(values[3::2], values[4::2], strict=True))
    desk.reload()
    outstanding = desk.do(ListTransfers(MAIN_LINE))
    assert isinstance(outstanding, Outstanding)
    assert (outstanding.count, outstanding.map_start) == (2, 3)

    # This one also reads the form that builds between the two have written.
    desk.shelf.kept.records[key] = pack_integers([-2, *values[1:]])
    desk.reload()
    outstanding = desk.do(ListTransfers(MAIN_LINE))
    assert isinstance(outstanding, Outstanding)
    assert (outstanding.count, outstanding.map_start) == (2, 3)

    # And refuses that of a later one.
    desk.shelf.kept.records[key] = pack_integers([-3, *values[1:]])
    with pytest.raises(ValueError, match="form"):
        desk.reload()


def test_without_its_record_a_line_gives_out_nothing_under_a_number_it_used() -> None:
    """What a repair could not save must not make a destination drop what it never had."""
    desk = Desk()
    desk.send(b"a", b"b")
    [first] = desk.receive(1)
    assert take(desk) == [(2, b"b")]
    desk.do(TransfersDone(MAIN_LINE, [2]))
    del desk.shelf.kept.records[TRANSFERRED, bytes([MAIN_LINE])]
    desk.reload()

    [(number, payload)] = take(desk)
    assert (number > 2, payload) == (True, b"a")
    assert first.payload == b"a"


TODAY_MS = 1_800_000_000_000


def carry(source: Desk, destination: Desk) -> None:
    """Move all that is there, as a forwarder does."""
    received = source.do(TakeTransfers(MAIN_LINE, 10, HOME))
    assert isinstance(received, Received)
    numbers = [transfer_number(each) for each in received.deliveries]
    messages = [Message(each.payload or b"") for each in received.deliveries]
    destination.do(TakeOver(SOURCE, messages, numbers, [], numbers[0]))
    source.do(TransfersDone(MAIN_LINE, numbers))


@pytest.mark.parametrize("is_old_copy", [False, True])
def test_a_line_whose_numbers_ran_ahead_and_were_forgotten_loses_nothing(
    is_old_copy: bool,
) -> None:
    """Each message that comes late takes one more number than the fragment gave."""
    source, destination = Desk(), Desk()
    source.now_ms = TODAY_MS
    source.send(b"a", b"b")
    [late] = source.receive(1)
    carry(source, destination)
    key = TRANSFERRED, bytes([MAIN_LINE])
    former = source.shelf.kept.records[key]
    source.settle(RELEASE, late)
    carry(source, destination)
    del source.shelf.kept.records[key]
    if is_old_copy:
        source.shelf.kept.records[key] = former
    source.reload()

    source.send(b"c", b"d")
    carry(source, destination)

    assert payloads(destination) == [b"b", b"a", b"c", b"d"]


def test_numbers_rise_whatever_the_clock_says() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    [(first, _)] = take(desk, 1)
    desk.now_ms = 1 << 45
    desk.reload()
    desk.do(ReturnTransfers(MAIN_LINE, [first]))
    [(second, _)] = take(desk, 1)
    desk.now_ms = 1
    desk.reload()
    desk.do(ReturnTransfers(MAIN_LINE, [second]))
    [(third, _)] = take(desk, 1)

    assert first < second < third < 1 << 48


def test_what_is_given_out_for_one_destination_is_not_for_another() -> None:
    desk = Desk()
    desk.send(b"a")
    take(desk)

    with pytest.raises(Refused) as refusal:
        take(desk, destination=ELSEWHERE)

    assert refusal.value.kind is NOT_ALLOWED
    outstanding = desk.do(ListTransfers(MAIN_LINE))
    assert isinstance(outstanding, Outstanding)
    assert (outstanding.destination_id, outstanding.count) == (HOME, 1)
    desk.do(ReturnTransfers(MAIN_LINE, [1]))
    assert take(desk, destination=ELSEWHERE) == [(2, b"a")]


def test_what_is_refused_is_a_dead_letter_with_the_reason() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    take(desk)

    desk.do(RefuseTransfers(MAIN_LINE, [1], DEAD_LETTER_LINE, "hops", "too many"))
    desk.do(RefuseTransfers(MAIN_LINE, [1, 2], TRANSFER_DEAD_LETTER_LINE, "gone", "it is"))

    assert counts(desk) == [0, 1, 1]
    desk.reload()
    [received] = desk.receive(10, line=TRANSFER_DEAD_LETTER_LINE)
    assert (received.entry.reason, received.entry.description) == ("gone", "it is")


def test_a_line_gives_out_a_bounded_number() -> None:
    desk = Desk()
    desk.send(*[b"m"] * (TRANSFERS_MAX + 5))

    assert len(take(desk, 10_000)) == TRANSFERS_MAX
    assert len(take(desk, 10_000)) == TRANSFERS_MAX


def test_a_damaged_message_that_is_given_out_is_set_aside() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    take(desk)
    desk.reload()
    desk.shelf.damaged = {1}

    take(desk)

    assert take(desk) == [(2, b"b")]


def test_a_transfer_that_is_repeated_changes_nothing() -> None:
    """R27."""
    desk = Desk()

    assert take_over(desk, [4, 6]) == []
    assert take_over(desk, [4, 6]) == []
    desk.reload()
    assert take_over(desk, [4, 6, 9]) == []

    assert payloads(desk) == [b"m4", b"m6", b"m9"]


def test_each_source_has_a_mark_of_its_own() -> None:
    desk = Desk()

    take_over(desk, [4])
    take_over(desk, [4], source=(3, 1, MAIN_LINE))
    take_over(desk, [4], source=(3, 0, DEAD_LETTER_LINE))

    assert counts(desk) == [3, 0, 0]


def test_what_was_left_out_never_comes() -> None:
    desk = Desk()

    assert take_over(desk, [4], skipped=[5]) == [5]
    desk.reload()

    assert take_over(desk, [4, 5, 6], front=4) == [5]
    assert payloads(desk) == [b"m4", b"m6"]


def test_what_came_before_cannot_be_left_out() -> None:
    desk = Desk()
    take_over(desk, [4])

    assert take_over(desk, [], skipped=[4, 5]) == [5]


def test_what_was_left_out_is_forgotten_when_its_source_has_settled_it() -> None:
    desk = Desk()
    take_over(desk, [], skipped=[5])

    take_over(desk, [6], front=6)

    assert take_over(desk, [5], front=5) == []
    assert payloads(desk) == [b"m6"]


def test_a_full_destination_takes_nothing_over() -> None:
    desk = Desk(rules(size_bytes_max=4))
    take_over(desk, [1, 2])

    with pytest.raises(Refused) as refusal:
        take_over(desk, [2, 3])

    assert refusal.value.kind is QUOTA_EXCEEDED
    assert payloads(desk, 1, is_locking=False) == [b"m1"]
    assert take_over(desk, [2, 3]) == []
    assert payloads(desk) == [b"m2", b"m3"]


def crowded(count: int = 2) -> Desk:
    """A desk that can tell so many sources apart, and does."""
    desk = Desk(bounds=Bounds(transfer_marks_max=count))
    for entity_id in range(1, count + 1):
        take_over(desk, [4], source=(entity_id, 0, MAIN_LINE))
    return desk


def idle(desk: Desk) -> list[int]:
    answer = desk.do(ListSources())
    assert isinstance(answer, Sources)
    return answer.entity_ids


def test_a_source_too_many_is_refused_and_none_is_forgotten_for_it() -> None:
    """R27: without its mark a message that comes twice would be stored twice."""
    desk = crowded()

    with pytest.raises(Refused) as refusal:
        take_over(desk, [4], source=(3, 0, MAIN_LINE))

    assert refusal.value.kind is QUOTA_EXCEEDED
    for _ in range(2):
        take_over(desk, [4], source=(1, 0, MAIN_LINE))
        take_over(desk, [4, 5], source=(2, 0, MAIN_LINE))
        desk.reload()
    assert payloads(desk) == [b"m4", b"m4", b"m5"]


def test_a_deleted_source_that_sent_nothing_for_long_is_forgotten() -> None:
    desk = crowded()
    desk.wait(TRANSFER_MARK_KEPT_MS - 1)
    early = idle(desk)
    desk.do(ForgetSources([1, 2]))
    take_over(desk, [9], source=(2, 0, MAIN_LINE))
    desk.wait(1)

    assert (early, idle(desk)) == ([], [1])
    desk.do(ForgetSources([1, 2, 99]))
    desk.reload()

    take_over(desk, [1], source=(3, 0, MAIN_LINE))
    assert take_over(desk, [9], source=(2, 0, MAIN_LINE)) == []
    assert payloads(desk) == [b"m4", b"m4", b"m9", b"m1"]


def test_a_clock_that_is_far_ahead_makes_no_source_idle() -> None:
    desk = crowded()

    desk.set_clock(2 * TRANSFER_MARK_KEPT_MS)

    assert idle(desk) == []
    desk.do(ForgetSources([1, 2]))
    assert take_over(desk, [4], source=(1, 0, MAIN_LINE)) == []
    assert payloads(desk) == [b"m4", b"m4"]


def test_an_entity_is_not_idle_while_one_of_its_lines_is_not() -> None:
    desk = Desk()
    take_over(desk, [1], source=(1, 0, MAIN_LINE))
    desk.wait(TRANSFER_MARK_KEPT_MS)
    take_over(desk, [1], source=(1, 1, MAIN_LINE))

    assert idle(desk) == []
