"""What `MessageStore` promises about the pieces of stages, for every store."""

import pytest

from shardbus.core.fragment.change import Adopt, StageDrop, StagePut
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError
from tests.stores.harness import Pen, Scalpel, SqliteCase, StoreCase, read_all

OTHER = FragmentId(7, 4)


def test_a_stage_that_was_never_put_has_no_pieces(store: MessageStore, pen: Pen) -> None:
    assert store.read_stage(pen.fragment, b"a") == {}


def test_pieces_are_read_by_stage_in_rising_order_after_reopening(
    case: StoreCase, pen: Pen
) -> None:
    large = bytes(range(256)) * 4096
    pen.changes += [StagePut(b"a", 9, b"nine"), StagePut(b"a", 1, large), StagePut(b"b", 1, b"")]
    pen.changes.append(StagePut(bytes(range(256)), (1 << 63) - 1, b"\x00;"))
    pen.append([b"message"])
    pen.write(case.store)

    case.reopen()

    store = case.store
    assert list(store.read_stage(pen.fragment, b"a").items()) == [(1, large), (9, b"nine")]
    assert store.read_stage(pen.fragment, b"b") == {1: b""}
    assert store.read_stage(pen.fragment, bytes(range(256))) == {(1 << 63) - 1: b"\x00;"}
    assert [entry.payload for entry in read_all(store, pen.fragment)] == [b"message"]


def test_a_piece_that_is_put_again_is_replaced(store: MessageStore, pen: Pen) -> None:
    pen.changes.append(StagePut(b"a", 1, b"old"))
    pen.write(store)

    pen.changes.append(StagePut(b"a", 1, b"new"))
    pen.write(store)

    assert store.read_stage(pen.fragment, b"a") == {1: b"new"}


def test_a_dropped_stage_has_no_pieces_and_may_begin_anew(store: MessageStore, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", 1, b"old"), StagePut(b"a", 2, b"old"), StagePut(b"b", 1, b"b")]
    pen.write(store)

    pen.changes += [StageDrop(b"a"), StageDrop(b"never there"), StagePut(b"a", 3, b"new")]
    pen.changes += [StagePut(b"c", 1, b"short lived"), StageDrop(b"c")]
    pen.write(store)

    assert store.read_stage(pen.fragment, b"a") == {3: b"new"}
    assert store.read_stage(pen.fragment, b"b") == {1: b"b"}
    assert store.read_stage(pen.fragment, b"c") == {}


def test_the_first_pieces_of_a_stage_go_and_the_others_stay(case: StoreCase, pen: Pen) -> None:
    """Those that a bite has sent, some of them adopted by it."""
    for piece in (1, 2, 5):
        pen.changes.append(StagePut(b"a", piece, b"%d" % piece))
    pen.changes += [StagePut(b"a", 4, b"", [b"plain"]), StagePut(b"a", 7, b"", [b"later"])]
    pen.changes += [StagePut(b"a", 6, b"", [b"lost"]), StagePut(b"b", 1, b"other")]
    pen.write(case.store)

    pen.changes.append(StageDrop(b"a", 2))
    adopt(pen, 4, 1)
    pen.changes.append(StageDrop(b"a", 6))
    pen.write(case.store)
    case.reopen()

    assert case.store.read_stage(pen.fragment, b"a") == {7: b""}
    assert case.store.read_stage(pen.fragment, b"b") == {1: b"other"}
    assert [entry.payload for entry in read_all(case.store, pen.fragment)] == [b"plain"]
    adopt(pen, 7, 1)
    pen.write(case.store)
    payloads = [entry.payload for entry in read_all(case.store, pen.fragment)]
    assert payloads == [b"plain", b"later"]
    if isinstance(case, SqliteCase):
        with Scalpel(case.path) as scalpel:
            scalpel.assert_parts_agree()
            assert scalpel.execute("SELECT count(*) FROM part") == [(2,)]


def test_stages_belong_to_their_fragment_and_go_with_it(store: MessageStore, pen: Pen) -> None:
    other = Pen(OTHER)
    store.create([OTHER])
    pen.changes.append(StagePut(b"a", 1, b"mine"))
    other.changes += [StagePut(b"a", piece, b"theirs") for piece in range(1, 100)]
    store.commit([pen.commit(), other.commit()])

    store.delete([OTHER])
    while store.sweep():
        pass
    store.create([OTHER])

    assert store.read_stage(pen.fragment, b"a") == {1: b"mine"}
    assert store.read_stage(OTHER, b"a") == {}


def test_a_refused_commit_leaves_stages_as_they_were(store: MessageStore, pen: Pen) -> None:
    pen.append([b"one"])
    pen.changes += [StagePut(b"a", 1, b"kept"), StagePut(b"b", 1, b"kept")]
    pen.write(store)
    stale = Pen(pen.fragment)
    stale.append([b"one"])
    stale.changes += [StageDrop(b"a"), StagePut(b"b", 2, b"never")]

    with pytest.raises(StoreError):
        stale.write(store)

    assert store.read_stage(pen.fragment, b"a") == {1: b"kept"}
    assert store.read_stage(pen.fragment, b"b") == {1: b"kept"}


def test_a_large_commit_of_messages_and_stages_is_whole(case: StoreCase, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", piece, b"%d" % piece) for piece in range(1, 700)]
    pen.append([b"x"] * 3_000)
    pen.write(case.store)

    case.reopen()

    assert len(case.store.read_stage(pen.fragment, b"a")) == 699
    assert len(read_all(case.store, pen.fragment)) == 3_000


def test_a_damaged_piece_is_told_and_the_others_are_read(case: StoreCase, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", 1, b"sound"), StagePut(b"a", 2, b"bad"), StagePut(b"b", 2, b"b")]
    pen.write(case.store)

    case.damage_piece(pen.fragment, b"a", 2)

    assert case.store.read_stage(pen.fragment, b"a") == {1: b"sound", 2: None}
    assert case.store.read_stage(pen.fragment, b"b") == {2: b"b"}
    pen.changes.append(StagePut(b"a", 2, b"mended"))
    pen.write(case.store)
    assert case.store.read_stage(pen.fragment, b"a") == {1: b"sound", 2: b"mended"}


# Payloads that are kept beside a piece, and become messages where they lie.

PAYLOADS = [b"%d:" % number + bytes(1_000) for number in range(700)]


def adopt(pen: Pen, piece: int, count: int, expires_at_ms: list[int] | None = None) -> int:
    """Publish a piece of stage `a`; the first of the numbers."""
    first = pen.counters.last_counter + 1
    pen.counters.last_counter += count
    line = pen.counters.lines[MAIN_LINE]
    line.count += count
    expiries_ms = [NEVER_MS] if expires_at_ms is None else expires_at_ms
    pen.changes.append(Adopt(b"a", piece, pen.sequence(first), count, 5_000, expiries_ms))
    return pen.sequence(first)


def test_payloads_beside_a_piece_are_seen_by_nobody(case: StoreCase, pen: Pen) -> None:
    pen.changes.append(StagePut(b"a", 1, b"about them", PAYLOADS))
    pen.write(case.store)

    case.reopen()

    assert case.store.read_stage(pen.fragment, b"a") == {1: b"about them"}
    assert case.store.check_stage(pen.fragment, b"a") == []
    assert read_all(case.store, pen.fragment) == []


def test_adopted_payloads_are_messages_like_others(case: StoreCase, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", 1, b"", PAYLOADS), StagePut(b"a", 2, b"", [b"", b"short"])]
    pen.write(case.store)

    pen.append([b"before"])
    second = adopt(pen, 2, 2)
    pen.append([b"between"])
    adopt(pen, 1, len(PAYLOADS))
    pen.changes.append(StageDrop(b"a"))
    pen.append([b"after"])
    pen.write(case.store)
    case.reopen()

    found = read_all(case.store, pen.fragment)
    expected = [b"before", b"", b"short", b"between", *PAYLOADS, b"after"]
    assert [entry.payload for entry in found] == expected
    assert [entry.sequence_number for entry in found] == [
        pen.sequence(counter) for counter in range(1, len(expected) + 1)
    ]
    assert [(entry.enqueued_at_ms, entry.size_bytes) for entry in found[1:3]] == [
        (5_000, 0),
        (5_000, 5),
    ]
    assert case.store.read_payloads(pen.fragment, [second + 1]) == [b"short"]
    assert case.store.read_stage(pen.fragment, b"a") == {}


def test_adopted_messages_expire_each_in_its_time(store: MessageStore, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", 1, b"", [b"x"] * 3), StagePut(b"a", 2, b"", [b"y"] * 2)]
    pen.write(store)

    first = adopt(pen, 1, 3, [9_000, NEVER_MS, 7_000])
    second = adopt(pen, 2, 2, [8_000])
    pen.write(store)

    assert store.load(pen.fragment).next_due_ms <= 7_000
    due = store.read_due(pen.fragment, now_ms=8_500, count_max=9, bytes_max=1 << 20)
    numbers = sorted(entry.sequence_number for entry in due.entries)
    assert numbers == [first + 2, second, second + 1]
    assert due.next_due_ms == 9_000


def test_adopted_messages_leave_one_by_one(case: StoreCase, pen: Pen) -> None:
    pen.changes.append(StagePut(b"a", 1, b"", PAYLOADS[:5]))
    pen.write(case.store)
    adopt(pen, 1, 5)
    pen.write(case.store)
    entries = read_all(case.store, pen.fragment)

    pen.move(entries[:1], line=DEAD_LETTER_LINE)
    pen.remove(entries[1:2])
    pen.write(case.store)
    case.reopen()

    assert [entry.payload for entry in read_all(case.store, pen.fragment)] == PAYLOADS[2:5]
    dead = read_all(case.store, pen.fragment, DEAD_LETTER_LINE)
    assert [entry.payload for entry in dead] == PAYLOADS[:1]
    pen.remove(entries[2:])
    pen.remove(dead)
    pen.write(case.store)
    assert read_all(case.store, pen.fragment) == []


def test_what_is_not_there_cannot_be_adopted(case: StoreCase, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", 1, b"", [b"one"]), StagePut(b"a", 2, b"packed")]
    pen.write(case.store)

    for piece, count in ((1, 2), (2, 1), (3, 1)):
        wrong = Pen(pen.fragment)
        wrong.append([b"with it"])
        adopt(wrong, piece, count)
        with pytest.raises(StoreError):
            wrong.write(case.store)

    assert read_all(case.store, pen.fragment) == []
    assert case.store.read_stage(pen.fragment, b"a") == {1: b"", 2: b"packed"}
    adopt(pen, 1, 1)
    pen.write(case.store)
    assert [entry.payload for entry in read_all(case.store, pen.fragment)] == [b"one"]


def test_numbers_that_were_used_are_not_given_to_what_is_adopted(
    store: MessageStore, pen: Pen
) -> None:
    pen.changes.append(StagePut(b"a", 1, b"", [b"one"]))
    pen.append([b"used"])
    pen.write(store)
    stale = Pen(pen.fragment)

    adopt(stale, 1, 1)
    with pytest.raises(StoreError):
        stale.write(store)

    assert [entry.payload for entry in read_all(store, pen.fragment)] == [b"used"]


def test_a_damaged_payload_beside_a_piece_is_told(case: StoreCase, pen: Pen) -> None:
    """Before publishing, of its piece; afterwards, as of any message."""
    pen.changes += [StagePut(b"a", piece, b"", [b"first", b"second"]) for piece in (1, 2, 3)]
    pen.write(case.store)

    case.damage_staged(pen.fragment, b"a", 2)

    assert case.store.check_stage(pen.fragment, b"a") == [2]
    assert case.store.read_stage(pen.fragment, b"a") == {1: b"", 2: b"", 3: b""}
    number = adopt(pen, 2, 2)
    pen.write(case.store)
    page = case.store.read_line(pen.fragment, MAIN_LINE, after=0, count_max=9, bytes_max=1 << 20)
    assert [entry.payload for entry in page.entries] == [b"second"]
    assert page.damaged == [number]
    assert case.store.check_stage(pen.fragment, b"a") == []


def test_payloads_go_with_their_piece_their_stage_and_their_fragment(
    case: StoreCase, pen: Pen
) -> None:
    other = Pen(OTHER)
    case.store.create([OTHER])
    pen.changes += [StagePut(b"a", 1, b"old", [b"old"]), StagePut(b"b", 1, b"", PAYLOADS)]
    other.changes += [StagePut(b"a", piece, b"", [b"theirs"]) for piece in range(1, 40)]
    case.store.commit([pen.commit(), other.commit()])

    pen.changes += [StagePut(b"a", 1, b"new", [b"new"]), StageDrop(b"b")]
    pen.write(case.store)
    case.store.delete([OTHER])
    while case.store.sweep():
        pass
    adopt(pen, 1, 1)
    pen.write(case.store)

    assert [entry.payload for entry in read_all(case.store, pen.fragment)] == [b"new"]
    assert case.store.read_stage(pen.fragment, b"b") == {}
    if isinstance(case, SqliteCase):
        with Scalpel(case.path) as scalpel:
            scalpel.assert_parts_agree()
            assert scalpel.execute("SELECT count(*) FROM part") == [(1,)]


def test_a_large_publication_is_one_commit(case: StoreCase, pen: Pen) -> None:
    """More chunks than are listed as recent, and more pieces than one statement takes."""
    for piece in range(1, 21):
        pen.changes.append(StagePut(b"a", piece, b"", [b"%d" % piece] * 3_000))
        pen.write(case.store)

    for piece in range(1, 21):
        adopt(pen, piece, 3_000)
    pen.changes.append(StageDrop(b"a"))
    pen.write(case.store)
    case.reopen()

    last = pen.sequence(60_000)
    page = case.store.read_line(
        pen.fragment, MAIN_LINE, after=last - 3, count_max=9, bytes_max=1 << 20
    )
    assert [entry.payload for entry in page.entries] == [b"20"] * 3 and page.is_end


def test_some_pieces_of_a_stage_are_read_and_checked(case: StoreCase, pen: Pen) -> None:
    for piece in (1, 2, 5, 9):
        pen.changes.append(StagePut(b"a", piece, b"%d" % piece, [b"first"]))
    pen.write(case.store)
    for piece in (1, 5, 9):
        case.damage_staged(pen.fragment, b"a", piece)
    store = case.store

    some = store.read_stage(pen.fragment, b"a", after=1, until=5)
    assert list(some.items()) == [(2, b"2"), (5, b"5")]
    assert store.read_stage(pen.fragment, b"a", after=9) == {}
    assert store.check_stage(pen.fragment, b"a", after=1, until=5) == [5]
    assert store.check_stage(pen.fragment, b"a", after=5) == [9]
