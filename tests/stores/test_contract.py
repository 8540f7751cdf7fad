"""What `MessageStore` promises, held against every store."""

import pytest

from shardbus.core.message import (
    DEAD_LETTER_LINE,
    DEFERRED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    SET_ASIDE,
    TRANSFER_DEAD_LETTER_LINE,
    Entry,
)
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError, UnknownFragment
from tests.stores.harness import (
    ENQUEUED_AT_MS,
    Pen,
    StoreCase,
    facts,
    numbers,
    page_facts,
    read_all,
    without_payload,
)

OTHER = FragmentId(7, 4)
BYTES_MAX = 1 << 20


def payloads(count: int, size: int = 100) -> list[bytes]:
    return [bytes([at % 251]) * size for at in range(count)]


def test_created_fragments_exist_and_are_empty(store: MessageStore, pen: Pen) -> None:
    store.create([OTHER, pen.fragment])

    assert sorted(store.fragments()) == [pen.fragment, OTHER]
    image = store.load(OTHER)
    assert image.counters.last_counter == 0
    assert [line.count for line in image.counters.lines] == [0, 0, 0]
    assert image.next_due_ms == NEVER_MS
    page = store.read_line(OTHER, MAIN_LINE, after=0, count_max=10, bytes_max=BYTES_MAX)
    assert page_facts(page) == ([], [], True)


def test_creating_a_fragment_again_keeps_its_messages(store: MessageStore, pen: Pen) -> None:
    pen.append([b"kept"])
    pen.write(store)

    store.create([pen.fragment])

    assert [e.payload for e in read_all(store, pen.fragment)] == [b"kept"]


def test_what_was_committed_is_there_after_reopening(case: StoreCase, pen: Pen) -> None:
    """D4: an accepted message survives."""
    entries = pen.append(payloads(600))
    pen.write(case.store)
    dead = pen.move(without_payload(entries[5:7]), line=DEAD_LETTER_LINE)
    dead[0].reason = "because"
    pen.remove(entries[:5])
    pen.write(case.store)

    case.reopen()

    assert case.store.fragments() == [pen.fragment]
    image = case.store.load(pen.fragment)
    assert image.counters.last_counter == 600
    assert image.counters.lines[MAIN_LINE].count == 593
    assert image.counters.lines[MAIN_LINE].size_bytes == 59_300
    assert image.counters.lines[DEAD_LETTER_LINE].count == 2
    found = read_all(case.store, pen.fragment)
    assert [facts(e) for e in found] == [facts(e) for e in entries[7:]]
    letters = read_all(case.store, pen.fragment, DEAD_LETTER_LINE)
    assert [(e.sequence_number, e.reason, e.payload) for e in letters] == [
        (pen.sequence(6), "because", payloads(6)[5]),
        (pen.sequence(7), None, payloads(7)[6]),
    ]


def test_a_store_keeps_copies(store: MessageStore, pen: Pen) -> None:
    entry = pen.append([b"as it was"])[0]
    pen.write(store)
    before = facts(entry)

    entry.delivery_count = 9
    entry.line = DEAD_LETTER_LINE
    entry.payload = None
    pen.counters.last_counter = 99

    assert [facts(e) for e in read_all(store, pen.fragment)] == [before]
    assert store.load(pen.fragment).counters.last_counter == 1
    page = store.read_line(pen.fragment, MAIN_LINE, after=0, count_max=1, bytes_max=BYTES_MAX)
    page.entries[0].delivery_count = 5
    assert [facts(e) for e in read_all(store, pen.fragment)] == [before]


def test_one_commit_covers_many_fragments(store: MessageStore) -> None:
    pens = [Pen(FragmentId(8, number)) for number in range(20)]
    store.create([pen.fragment for pen in pens])
    for pen in pens:
        pen.append([b"%d-%d" % (pen.fragment.number, at) for at in range(pen.fragment.number)])

    store.commit([pen.commit() for pen in pens])

    for pen in pens:
        number = pen.fragment.number
        found = read_all(store, pen.fragment)
        assert [e.payload for e in found] == [b"%d-%d" % (number, at) for at in range(number)]
        assert numbers(found) == [pen.sequence(at + 1) for at in range(number)]


def test_a_commit_with_an_unknown_fragment_stores_nothing(store: MessageStore, pen: Pen) -> None:
    pen.append([b"never"])
    stranger = Pen(FragmentId(99, 0))
    stranger.append([b"nowhere"])

    with pytest.raises(UnknownFragment):
        store.commit([pen.commit(), stranger.commit()])

    assert read_all(store, pen.fragment) == []
    assert store.load(pen.fragment).counters.last_counter == 0


def test_a_commit_with_numbers_that_were_used_stores_nothing(store: MessageStore, pen: Pen) -> None:
    pen.append([b"one", b"two"])
    pen.write(store)
    store.create([OTHER])
    other = Pen(OTHER)
    other.append([b"not stored"])
    again = Pen(pen.fragment)
    again.append([b"one again"])

    with pytest.raises(StoreError):
        store.commit([other.commit(), again.commit()])

    assert read_all(store, OTHER) == []
    assert [e.payload for e in read_all(store, pen.fragment)] == [b"one", b"two"]
    pen.append([b"three"])
    pen.write(store)
    assert len(read_all(store, pen.fragment)) == 3


def test_changes_of_one_commit_apply_in_order(store: MessageStore, pen: Pen) -> None:
    entries = pen.append(payloads(10))
    pen.move(entries[2:4], state=DEFERRED)
    pen.move(entries[2:3], line=DEAD_LETTER_LINE)
    pen.remove(entries[5:6])
    more = pen.append([b"later"])
    entries[7].delivery_count = 3
    pen.update(entries[7:8])
    pen.remove(entries[3:4])
    pen.write(store)

    main = read_all(store, pen.fragment)

    expected = [e for at, e in enumerate(entries) if at not in (2, 3, 5)] + more
    assert [facts(e) for e in main] == [facts(e) for e in expected]
    assert numbers(read_all(store, pen.fragment, DEAD_LETTER_LINE)) == [pen.sequence(3)]
    counters = store.load(pen.fragment).counters
    assert [line.count for line in counters.lines] == [8, 1, 0]


def test_two_commits_of_a_fragment_at_once_apply_in_order(store: MessageStore, pen: Pen) -> None:
    entries = pen.append(payloads(4))
    first = pen.commit()
    pen.move(entries[1:2], line=DEAD_LETTER_LINE)
    pen.remove(entries[2:3])
    pen.append([b"more"])

    store.commit([first, pen.commit()])

    assert numbers(read_all(store, pen.fragment)) == [pen.sequence(n) for n in (1, 4, 5)]
    assert numbers(read_all(store, pen.fragment, DEAD_LETTER_LINE)) == [pen.sequence(2)]
    assert store.load(pen.fragment).counters.last_counter == 5


def test_a_message_may_come_and_go_in_one_commit(store: MessageStore, pen: Pen) -> None:
    entries = pen.append(payloads(3))
    pen.remove(entries)
    pen.write(store)

    assert read_all(store, pen.fragment) == []
    assert store.load(pen.fragment).counters.last_counter == 3
    assert store.read_payloads(pen.fragment, numbers(entries)) == [None, None, None]


def test_the_latest_update_of_a_new_message_counts(store: MessageStore, pen: Pen) -> None:
    entry = pen.append([b"body"])[0]
    changed = Entry(entry.sequence_number, None, 4, enqueued_at_ms=ENQUEUED_AT_MS, expires_at_ms=55)
    pen.update([changed])
    pen.write(store)

    found = read_all(store, pen.fragment)

    assert [(e.payload, e.expires_at_ms) for e in found] == [(b"body", 55)]


def test_all_that_settling_changes_is_remembered(case: StoreCase, pen: Pen) -> None:
    entry = pen.append([b"", b"body"])[1]
    pen.write(case.store)
    entry.delivery_count = 4
    entry.reason = "grund \N{SNOWMAN} \ud800"
    entry.description = ""
    entry.modified = b"\x00\xff"
    entry.expires_at_ms = 123
    pen.move([entry], state=DEFERRED)
    pen.write(case.store)
    case.reopen()

    page = case.store.browse(pen.fragment, MAIN_LINE, start=0, count_max=10, bytes_max=BYTES_MAX)

    assert facts(page.entries[1]) == facts(entry)
    assert page.entries[1].payload == b"body"


def test_a_message_can_change_again_and_again(store: MessageStore, pen: Pen) -> None:
    entries = without_payload(pen_entries(store, pen, 4))
    for count in range(1, 6):
        entries[1].delivery_count = count
        pen.update([entries[1]])
        pen.write(store)
    pen.move([entries[1]], line=DEAD_LETTER_LINE)
    pen.write(store)
    pen.move([entries[1]], line=TRANSFER_DEAD_LETTER_LINE)
    pen.write(store)

    assert len(read_all(store, pen.fragment)) == 3
    assert read_all(store, pen.fragment, DEAD_LETTER_LINE) == []
    found = read_all(store, pen.fragment, TRANSFER_DEAD_LETTER_LINE)
    assert [(e.delivery_count, e.payload) for e in found] == [(5, payloads(2)[1])]


def pen_entries(store: MessageStore, pen: Pen, count: int) -> list[Entry]:
    entries = pen.append(payloads(count))
    pen.write(store)
    return entries


def test_a_message_comes_back_to_its_place_in_the_line(store: MessageStore, pen: Pen) -> None:
    entries = without_payload(pen_entries(store, pen, 9))
    pen.move(entries[2:5], state=SCHEDULED)
    pen.move(entries[6:7], line=DEAD_LETTER_LINE)
    pen.write(store)
    pen.move(entries[3:4])
    pen.move(entries[6:7])
    pen.write(store)

    found = read_all(store, pen.fragment)

    assert numbers(found) == [pen.sequence(n) for n in (1, 2, 4, 6, 7, 8, 9)]
    assert [e.payload for e in found] == [payloads(9)[n - 1] for n in (1, 2, 4, 6, 7, 8, 9)]


def test_changes_of_messages_that_are_gone_are_passed_over(store: MessageStore, pen: Pen) -> None:
    entries = without_payload(pen_entries(store, pen, 3))
    pen.remove(entries[:2])
    pen.write(store)
    counters = pen.counters.copy()

    pen.move(entries[:1], line=DEAD_LETTER_LINE)
    pen.remove(entries[1:2])
    pen.counters = counters
    pen.write(store)

    assert numbers(read_all(store, pen.fragment)) == [pen.sequence(3)]
    assert read_all(store, pen.fragment, DEAD_LETTER_LINE) == []
    assert store.read_payloads(pen.fragment, [pen.sequence(1)]) == [None]


@pytest.mark.parametrize("line", [MAIN_LINE, DEAD_LETTER_LINE])
def test_a_page_stops_at_its_count(store: MessageStore, pen: Pen, line: int) -> None:
    entries = pen.append(payloads(10))
    pen.move(entries, line=line)
    pen.write(store)

    page = store.read_line(
        pen.fragment, line, after=pen.sequence(2), count_max=5, bytes_max=BYTES_MAX
    )
    rest = store.read_line(
        pen.fragment, line, after=pen.sequence(7), count_max=3, bytes_max=BYTES_MAX
    )

    assert numbers(page.entries) == [pen.sequence(n) for n in range(3, 8)]
    assert not page.is_end
    assert numbers(rest.entries) == [pen.sequence(n) for n in range(8, 11)]
    assert rest.is_end


@pytest.mark.parametrize("line", [MAIN_LINE, DEAD_LETTER_LINE])
def test_a_page_stops_at_its_bytes_but_never_empty(
    store: MessageStore, pen: Pen, line: int
) -> None:
    entries = pen.append(payloads(10, size=1000))
    pen.move(entries, line=line)
    pen.write(store)

    fitting = store.read_line(pen.fragment, line, after=0, count_max=9, bytes_max=3500)
    small = store.read_line(pen.fragment, line, after=0, count_max=9, bytes_max=10)
    exact = store.read_line(pen.fragment, line, after=pen.sequence(6), count_max=9, bytes_max=4000)

    assert len(fitting.entries) == 3
    assert not fitting.is_end
    assert len(small.entries) == 1
    assert len(exact.entries) == 4
    assert exact.is_end


def test_a_page_skips_nothing_that_does_not_fit(store: MessageStore, pen: Pen) -> None:
    """A small message must not overtake a large one that came back before it."""
    sizes = (10, 600, 10, 600, 10)
    entries = pen.append([b"x" * size for size in sizes])
    pen.write(store)
    for entry in entries[1], entries[3]:
        entry.delivery_count = 1
    pen.update(without_payload(entries[1::2]))
    pen.write(store)

    page = store.read_line(pen.fragment, MAIN_LINE, after=0, count_max=9, bytes_max=1_000)

    assert numbers(page.entries) == [pen.sequence(n) for n in (1, 2, 3)]
    assert not page.is_end


def test_browsing_shows_what_reading_hides(store: MessageStore, pen: Pen) -> None:
    entries = without_payload(pen_entries(store, pen, 8))
    pen.move(entries[1:2], state=DEFERRED)
    pen.move(entries[3:4], state=SCHEDULED)
    pen.move(entries[5:6], state=SET_ASIDE)
    pen.move(entries[6:7], line=DEAD_LETTER_LINE)
    pen.move(entries[7:8], line=DEAD_LETTER_LINE, state=DEFERRED)
    pen.write(store)

    main = store.browse(pen.fragment, MAIN_LINE, start=0, count_max=9, bytes_max=BYTES_MAX)
    part = store.browse(
        pen.fragment, MAIN_LINE, start=pen.sequence(2), count_max=2, bytes_max=BYTES_MAX
    )
    dead = store.browse(pen.fragment, DEAD_LETTER_LINE, start=0, count_max=9, bytes_max=BYTES_MAX)

    assert numbers(main.entries) == [pen.sequence(n) for n in (1, 2, 3, 4, 5)]
    assert [e.state for e in main.entries] == [0, DEFERRED, 0, SCHEDULED, 0]
    assert [e.payload for e in main.entries] == payloads(5)
    assert main.is_end
    assert numbers(part.entries) == [pen.sequence(2), pen.sequence(3)]
    assert not part.is_end
    assert numbers(dead.entries) == [pen.sequence(7), pen.sequence(8)]
    assert numbers(read_all(store, pen.fragment)) == [pen.sequence(n) for n in (1, 3, 5)]
    assert numbers(read_all(store, pen.fragment, DEAD_LETTER_LINE)) == [pen.sequence(7)]


def test_numbers_of_other_fragments_lie_before_or_beyond(store: MessageStore, pen: Pen) -> None:
    pen_entries(store, pen, 2)
    beyond = pen.sequence(1) + (1 << 48)

    page = store.read_line(pen.fragment, MAIN_LINE, after=beyond, count_max=5, bytes_max=BYTES_MAX)
    before = store.browse(pen.fragment, MAIN_LINE, start=-5, count_max=5, bytes_max=BYTES_MAX)

    assert page_facts(page) == ([], [], True)
    assert len(before.entries) == 2
    assert store.read_payloads(pen.fragment, [beyond, -3, pen.sequence(0)]) == [None] * 3


def test_payloads_come_in_the_order_asked_for(store: MessageStore, pen: Pen) -> None:
    entries = pen.append(payloads(500))
    pen.write(store)
    pen.move(without_payload(entries[10:11]), line=DEAD_LETTER_LINE)
    pen.remove(entries[20:21])
    pen.write(store)
    asked = [500, 11, 21, 1, 501, 300, 1]

    found = store.read_payloads(pen.fragment, [pen.sequence(n) for n in asked])

    expected = payloads(500)
    assert found == [
        expected[499], expected[10], None, expected[0], None, expected[299], expected[0],
    ]  # fmt: skip
    assert store.read_payloads(pen.fragment, []) == []


def test_expired_messages_are_due_until_they_leave(store: MessageStore, pen: Pen) -> None:
    early = pen.append(payloads(3), expires_at_ms=1_000)
    late = pen.append(payloads(2), expires_at_ms=90_000)
    pen.append(payloads(2))
    pen.write(store)
    assert store.load(pen.fragment).next_due_ms == 1_000

    before = store.read_due(pen.fragment, now_ms=999, count_max=10, bytes_max=BYTES_MAX)
    at = store.read_due(pen.fragment, now_ms=1_000, count_max=10, bytes_max=BYTES_MAX)
    again = store.read_due(pen.fragment, now_ms=1_000, count_max=10, bytes_max=BYTES_MAX)
    pen.remove(early[:2])
    pen.move(without_payload(early[2:]), line=DEAD_LETTER_LINE)
    pen.write(store)
    after = store.read_due(pen.fragment, now_ms=2_000, count_max=10, bytes_max=BYTES_MAX)
    at_last = store.read_due(pen.fragment, now_ms=90_000, count_max=10, bytes_max=BYTES_MAX)

    assert (before.entries, before.next_due_ms) == ([], 1_000)
    assert sorted(numbers(at.entries)) == numbers(early)
    assert [(e.payload, e.size_bytes, e.expires_at_ms) for e in at.entries] == [
        (None, 100, 1_000)
    ] * 3
    assert at.next_due_ms == 90_000
    assert sorted(numbers(again.entries)) == numbers(early)
    assert (after.entries, after.next_due_ms) == ([], 90_000)
    assert sorted(numbers(at_last.entries)) == numbers(late)
    assert at_last.next_due_ms == NEVER_MS


def test_due_messages_come_in_bounded_pieces(store: MessageStore, pen: Pen) -> None:
    pen.append(payloads(600), expires_at_ms=1_000)
    pen.write(store)

    left = 600
    for _ in range(10):
        due = store.read_due(pen.fragment, now_ms=5_000, count_max=100, bytes_max=BYTES_MAX)
        assert len(due.entries) == min(100, left)
        left -= len(due.entries)
        pen.remove(due.entries)
        pen.write(store)
        if not left:
            break
        assert NEVER_MS < due.next_due_ms <= 5_000

    assert left == 0
    assert store.load(pen.fragment).next_due_ms == NEVER_MS


def test_hidden_messages_expire_but_dead_letters_and_damaged_ones_do_not(
    store: MessageStore, pen: Pen
) -> None:
    entries = pen.append(payloads(5), expires_at_ms=1_000)
    pen.write(store)
    pen.move(without_payload(entries[0:1]), state=DEFERRED)
    pen.move(without_payload(entries[1:2]), line=DEAD_LETTER_LINE)
    pen.move(without_payload(entries[2:3]), state=SET_ASIDE)
    entries[3].expires_at_ms = 70_000
    pen.update(without_payload(entries[3:4]))
    pen.write(store)

    due = store.read_due(pen.fragment, now_ms=1_000, count_max=10, bytes_max=BYTES_MAX)

    assert sorted(numbers(due.entries)) == [pen.sequence(1), pen.sequence(5)]
    assert due.next_due_ms == 70_000


def test_one_early_expiry_does_not_keep_others_due(store: MessageStore, pen: Pen) -> None:
    early = pen.append(payloads(1), expires_at_ms=1_000)
    pen.append(payloads(5), expires_at_ms=500_000)
    pen.append(payloads(1))
    pen.write(store)

    pen.remove(early)
    pen.write(store)

    assert store.load(pen.fragment).next_due_ms == 500_000


@pytest.mark.parametrize("line", [MAIN_LINE, DEAD_LETTER_LINE])
def test_a_damaged_message_is_named_and_not_served(case: StoreCase, pen: Pen, line: int) -> None:
    """D4: damage is reported, never served, never fatal to the rest."""
    entries = pen.append(payloads(6))
    pen.write(case.store)
    pen.move(without_payload(entries), line=line)
    pen.write(case.store)
    case.damage(pen.fragment, pen.sequence(3))

    page = case.store.read_line(pen.fragment, line, after=0, count_max=10, bytes_max=BYTES_MAX)
    short = case.store.read_line(pen.fragment, line, after=0, count_max=2, bytes_max=BYTES_MAX)

    assert numbers(page.entries) == [pen.sequence(n) for n in (1, 2, 4, 5, 6)]
    assert page.damaged == [pen.sequence(3)]
    assert short.damaged == []
    asked = [pen.sequence(n) for n in (2, 3, 4)]
    expected = payloads(4)
    assert case.store.read_payloads(pen.fragment, asked) == [expected[1], None, expected[3]]


def test_a_damaged_message_can_be_set_aside_and_removed(case: StoreCase, pen: Pen) -> None:
    entries = pen.append(payloads(3))
    pen.write(case.store)
    case.damage(pen.fragment, pen.sequence(2))
    aside = Entry(pen.sequence(2), None, 0, enqueued_at_ms=0, state=SET_ASIDE)
    pen.counters.set_aside += 1
    pen.update([aside])
    pen.write(case.store)
    case.reopen()

    page = case.store.browse(pen.fragment, MAIN_LINE, start=0, count_max=10, bytes_max=BYTES_MAX)
    assert numbers(page.entries) == [pen.sequence(1), pen.sequence(3)]
    assert page.damaged == []
    assert page.is_end
    assert case.store.load(pen.fragment).counters.set_aside == 1

    pen.remove([entries[0], aside, entries[2]])
    pen.write(case.store)
    assert read_all(case.store, pen.fragment) == []


def test_a_commit_without_changes_leaves_everything_as_it_is(case: StoreCase, pen: Pen) -> None:
    pen_entries(case.store, pen, 3)
    before = case.store.load(pen.fragment).counters

    pen.write(case.store)
    case.reopen()

    after = case.store.load(pen.fragment).counters
    assert (after.last_counter, after.lines[MAIN_LINE].count) == (3, 3)
    assert after.total_bytes() == before.total_bytes()
    assert len(read_all(case.store, pen.fragment)) == 3


def test_the_highest_entity_id_is_known_after_its_fragments_are_gone(case: StoreCase) -> None:
    before = case.store.highest_entity_id()
    gone = FragmentId(before + 40, 3)
    case.store.create([gone, FragmentId(before + 7, 0)])
    case.store.delete([gone])
    while case.store.sweep():
        pass
    case.store.create([FragmentId(before + 8, 0)])
    case.reopen()

    assert case.store.highest_entity_id() == before + 40


def test_a_deleted_fragment_is_gone_at_once(case: StoreCase, pen: Pen) -> None:
    case.store.create([OTHER])
    pen_entries(case.store, pen, 3)
    other = Pen(OTHER)
    pen_entries(case.store, other, 2)

    case.store.delete([pen.fragment, FragmentId(50, 0)])

    assert case.store.fragments() == [OTHER]
    for attempt in (
        lambda: case.store.load(pen.fragment),
        lambda: read_all(case.store, pen.fragment),
        lambda: case.store.read_payloads(pen.fragment, [1]),
        lambda: case.store.read_due(pen.fragment, now_ms=1, count_max=1, bytes_max=BYTES_MAX),
        lambda: case.store.commit([pen.commit()]),
    ):
        with pytest.raises(UnknownFragment):
            attempt()
    case.reopen()
    assert case.store.fragments() == [OTHER]
    assert len(read_all(case.store, OTHER)) == 2


def test_sweeping_ends_and_spares_the_living(case: StoreCase, pen: Pen) -> None:
    case.store.create([OTHER])
    entries = pen_entries(case.store, pen, 700)
    pen.move(without_payload(entries[5:9]), line=DEAD_LETTER_LINE)
    pen.write(case.store)
    other = Pen(OTHER)
    pen_entries(case.store, other, 30)
    case.store.delete([pen.fragment])

    for _ in range(1_000):
        if not case.store.sweep():
            break

    assert not case.store.sweep()
    assert len(read_all(case.store, OTHER)) == 30
    case.store.create([pen.fragment])
    assert case.store.load(pen.fragment).counters.last_counter == 0
    assert read_all(case.store, pen.fragment) == []
    assert read_all(case.store, pen.fragment, DEAD_LETTER_LINE) == []


def test_a_fragment_can_be_made_anew_before_the_sweep(case: StoreCase, pen: Pen) -> None:
    pen_entries(case.store, pen, 3)
    case.store.delete([pen.fragment])
    case.store.create([pen.fragment])
    anew = Pen(pen.fragment)
    anew.append([b"new"])
    anew.write(case.store)

    for _ in range(10):
        case.store.sweep()
    case.reopen()

    assert [e.payload for e in read_all(case.store, pen.fragment)] == [b"new"]


def test_a_large_message_is_a_message_like_any_other(case: StoreCase, pen: Pen) -> None:
    large = bytes(range(256)) * 4096 * 3
    entries = pen.append([b"before", large, b"after"])
    pen.write(case.store)

    page = case.store.read_line(
        pen.fragment, MAIN_LINE, after=pen.sequence(1), count_max=5, bytes_max=1000
    )
    assert [e.payload for e in page.entries] == [large]
    pen.move(without_payload(entries[1:2]), line=DEAD_LETTER_LINE)
    pen.write(case.store)
    case.reopen()
    assert case.store.read_payloads(pen.fragment, [pen.sequence(2)]) == [large]
    assert [e.payload for e in read_all(case.store, pen.fragment)] == [b"before", b"after"]
