"""What `MessageStore` promises where fragments have payloads in common or numbers have holes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shardbus.core.message import (
    DEAD_LETTER_LINE,
    DEFERRED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    Entry,
)
from shardbus.stores.base.store import FragmentId, MessageStore
from tests.stores.harness import Pen, StoreCase, facts, numbers, read_all, without_payload

BYTES_MAX = 1 << 20
PAYLOADS = [bytes([at]) * (300 + at) for at in range(1, 31)]


def publish(
    store: MessageStore, pens: Sequence[Pen], payloads: Sequence[bytes] = PAYLOADS
) -> list[list[Entry]]:
    """The same payloads to all of them in one commit."""
    entries = [pen.append(payloads) for pen in pens]
    store.commit([pen.commit() for pen in pens])
    return entries


@pytest.fixture
def pens(store: MessageStore) -> list[Pen]:
    made = [Pen(FragmentId(10 + at, 3)) for at in range(4)]
    store.create([pen.fragment for pen in made])
    return made


def payloads_of(store: MessageStore, pen: Pen, line: int = MAIN_LINE) -> list[bytes | None]:
    return [entry.payload for entry in read_all(store, pen.fragment, line)]


def test_each_fragment_has_its_own_messages(case: StoreCase, pens: list[Pen]) -> None:
    entries = publish(case.store, pens)

    case.reopen()

    for pen, mine in zip(pens, entries, strict=True):
        assert [facts(e) for e in read_all(case.store, pen.fragment)] == [facts(e) for e in mine]
        asked = [pen.sequence(30), pen.sequence(1), pen.sequence(31)]
        assert case.store.read_payloads(pen.fragment, asked) == [PAYLOADS[29], PAYLOADS[0], None]
        found = case.store.read_entries(pen.fragment, asked, bytes_max=BYTES_MAX)
        assert [e and e.payload for e in found] == [PAYLOADS[29], PAYLOADS[0], None]


def test_a_fragment_that_is_done_takes_nothing_from_the_others(
    case: StoreCase, pens: list[Pen]
) -> None:
    entries = publish(case.store, pens)

    for at in (0, 2, 3):
        pens[at].remove(entries[at])
        pens[at].write(case.store)
        assert payloads_of(case.store, pens[at]) == []
        case.reopen()
        assert payloads_of(case.store, pens[1]) == PAYLOADS

    pens[1].remove(entries[1][:20])
    pens[1].write(case.store)
    assert payloads_of(case.store, pens[1]) == PAYLOADS[20:]


def test_a_deleted_fragment_takes_nothing_from_the_others(case: StoreCase, pens: list[Pen]) -> None:
    publish(case.store, pens[:2])
    publish(case.store, pens[1:])
    case.store.delete([pens[0].fragment, pens[3].fragment])

    for _ in range(10):
        case.store.sweep()
    case.reopen()

    assert payloads_of(case.store, pens[1]) == PAYLOADS + PAYLOADS
    assert payloads_of(case.store, pens[2]) == PAYLOADS


def test_what_happens_to_a_copy_happens_to_it_alone(case: StoreCase, pens: list[Pen]) -> None:
    first, second, *_ = publish(case.store, pens)
    without_payload(first + second)
    pens[0].move(first[3:5], line=DEAD_LETTER_LINE)
    pens[0].move(first[29:], state=DEFERRED)
    pens[0].write(case.store)
    pens[0].remove(first[:3] + first[5:29])
    pens[0].write(case.store)

    case.reopen()

    assert payloads_of(case.store, pens[0], DEAD_LETTER_LINE) == PAYLOADS[3:5]
    assert payloads_of(case.store, pens[0]) == []
    found = case.store.read_entries(pens[0].fragment, numbers(first[29:]), bytes_max=1)
    assert [e and e.payload for e in found] == PAYLOADS[29:]
    assert payloads_of(case.store, pens[1]) == PAYLOADS


def test_copies_may_differ_in_all_but_their_payloads(case: StoreCase, pens: list[Pen]) -> None:
    """One keeps sessions, one expires, one comes as a dead letter, one is scheduled."""
    plain, expiring, sessions, others = pens
    plain.append(PAYLOADS)
    expiring.append(PAYLOADS, expires_at_ms=5_000)
    sessions.append(PAYLOADS[:15], session_id="red")
    sessions.append(PAYLOADS[15:], session_id="green")
    dead = others.append(PAYLOADS[:1])
    others.move(dead, line=DEAD_LETTER_LINE)
    others.append(PAYLOADS[1:2], scheduled_at_ms=7_000)
    others.append(PAYLOADS[2:])
    case.store.commit([pen.commit() for pen in pens])

    case.reopen()

    store = case.store
    assert payloads_of(store, plain) == PAYLOADS
    due = store.read_due(expiring.fragment, now_ms=5_000, count_max=99, bytes_max=1)
    assert numbers(due.entries) == [expiring.sequence(at + 1) for at in range(30)]
    green = store.read_session(
        sessions.fragment, "green", after=0, count_max=99, bytes_max=BYTES_MAX
    )
    assert [e.payload for e in green.entries] == PAYLOADS[15:]
    assert payloads_of(store, others, DEAD_LETTER_LINE) == PAYLOADS[:1]
    assert payloads_of(store, others) == PAYLOADS[2:]
    due = store.read_due(others.fragment, now_ms=7_000, count_max=99, bytes_max=1)
    assert [(e.state, e.payload) for e in due.entries] == [(SCHEDULED, PAYLOADS[1])]

    sessions.remove(without_payload(green.entries))
    sessions.write(store)
    assert payloads_of(store, sessions) == PAYLOADS[:15]
    assert payloads_of(store, plain) == PAYLOADS


def test_one_fragment_may_have_the_same_payload_twice(case: StoreCase, pens: list[Pen]) -> None:
    """As when two rules of a subscription give two copies."""
    entries = pens[0].append(PAYLOADS[:3] + PAYLOADS[:3])
    pens[1].append(PAYLOADS[:3])
    case.store.commit([pens[0].commit(), pens[1].commit()])
    pens[0].remove(entries[:2])
    pens[0].write(case.store)

    case.reopen()

    assert payloads_of(case.store, pens[0]) == [PAYLOADS[2], *PAYLOADS[:3]]
    assert payloads_of(case.store, pens[1]) == PAYLOADS[:3]


def test_payloads_shared_in_other_orders_and_by_other_fragments(
    case: StoreCase, pens: list[Pen]
) -> None:
    """Whatever a commit brings to whom, in whatever order, everybody reads what is theirs."""
    own = [bytes([200 + at]) * 400 for at in range(4)]
    brought = [
        [*PAYLOADS[::3], own[0], b"", b"x"],
        PAYLOADS[::-1],
        [own[2], *PAYLOADS[::2], b"x"],
        PAYLOADS[5:6],
    ]
    for pen, payloads in zip(pens, brought, strict=True):
        pen.append(payloads)
    case.store.commit([pen.commit() for pen in pens])

    case.reopen()

    for pen, payloads in zip(pens, brought, strict=True):
        assert payloads_of(case.store, pen) == payloads


@pytest.mark.parametrize("step", [2, 10, 1_000, 5_000])
def test_numbers_may_have_holes(case: StoreCase, pen: Pen, step: int) -> None:
    """A subscription gets some of the messages of its topic, with their numbers."""
    counters = range(7, 7 + 40 * step, step)
    payloads = [b"%d" % counter for counter in counters]
    entries = pen.append(payloads, counters=counters)
    pen.write(case.store)

    case.reopen()

    store = case.store
    assert [facts(e) for e in read_all(store, pen.fragment)] == [facts(e) for e in entries]
    assert store.load(pen.fragment).counters.last_counter == counters[-1]
    between = [pen.sequence(counters[3] - 1), pen.sequence(counters[3]), pen.sequence(8)]
    assert store.read_payloads(pen.fragment, between) == [None, payloads[3], None]
    found = store.read_entries(pen.fragment, between, bytes_max=BYTES_MAX)
    assert [e and e.payload for e in found] == [None, payloads[3], None]
    for start in (counters[3] - 1, counters[3], counters[3] + 1):
        page = store.browse(
            pen.fragment, MAIN_LINE, start=pen.sequence(start), count_max=2, bytes_max=BYTES_MAX
        )
        expected = [number for number in numbers(entries) if number >= pen.sequence(start)][:2]
        assert numbers(page.entries) == expected


def test_messages_between_holes_are_settled_like_others(case: StoreCase, pen: Pen) -> None:
    counters = [1, 4, 5, 9, 20, 21, 30]
    entries = pen.append(PAYLOADS[:7], counters=counters, expires_at_ms=5_000)
    pen.write(case.store)
    pen.remove(entries[:1] + entries[3:4])
    pen.move(without_payload(entries[4:5]), state=DEFERRED)
    pen.write(case.store)
    pen.append([b"next"])
    pen.write(case.store)

    case.reopen()

    assert payloads_of(case.store, pen) == [*PAYLOADS[1:3], *PAYLOADS[5:7], b"next"]
    due = case.store.read_due(pen.fragment, now_ms=5_000, count_max=99, bytes_max=1)
    assert sorted(numbers(due.entries)) == [pen.sequence(c) for c in (4, 5, 20, 21, 30)]
    pen.remove(entries[1:3] + entries[4:])
    pen.write(case.store)
    assert payloads_of(case.store, pen) == [b"next"]
    assert case.store.load(pen.fragment).next_due_ms == NEVER_MS


def test_a_message_that_comes_and_goes_in_one_commit_leaves_a_hole(
    case: StoreCase, pen: Pen
) -> None:
    entries = pen.append(PAYLOADS[:5])
    pen.remove(entries[1:3])
    pen.append([b"later"], scheduled_at_ms=9_000)
    pen.append([b"last"])
    pen.write(case.store)

    case.reopen()

    assert payloads_of(case.store, pen) == [PAYLOADS[0], *PAYLOADS[3:5], b"last"]
