"""What `MessageStore` promises about schedules, delays, messages by number and remembered ids."""

from __future__ import annotations

import pytest

from shardbus.core.fragment.change import Remember
from shardbus.core.message import (
    DEAD_LETTER_LINE,
    DEFERRED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    SET_ASIDE,
    Entry,
)
from shardbus.stores.base.store import Due, FragmentId, MessageStore, NotStored
from tests.stores.harness import Pen, StoreCase, facts, numbers, read_all, without_payload

BYTES_MAX = 1 << 20


def due(
    store: MessageStore, pen: Pen, now_ms: int, count_max: int = 99, bytes_max: int = BYTES_MAX
) -> Due:
    return store.read_due(pen.fragment, now_ms=now_ms, count_max=count_max, bytes_max=bytes_max)


@pytest.mark.parametrize("session_id", [None, "red"])
def test_a_scheduled_message_is_hidden_until_it_is_due_and_then_whole(
    case: StoreCase, pen: Pen, session_id: str | None
) -> None:
    """R21: also when the bus was down at the moment."""
    scheduled = pen.append([b"later"], session_id=session_id, scheduled_at_ms=5_000)
    pen.write(case.store)
    case.reopen()

    early = due(case.store, pen, 4_999)
    ripe = due(case.store, pen, 5_000)

    assert case.store.load(pen.fragment).next_due_ms == 5_000
    assert read_all(case.store, pen.fragment) == []
    assert (early.entries, early.next_due_ms) == ([], 5_000)
    assert [facts(e) for e in ripe.entries] == [facts(e) for e in scheduled]
    assert ripe.entries[0].payload == b"later"
    assert (ripe.next_due_ms, ripe.damaged) == (NEVER_MS, [])
    counters = case.store.load(pen.fragment).counters.lines[MAIN_LINE]
    assert (counters.count, counters.scheduled, counters.size_bytes) == (0, 1, 5)


def test_activation_is_a_removal_and_an_arrival_in_one_commit(
    store: MessageStore, pen: Pen
) -> None:
    scheduled = pen.append([b"a", b"b"], scheduled_at_ms=5_000)
    pen.append([b"plain"])
    pen.write(store)

    ripe = due(store, pen, 5_000).entries
    pen.remove(ripe)
    pen.append([e.payload or b"" for e in ripe])
    pen.write(store)

    assert [e.payload for e in read_all(store, pen.fragment)] == [b"plain", b"a", b"b"]
    assert store.read_payloads(pen.fragment, numbers(scheduled)) == [None, None]
    assert due(store, pen, 9_000).entries == []


def test_a_message_comes_later_under_a_number_that_was_given_out_before(
    case: StoreCase, pen: Pen
) -> None:
    """R22: others came between, in a chunk whose numbers lie on both sides."""
    pen.append([b"first"])
    given = pen.reserve(2)
    pen.append([b"between"])
    pen.write(case.store)
    pen.append([b"after"])
    pen.write(case.store)

    late = pen.append_reserved([b"late", b"later"], given, 5_000)
    pen.write(case.store)
    case.reopen()

    assert numbers(late) == [pen.sequence(2), pen.sequence(3)]
    assert [facts(e) for e in due(case.store, pen, 5_000).entries] == [facts(e) for e in late]
    assert [e.payload for e in read_all(case.store, pen.fragment)] == [
        b"first", b"between", b"after",
    ]  # fmt: skip
    page = case.store.browse(pen.fragment, MAIN_LINE, start=0, count_max=9, bytes_max=BYTES_MAX)
    assert [e.payload for e in page.entries] == [b"first", b"late", b"later", b"between", b"after"]
    pen.remove(late[:1])
    pen.write(case.store)
    assert case.store.read_payloads(pen.fragment, numbers(late)) == [None, b"later"]


def test_active_messages_that_come_late_are_read_at_their_places(case: StoreCase, pen: Pen) -> None:
    """P5: a subscription is filled with what its topic published before it existed."""
    given = pen.reserve(3)
    pen.append([b"live", b"more"])
    pen.write(case.store)
    late = pen.append_reserved([b"a", b"b", b"c"], given, NEVER_MS)
    late[2].line, late[2].reason = DEAD_LETTER_LINE, "tested"
    pen.write(case.store)
    case.reopen()

    assert [e.payload for e in read_all(case.store, pen.fragment)] == [b"a", b"b", b"live", b"more"]
    dead = read_all(case.store, pen.fragment, DEAD_LETTER_LINE)
    assert [(e.payload, e.reason) for e in dead] == [(b"c", "tested")]


def test_what_comes_late_may_be_removed_or_changed_in_the_same_commit(
    store: MessageStore, pen: Pen
) -> None:
    given = pen.reserve(2)
    pen.write(store)
    first, second = pen.append_reserved([b"one", b"two"], given, 5_000)
    pen.remove([first])
    pen.move([second], state=SET_ASIDE)
    pen.write(store)

    assert due(store, pen, 9_000).entries == []
    assert store.read_entries(pen.fragment, numbers([first, second]), bytes_max=9) == [None, None]


def test_a_number_that_was_not_given_out_is_refused(store: MessageStore, pen: Pen) -> None:
    pen.append([b"x"])
    pen.write(store)
    pen.append_reserved([b"late"], [2], 5_000)

    with pytest.raises(NotStored):
        pen.write(store)

    assert [e.payload for e in read_all(store, pen.fragment)] == [b"x"]


def test_what_was_due_first_comes_first(store: MessageStore, pen: Pen) -> None:
    pen.append([b"3"], scheduled_at_ms=3_000)
    pen.append([b"1"], scheduled_at_ms=1_000)
    pen.append([b"4"], expires_at_ms=4_000)
    delayed = pen.append([b"2"])
    pen.append([b"0"], expires_at_ms=500)
    pen.append([b"9"], scheduled_at_ms=9_000)
    pen.write(store)
    pen.delay(without_payload(delayed), 2_000)
    pen.write(store)

    everything = due(store, pen, 5_000)
    some = due(store, pen, 5_000, count_max=3)

    assert numbers(everything.entries) == [pen.sequence(n) for n in (5, 2, 4, 1, 3)]
    assert everything.next_due_ms == 9_000
    assert numbers(some.entries) == [pen.sequence(n) for n in (5, 2, 4)]
    assert NEVER_MS < some.next_due_ms <= 5_000


def test_due_messages_stop_at_their_bytes_but_never_empty(store: MessageStore, pen: Pen) -> None:
    pen.append([b"x" * 1_000] * 6, scheduled_at_ms=1_000)
    pen.append([b"x" * 1_000] * 2, expires_at_ms=900)
    pen.write(store)

    none = due(store, pen, 1_000, bytes_max=1)
    some = due(store, pen, 1_000, bytes_max=2_500)

    assert numbers(none.entries) == [pen.sequence(n) for n in (7, 8, 1)]
    assert numbers(some.entries) == [pen.sequence(n) for n in (7, 8, 1, 2, 3)]
    assert NEVER_MS < none.next_due_ms <= 1_000
    assert [e.payload is None for e in some.entries] == [True, True, False, False, False]


@pytest.mark.parametrize("line", [MAIN_LINE, DEAD_LETTER_LINE])
def test_a_delayed_message_is_due_when_its_delay_is_over(
    case: StoreCase, pen: Pen, line: int
) -> None:
    entries = pen.append([b"a", b"b", b"c"], expires_at_ms=90_000)
    pen.write(case.store)
    pen.move(without_payload(entries), line=line)
    entries[1].delivery_count = 2
    pen.delay(entries[1:2], 4_000)
    pen.write(case.store)
    case.reopen()
    assert numbers(read_all(case.store, pen.fragment, line)) == [pen.sequence(1), pen.sequence(3)]

    ripe = due(case.store, pen, 4_000)
    assert [facts(e) for e in ripe.entries] == [facts(entries[1])]
    assert ripe.entries[0].payload is None
    ripe.entries[0].delayed_until_ms = NEVER_MS
    pen.move(ripe.entries, line=line)
    pen.write(case.store)

    assert [e.payload for e in read_all(case.store, pen.fragment, line)] == [b"a", b"b", b"c"]
    assert due(case.store, pen, 5_000).entries == []


def test_scheduled_and_delayed_messages_are_browsed(store: MessageStore, pen: Pen) -> None:
    pen.append([b"1"])
    pen.append([b"2"], scheduled_at_ms=5_000)
    pen.delay(pen.append([b"3"]), 6_000)
    pen.write(store)

    page = store.browse(pen.fragment, MAIN_LINE, start=0, count_max=9, bytes_max=BYTES_MAX)

    assert [e.payload for e in page.entries] == [b"1", b"2", b"3"]
    assert [(e.state, e.due_ms()) for e in page.entries[1:]] == [(SCHEDULED, 5_000), (4, 6_000)]


def test_a_damaged_scheduled_message_is_told_apart_and_can_be_set_aside(
    case: StoreCase, pen: Pen
) -> None:
    """D4: the others are activated, and it does not come for ever."""
    pen.append([b"one", b"three", b"five"], scheduled_at_ms=1_000)
    pen.write(case.store)
    case.damage(pen.fragment, pen.sequence(2))

    ripe = due(case.store, pen, 1_000)
    told = [(e.sequence_number, e.line, e.state, e.size_bytes) for e in ripe.damaged]
    pen.move(ripe.damaged, state=SET_ASIDE)
    pen.remove(ripe.entries)
    pen.write(case.store)

    assert numbers(ripe.entries) == [pen.sequence(1), pen.sequence(3)]
    assert told == [(pen.sequence(2), MAIN_LINE, SCHEDULED, 5)]
    after = due(case.store, pen, 1_000)
    assert (after.entries, after.damaged, after.next_due_ms) == ([], [], NEVER_MS)
    counters = case.store.load(pen.fragment).counters
    assert (counters.set_aside, counters.lines[MAIN_LINE].scheduled) == (1, 0)


def test_messages_are_read_by_number_whatever_their_line_and_state(
    case: StoreCase, pen: Pen
) -> None:
    entries = pen.append([b"%d" % at for at in range(1, 8)])
    pen.append([b"s"], session_id="red")
    pen.write(case.store)
    pen.move(without_payload(entries[0:1]), state=DEFERRED)
    pen.move(without_payload(entries[1:2]), line=DEAD_LETTER_LINE, state=DEFERRED)
    pen.move(without_payload(entries[2:3]), state=SET_ASIDE)
    pen.remove(entries[3:4])
    pen.delay(without_payload(entries[5:6]), 9_000)
    pen.write(case.store)
    case.damage(pen.fragment, pen.sequence(7))

    asked = [pen.sequence(n) for n in (8, 7, 6, 5, 4, 3, 2, 1, 9)] + [3, -1, 1 << 62]
    found = case.store.read_entries(pen.fragment, asked, bytes_max=BYTES_MAX)

    assert [None if e is None else e.payload for e in found] == [
        b"s", None, b"6", b"5", None, None, b"2", b"1", None, None, None, None,
    ]  # fmt: skip
    known = [e for e in found if e is not None]
    assert [(e.line, e.state) for e in known] == [(0, 0), (0, 4), (0, 0), (1, 1), (0, 1)]
    assert facts(known[2]) == facts(entries[4])
    assert case.store.read_entries(pen.fragment, [], bytes_max=1) == []


def test_payloads_of_messages_by_number_stop_at_their_bytes(store: MessageStore, pen: Pen) -> None:
    entries = pen.append([b"x" * 1_000, b"y" * 1_000, b"z" * 500, b"w"])
    pen.write(store)
    pen.move(without_payload(entries[1:3]), state=DEFERRED)
    pen.write(store)
    asked = [pen.sequence(n) for n in (3, 1, 2, 4)]

    def read(bytes_max: int) -> list[int]:
        found = store.read_entries(pen.fragment, asked, bytes_max=bytes_max)
        assert [e is not None and e.size_bytes for e in found] == [500, 1_000, 1_000, 1]
        return [-1 if e is None or e.payload is None else len(e.payload) for e in found]

    assert read(1) == [500, -1, -1, -1]
    assert read(1_500) == [500, 1_000, -1, -1]
    assert read(2_500) == [500, 1_000, 1_000, -1]
    assert read(2_501) == [500, 1_000, 1_000, 1]


def digests(first: int, count: int) -> bytes:
    return b"".join(at.to_bytes(16, "big") for at in range(first, first + count))


def ids(remembered: list[Remember]) -> list[tuple[int, int]]:
    """Moments and ids, one by one."""
    return [
        (one.at_ms, int.from_bytes(one.digests[at : at + 16], "big"))
        for one in remembered
        for at in range(0, len(one.digests), 16)
    ]


def test_remembered_ids_are_there_when_a_fragment_is_loaded(case: StoreCase, pen: Pen) -> None:
    """R13: kept across restarts, in the order of commits."""
    pen.append([b"message"])
    pen.remember(digests(0, 3), 1_000)
    pen.remember(digests(3, 2), 1_000)
    pen.remember(digests(5, 1), 1_001)
    pen.counters.duplicates = 4
    pen.write(case.store)
    pen.remember(digests(6, 2), 1_002)
    pen.write(case.store)
    case.store.create([FragmentId(7, 4)])
    case.reopen()

    image = case.store.load(pen.fragment)

    moments = [1_000] * 5 + [1_001, 1_002, 1_002]
    assert ids(image.remembered) == list(zip(moments, range(8), strict=True))
    assert image.counters.duplicates == 4
    assert case.store.load(FragmentId(7, 4)).remembered == []


def test_ids_may_be_forgotten_but_never_too_early(case: StoreCase, pen: Pen) -> None:
    """Whatever is younger stays; the rest goes in pieces while more is remembered."""
    for at in range(1_000):
        pen.remember(digests(at, 1), at)
        pen.write(case.store)
    pen.forget_ids(899)
    pen.write(case.store)
    case.reopen()
    left = ids(case.store.load(pen.fragment).remembered)
    assert left[-100:] == [(at, at) for at in range(900, 1_000)]
    assert len(left) < 1_000

    for at in range(1_000, 1_300):
        pen.remember(digests(at, 1), at)
        pen.write(case.store)

    left = ids(case.store.load(pen.fragment).remembered)
    assert left == [(at, at) for at in range(900, 1_300)]


def test_forgetting_ids_concerns_one_fragment(store: MessageStore, pen: Pen) -> None:
    other = Pen(FragmentId(7, 4))
    store.create([other.fragment])
    for each in pen, other:
        each.remember(digests(1, 1), 1_000)
        each.write(store)

    pen.forget_ids(5_000)
    pen.write(store)

    assert store.load(pen.fragment).remembered == []
    assert ids(store.load(other.fragment).remembered) == [(1_000, 1)]


def test_what_a_deleted_fragment_remembered_is_swept(case: StoreCase, pen: Pen) -> None:
    for at in range(50):
        pen.remember(digests(at, 1), 1_000)
        pen.write(case.store)
    case.store.delete([pen.fragment])
    for _ in range(50):
        if not case.store.sweep():
            break
    case.store.create([pen.fragment])

    assert case.store.load(pen.fragment).remembered == []


def test_counters_of_every_kind_come_back(case: StoreCase, pen: Pen) -> None:
    entries = pen.append([b"12345"] * 4)
    pen.append([b"123"], scheduled_at_ms=9_000)
    pen.move(entries[0:1], state=DEFERRED)
    pen.move(entries[1:2], line=DEAD_LETTER_LINE, state=DEFERRED)
    pen.delay(entries[2:3], 9_000)
    pen.set_state("red", b"1234567")
    pen.counters.duplicates = 11
    pen.write(case.store)
    case.reopen()

    found = case.store.load(pen.fragment).counters

    assert [(x.count, x.deferred, x.scheduled, x.size_bytes) for x in found.lines] == [
        (1, 1, 2, 18),
        (0, 1, 0, 5),
        (0, 0, 0, 0),
    ]
    assert (found.states, found.state_bytes, found.duplicates) == (1, 7, 11)
    assert found.total_bytes() == 30


def test_a_commit_of_a_state_or_an_id_alone_changes_no_message(
    store: MessageStore, pen: Pen
) -> None:
    kept: list[Entry] = pen.append([b"kept"])
    pen.write(store)
    pen.set_state("red", b"state")
    pen.write(store)
    pen.remember(digests(1, 1), 1_000)
    pen.write(store)

    assert numbers(read_all(store, pen.fragment)) == numbers(kept)
    assert store.load(pen.fragment).counters.lines[MAIN_LINE].count == 1


def test_only_fragments_in_which_time_does_something_are_timed(case: StoreCase, pen: Pen) -> None:
    """R21: a bus that starts must know which fragments to run although nobody asks for them."""
    case.store.create([FragmentId(pen.fragment.entity_id, 9)])
    plain = pen.append([b"plain"])
    pen.write(case.store)
    assert case.store.timed() == []

    pen.append([b"fleeting"], expires_at_ms=9_000)
    pen.write(case.store)
    case.reopen()
    assert case.store.timed() == [pen.fragment]

    pen.append([b"later"], scheduled_at_ms=5_000)
    pen.remove(plain)
    pen.write(case.store)
    assert case.store.timed() == [pen.fragment]
