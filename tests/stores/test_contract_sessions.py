"""What `MessageStore` promises about sessions and their states, held against every store."""

from __future__ import annotations

import pytest

from shardbus.core.message import (
    DEAD_LETTER_LINE,
    DEFERRED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    SET_ASIDE,
    Entry,
)
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError, UnknownFragment
from tests.stores.harness import ENQUEUED_AT_MS, Pen, StoreCase, facts, numbers, without_payload

OTHER = FragmentId(7, 4)
BYTES_MAX = 1 << 20
ODD_NAMES = ("", "a", "A", "a;b c", "é", "\udc80", "\x00", "x" * 128, "\N{SNOWMAN}" * 128)


def session(store: MessageStore, pen: Pen, session_id: str, after: int = 0) -> list[Entry]:
    """All active messages of a session, in pages of three."""
    found: list[Entry] = []
    start = after
    for _ in range(1_000):
        page = store.read_session(
            pen.fragment, session_id, after=start, count_max=3, bytes_max=BYTES_MAX
        )
        assert page.damaged == []
        found += page.entries
        if page.is_end:
            return found
        start = page.entries[-1].sequence_number
    raise AssertionError("the session does not end")


def waiting(store: MessageStore, pen: Pen, after: int = 0) -> list[tuple[int, str]]:
    """Ranks (as counters) and names of all sessions with active messages."""
    page = store.read_sessions(pen.fragment, after=after, count_max=1_000)
    assert page.is_end
    return [(rank - pen.sequence(0), name) for rank, name in page.sessions]


def names(store: MessageStore, pen: Pen, updated_after_ms: int = -1) -> list[str]:
    return store.list_sessions(
        pen.fragment, updated_after_ms=updated_after_ms, skip=0, count_max=1_000
    )


def test_messages_are_found_by_their_session(case: StoreCase, pen: Pen) -> None:
    """R26: in order, whole, and only those of the session."""
    red = pen.append([b"r1", b"r2"], session_id="red")
    blue = pen.append([b"b1"], session_id="blue")
    red += pen.append([b"r3", b"r4"], session_id="red")
    pen.write(case.store)
    case.reopen()

    assert [facts(e) for e in session(case.store, pen, "red")] == [facts(e) for e in red]
    assert [facts(e) for e in session(case.store, pen, "blue")] == [facts(e) for e in blue]
    assert session(case.store, pen, "green") == []
    assert numbers(session(case.store, pen, "red", after=pen.sequence(2))) == numbers(red[2:])


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_text_names_a_session(case: StoreCase, pen: Pen, name: str) -> None:
    entries = pen.append([b"one"], session_id=name)
    pen.append([b"two"], session_id=name + "2")
    pen.set_state(name, b"state of it")
    pen.write(case.store)
    case.reopen()

    assert [facts(e) for e in session(case.store, pen, name)] == [facts(e) for e in entries]
    assert waiting(case.store, pen) == [(1, name.lower()), (2, name.lower() + "2")]
    assert sorted(names(case.store, pen)) == sorted([name, name + "2"])
    assert case.store.read_state(pen.fragment, name) == b"state of it"


def test_all_spellings_of_an_id_are_one_session(case: StoreCase, pen: Pen) -> None:
    """Messages keep theirs; the session is found by any, and waits once."""
    entries = pen.append([b"one"], session_id="SessionÄ")
    entries += pen.append([b"two"], session_id="sessionä")
    pen.append([b"other"], session_id="session")
    entries += pen.append([b"three"], session_id="SESSIONÄ")
    pen.set_state("SessionÄ", b"old")
    pen.write(case.store)
    pen.set_state("SessionÄ", None)
    pen.set_state("sESSIONÄ", b"new")
    pen.write(case.store)
    case.reopen()

    for name in ("SessionÄ", "sessionä", "SESSIONÄ", "sEsSiOnÄ"):
        assert [facts(e) for e in session(case.store, pen, name)] == [facts(e) for e in entries]
        assert case.store.read_state(pen.fragment, name) == b"new"
        page = case.store.browse(
            pen.fragment, MAIN_LINE, start=0, count_max=9, bytes_max=BYTES_MAX, session_id=name
        )
        assert [e.payload for e in page.entries] == [b"one", b"two", b"three"]
    assert [e.session_id for e in session(case.store, pen, "sessionä")] == [
        "SessionÄ",
        "sessionä",
        "SESSIONÄ",
    ]
    assert waiting(case.store, pen) == [(1, "sessionä"), (3, "session")]


def test_a_session_is_forgotten_with_the_last_of_its_messages_in_any_spelling(
    store: MessageStore, pen: Pen
) -> None:
    one = pen.append([b"one"], session_id="Red")
    two = pen.append([b"two"], session_id="red")
    pen.write(store)
    pen.remove(one)
    pen.write(store)
    assert waiting(store, pen) == [(2, "red")]

    pen.remove(two)
    pen.write(store)

    assert waiting(store, pen) == []
    assert names(store, pen) == []


def test_states_that_change_several_times_in_one_commit_end_as_the_last_says(
    case: StoreCase, pen: Pen
) -> None:
    pen.set_state("RED", b"1")
    pen.set_state("RED", None)
    pen.set_state("red", b"22")
    pen.set_state("red", None)
    pen.set_state("RED", b"333")
    pen.set_state("Blue", b"gone")
    pen.set_state("Blue", None)
    pen.write(case.store)
    case.reopen()

    assert case.store.read_state(pen.fragment, "red") == b"333"
    assert names(case.store, pen) == ["RED"]


def test_a_list_spells_a_session_as_its_first_message_does(store: MessageStore, pen: Pen) -> None:
    """An active one before the others; without any, as its state was set."""
    first = pen.append([b"first"], session_id="First")
    pen.append([b"later"], session_id="FIRST", scheduled_at_ms=9_000)
    second = pen.append([b"second"], session_id="fIRST")
    pen.set_state("FirsT", b"state")
    pen.write(store)
    assert names(store, pen) == ["First"]
    assert names(store, pen, updated_after_ms=0) == ["First"]

    pen.move(without_payload(first), state=DEFERRED)
    pen.write(store)
    assert names(store, pen) == ["fIRST"]

    pen.remove(second)
    pen.write(store)
    assert names(store, pen) == ["First"]

    pen.remove(first)
    pen.write(store)
    assert names(store, pen) == ["FIRST"]

    pen.remove([e for e in _all_of(store, pen) if e.state == SCHEDULED])
    pen.write(store)
    assert names(store, pen) == ["FirsT"]


def _all_of(store: MessageStore, pen: Pen) -> list[Entry]:
    return store.browse(pen.fragment, MAIN_LINE, start=0, count_max=99, bytes_max=BYTES_MAX).entries


def test_a_list_knows_the_spelling_of_a_message_with_large_properties(
    store: MessageStore, pen: Pen
) -> None:
    name = "Ä" + "\N{SNOWMAN}" * 127
    [entry] = pen.append([b"one"], session_id=name)
    pen.write(store)
    entry.modified = bytes(60_000)
    entry.delivery_count = 1
    pen.update(without_payload([entry]))
    pen.write(store)

    assert names(store, pen) == [name]


def test_a_session_waits_with_its_first_active_message(store: MessageStore, pen: Pen) -> None:
    red = pen.append([b"r1", b"r2"], session_id="red")
    blue = pen.append([b"b1"], session_id="blue")
    pen.append([b"r3"], session_id="red")
    pen.write(store)
    assert waiting(store, pen) == [(1, "red"), (3, "blue")]

    pen.remove(red[:1])
    pen.write(store)
    assert waiting(store, pen) == [(2, "red"), (3, "blue")]

    pen.move(without_payload(red[1:2]), state=DEFERRED)
    pen.write(store)
    assert waiting(store, pen) == [(3, "blue"), (4, "red")]

    pen.move(red[1:2])
    pen.move(without_payload(blue), line=DEAD_LETTER_LINE)
    pen.write(store)
    assert waiting(store, pen) == [(2, "red")]


def test_a_removal_and_an_arrival_in_one_commit_leave_the_session_waiting(
    store: MessageStore, pen: Pen
) -> None:
    old = pen.append([b"old"], session_id="red")
    pen.write(store)

    pen.append([b"new"], session_id="red")
    pen.remove(old)
    pen.write(store)

    assert waiting(store, pen) == [(2, "red")]
    assert [e.payload for e in session(store, pen, "red")] == [b"new"]


def test_an_arrival_that_is_gone_in_the_same_commit_leaves_no_session(
    store: MessageStore, pen: Pen
) -> None:
    pen.remove(pen.append([b"short"], session_id="red"))
    scheduled = pen.append([b"later"], session_id="blue", scheduled_at_ms=5_000)
    pen.write(store)

    assert waiting(store, pen) == []
    assert names(store, pen) == ["blue"]
    pen.remove(scheduled)
    pen.write(store)
    assert names(store, pen) == []


def test_sessions_come_in_pages_by_rank(store: MessageStore, pen: Pen) -> None:
    for at in range(1, 8):
        pen.append([b"x"], session_id=f"s{9 - at}")
    pen.write(store)

    first = store.read_sessions(pen.fragment, after=0, count_max=3)
    second = store.read_sessions(pen.fragment, after=first.sessions[-1].rank, count_max=4)
    beyond = store.read_sessions(pen.fragment, after=pen.sequence(7), count_max=4)
    other_fragment = store.read_sessions(
        pen.fragment, after=pen.sequence(1) + (1 << 48), count_max=4
    )

    assert [s.key for s in first.sessions] == ["s8", "s7", "s6"]
    assert not first.is_end
    assert [s.rank for s in second.sessions] == [pen.sequence(n) for n in (4, 5, 6, 7)]
    assert second.is_end
    assert (beyond.sessions, beyond.is_end) == ([], True)
    assert (other_fragment.sessions, other_fragment.is_end) == ([], True)


def test_sessions_of_one_name_in_two_fragments_are_two(case: StoreCase, pen: Pen) -> None:
    case.store.create([OTHER])
    other = Pen(OTHER)
    mine = pen.append([b"mine"], session_id="red")
    other.append([b"x", b"y"])
    theirs = other.append([b"theirs"], session_id="red")
    pen.set_state("red", b"my state")
    case.store.commit([pen.commit(), other.commit()])

    assert numbers(session(case.store, pen, "red")) == numbers(mine)
    assert numbers(session(case.store, other, "red")) == numbers(theirs)
    assert (waiting(case.store, pen), waiting(case.store, other)) == ([(1, "red")], [(3, "red")])
    assert case.store.read_state(OTHER, "red") is None

    other.remove(theirs)
    other.write(case.store)
    assert numbers(session(case.store, pen, "red")) == numbers(mine)
    assert names(case.store, other) == []


def test_only_what_is_on_the_main_line_is_in_a_session(case: StoreCase, pen: Pen) -> None:
    entries = pen.append([b"%d" % at for at in range(1, 7)], session_id="red")
    pen.write(case.store)
    without_payload(entries)
    pen.move(entries[0:1], line=DEAD_LETTER_LINE)
    pen.move(entries[1:2], state=DEFERRED)
    pen.move(entries[2:3], state=SCHEDULED)
    pen.move(entries[3:4], state=SET_ASIDE)
    pen.delay(entries[4:5], 9_000)
    pen.write(case.store)
    case.reopen()

    page = case.store.browse(
        pen.fragment, MAIN_LINE, start=0, count_max=9, bytes_max=BYTES_MAX, session_id="red"
    )
    letters = case.store.read_line(
        pen.fragment, DEAD_LETTER_LINE, after=0, count_max=9, bytes_max=BYTES_MAX
    )

    assert numbers(session(case.store, pen, "red")) == [pen.sequence(6)]
    assert numbers(page.entries) == [pen.sequence(n) for n in (2, 3, 5, 6)]
    assert [e.payload for e in page.entries] == [b"2", b"3", b"5", b"6"]
    assert page.is_end
    assert [(e.payload, e.session_id) for e in letters.entries] == [(b"1", "red")]


def test_a_session_is_browsed_past_all_others(store: MessageStore, pen: Pen) -> None:
    wanted: list[Entry] = []
    for _ in range(4):
        pen.append([b"other"] * 5, session_id="blue")
        wanted += pen.append([b"mine"], session_id="red")
    pen.write(store)

    page = store.browse(
        pen.fragment,
        MAIN_LINE,
        start=wanted[1].sequence_number,
        count_max=2,
        bytes_max=BYTES_MAX,
        session_id="red",
    )
    everything = store.browse(pen.fragment, MAIN_LINE, start=0, count_max=99, bytes_max=BYTES_MAX)

    assert numbers(page.entries) == numbers(wanted[1:3])
    assert not page.is_end
    assert len(everything.entries) == 24


def test_a_page_of_a_session_stops_at_its_bytes_but_never_empty(
    store: MessageStore, pen: Pen
) -> None:
    pen.append([b"x" * 1_000] * 5, session_id="red")
    pen.write(store)

    small = store.read_session(pen.fragment, "red", after=0, count_max=9, bytes_max=10)
    fitting = store.read_session(pen.fragment, "red", after=0, count_max=9, bytes_max=2_500)

    assert (len(small.entries), small.is_end) == (1, False)
    assert (len(fitting.entries), fitting.is_end) == (2, False)


def test_a_session_is_forgotten_with_its_last_message(case: StoreCase, pen: Pen) -> None:
    red = pen.append([b"1", b"2"], session_id="red")
    blue = pen.append([b"3"], session_id="blue")
    gray = pen.append([b"4"], session_id="gray")
    pen.write(case.store)
    assert names(case.store, pen) == ["blue", "gray", "red"]

    pen.remove(red)
    pen.move(without_payload(blue), line=DEAD_LETTER_LINE)
    pen.move(without_payload(gray), state=DEFERRED)
    pen.write(case.store)
    assert names(case.store, pen) == ["gray"]
    assert waiting(case.store, pen) == []

    pen.move(gray, state=SET_ASIDE)
    pen.write(case.store)
    case.reopen()
    assert names(case.store, pen) == []


def test_a_state_lasts_without_messages_until_it_is_cleared(case: StoreCase, pen: Pen) -> None:
    """R26: it survives a restart, and its session with it."""
    entries = pen.append([b"1"], session_id="red")
    pen.set_state("red", b"first")
    pen.set_state("red", bytes(range(256)) * 4_000)
    pen.set_state("none", b"")
    pen.write(case.store)
    pen.remove(entries)
    pen.write(case.store)
    case.reopen()

    assert case.store.read_state(pen.fragment, "red") == bytes(range(256)) * 4_000
    assert case.store.read_state(pen.fragment, "none") == b""
    assert case.store.read_state(pen.fragment, "other") is None
    assert names(case.store, pen) == ["none", "red"]
    assert waiting(case.store, pen) == []
    counters = case.store.load(pen.fragment).counters
    assert (counters.states, counters.state_bytes) == (2, 1_024_000)

    pen.set_state("red", None)
    pen.set_state("never", None)
    pen.write(case.store)
    case.reopen()
    assert case.store.read_state(pen.fragment, "red") is None
    assert names(case.store, pen) == ["none"]


def test_clearing_a_state_leaves_the_messages(store: MessageStore, pen: Pen) -> None:
    entries = pen.append([b"1"], session_id="red")
    pen.set_state("red", b"state")
    pen.write(store)

    pen.set_state("red", None)
    pen.write(store)

    assert numbers(session(store, pen, "red")) == numbers(entries)
    assert waiting(store, pen) == [(1, "red")]


def test_the_last_state_of_a_commit_counts(store: MessageStore, pen: Pen) -> None:
    pen.set_state("set", None)
    pen.set_state("set", b"yes")
    pen.set_state("cleared", b"no")
    pen.set_state("cleared", None)
    pen.write(store)

    assert store.read_state(pen.fragment, "set") == b"yes"
    assert store.read_state(pen.fragment, "cleared") is None
    assert names(store, pen) == ["set"]


def test_sessions_are_listed_by_when_their_state_was_set(store: MessageStore, pen: Pen) -> None:
    pen.append([b"1"], session_id="no state")
    for at, name in enumerate(("c", "a", "b")):
        pen.set_state(name, b"x", ENQUEUED_AT_MS + at)
    pen.write(store)

    assert names(store, pen, updated_after_ms=ENQUEUED_AT_MS) == ["a", "b"]
    assert names(store, pen, updated_after_ms=ENQUEUED_AT_MS + 2) == []
    assert names(store, pen, updated_after_ms=0) == ["a", "b", "c"]
    assert names(store, pen) == ["a", "b", "c", "no state"]
    pen.set_state("c", b"again", ENQUEUED_AT_MS + 9)
    pen.write(store)
    assert names(store, pen, updated_after_ms=ENQUEUED_AT_MS + 2) == ["c"]


def test_a_list_of_sessions_can_be_read_in_parts(store: MessageStore, pen: Pen) -> None:
    for at in range(7):
        pen.append([b"x"], session_id=f"s{at * 5 % 7}")
    pen.write(store)

    parts = [
        store.list_sessions(pen.fragment, updated_after_ms=-1, skip=skip, count_max=3)
        for skip in (0, 3, 6, 9)
    ]

    assert parts == [["s0", "s1", "s2"], ["s3", "s4", "s5"], ["s6"], []]


def test_a_damaged_state_is_told_and_stops_nothing_else(case: StoreCase, pen: Pen) -> None:
    """D4: never served, never fatal to the rest; setting it anew mends it."""
    pen.append([b"1"], session_id="red")
    pen.set_state("red", b"state")
    pen.set_state("blue", b"whole")
    pen.write(case.store)
    case.damage_state(pen.fragment, "red")

    with pytest.raises(StoreError, match="damaged"):
        case.store.read_state(pen.fragment, "red")

    assert case.store.read_state(pen.fragment, "blue") == b"whole"
    assert case.store.load(pen.fragment).counters.states == 2
    assert len(session(case.store, pen, "red")) == 1
    pen.set_state("red", b"anew")
    pen.write(case.store)
    assert case.store.read_state(pen.fragment, "red") == b"anew"


def test_a_damaged_message_of_a_session_is_named_and_can_be_set_aside(
    case: StoreCase, pen: Pen
) -> None:
    pen.append([b"1", b"2", b"3"], session_id="red")
    pen.write(case.store)
    case.damage(pen.fragment, pen.sequence(1))

    page = case.store.read_session(pen.fragment, "red", after=0, count_max=9, bytes_max=BYTES_MAX)
    assert page.damaged == [pen.sequence(1)]
    assert numbers(page.entries) == [pen.sequence(2), pen.sequence(3)]

    aside = Entry(pen.sequence(1), None, 0, enqueued_at_ms=NEVER_MS, state=SET_ASIDE)
    pen.counters.lines[MAIN_LINE].count -= 1
    pen.counters.set_aside += 1
    pen.update([aside])
    pen.write(case.store)
    assert numbers(session(case.store, pen, "red")) == [pen.sequence(2), pen.sequence(3)]
    assert waiting(case.store, pen) == [(2, "red")]


def test_what_happens_to_a_session_of_a_deleted_fragment_concerns_no_other(
    case: StoreCase, pen: Pen
) -> None:
    case.store.create([OTHER])
    other = Pen(OTHER)
    for at in range(150):
        pen.append([b"x"], session_id=f"s{at}")
        pen.set_state(f"t{at}", b"state")
        other.append([b"y"], session_id=f"s{at}")
    other.set_state("t1", b"kept")
    case.store.commit([pen.commit(), other.commit()])
    case.store.delete([pen.fragment])

    for attempt in (
        lambda: case.store.read_session(
            pen.fragment, "s1", after=0, count_max=1, bytes_max=BYTES_MAX
        ),
        lambda: case.store.read_sessions(pen.fragment, after=0, count_max=1),
        lambda: case.store.read_state(pen.fragment, "t1"),
        lambda: case.store.read_entries(pen.fragment, [1], bytes_max=1),
        lambda: names(case.store, pen),
    ):
        with pytest.raises(UnknownFragment):
            attempt()
    case.store.create([pen.fragment])
    anew = Pen(pen.fragment)
    anew.append([b"new"], session_id="s1")
    anew.write(case.store)
    for _ in range(100):
        if not case.store.sweep():
            break
    case.reopen()

    assert not case.store.sweep()
    assert waiting(case.store, anew) == [(1, "s1")]
    assert names(case.store, anew) == ["s1"]
    assert case.store.read_state(pen.fragment, "t1") is None
    assert len(waiting(case.store, other)) == 150
    assert case.store.read_state(OTHER, "t1") == b"kept"
