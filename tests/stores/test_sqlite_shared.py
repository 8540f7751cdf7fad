"""What several fragments have in common is in the file once, and goes with its last user (D2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.core.message import DEAD_LETTER_LINE, DEFERRED, MAIN_LINE, SET_ASIDE, Entry
from shardbus.core.properties import pack
from shardbus.stores.base.store import FragmentId
from shardbus.stores.chunked.breath import WORK_MAX
from shardbus.stores.chunked.draft import PART_BYTES_MIN
from tests.stores.harness import Pen, Scalpel, SqliteCase, numbers, read_all, without_payload

PAYLOADS = [bytes([at]) * 1_000 for at in range(1, 21)]
TABLES = ("chunk", "recent", "place", "gap", "entry", "part", "part_users")


@pytest.fixture
def case(tmp_path: Path) -> Iterator[SqliteCase]:
    opened = SqliteCase(tmp_path / "store.db", "relaxed", recent_max=8)
    yield opened
    opened.close()


@pytest.fixture
def pens(case: SqliteCase) -> list[Pen]:
    made = [Pen(FragmentId(10 + at, 0)) for at in range(5)]
    case.store.create([pen.fragment for pen in made])
    return made


def publish(case: SqliteCase, pens: list[Pen], payloads: list[bytes]) -> list[list[Entry]]:
    entries = [pen.append(payloads) for pen in pens]
    case.store.commit([pen.commit() for pen in pens])
    return entries


def number(case: SqliteCase, sql: str) -> int:
    with Scalpel(case.path) as scalpel:
        return scalpel.number(sql)


def rows(case: SqliteCase) -> dict[str, int]:
    return {table: number(case, f"SELECT count(*) FROM {table}") for table in TABLES}


def payloads_of(case: SqliteCase, pen: Pen, line: int = MAIN_LINE) -> list[bytes | None]:
    return [entry.payload for entry in read_all(case.store, pen.fragment, line)]


def assert_parts_agree(case: SqliteCase) -> None:
    with Scalpel(case.path) as scalpel:
        scalpel.assert_parts_agree()


@pytest.mark.parametrize("is_common", [True, False])
def test_a_large_commit_lets_other_threads_run(
    case: SqliteCase, pens: list[Pen], monkeypatch: pytest.MonkeyPatch, is_common: bool
) -> None:
    """Compiled code lets none run by itself: the event loop would stand still."""
    pauses: list[float] = []
    storing = threading.get_ident()

    def pause(seconds: float) -> None:
        """Note what the storing thread asks for; threads of other tests sleep meanwhile too."""
        if threading.get_ident() == storing:
            pauses.append(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    count = 2 * WORK_MAX
    payloads = [b"x" * (PART_BYTES_MIN if is_common else 1)] * count
    publish(case, pens if is_common else pens[:1], payloads)

    assert len(pauses) >= (3 * len(pens) if is_common else 1) * count // WORK_MAX - 1
    assert set(pauses) == {0}


def test_the_bytes_are_stored_once(case: SqliteCase, pens: list[Pen]) -> None:
    publish(case, pens, PAYLOADS)

    assert number(case, "SELECT sum(length(body)) FROM part") == 20_000
    assert number(case, "SELECT sum(length(body)) FROM chunk") < 5 * 10
    assert_parts_agree(case)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 1, 3)])
@pytest.mark.parametrize("is_aged", [False, True])
def test_nothing_is_left_when_the_last_user_is_done(
    case: SqliteCase, pens: list[Pen], order: tuple[int, ...], is_aged: bool
) -> None:
    entries = publish(case, pens, PAYLOADS)
    others = publish(case, pens, PAYLOADS[:7]) if is_aged else []
    case.reopen()
    for at in order:
        for mine in (entries, others):
            if mine:
                pens[at].remove(mine[at])
        pens[at].write(case.store)
        assert_parts_agree(case)

    assert rows(case) == dict.fromkeys(TABLES, 0)


def test_a_chunk_that_keeps_a_message_keeps_its_part(case: SqliteCase, pens: list[Pen]) -> None:
    entries = publish(case, pens, PAYLOADS)
    for pen, mine in zip(pens, entries, strict=True):
        pen.remove(mine[:19])
        pen.write(case.store)

    assert number(case, "SELECT sum(length(body)) FROM part") == 20_000
    assert [payloads_of(case, pen) for pen in pens] == [PAYLOADS[19:]] * 5


def test_nobody_keeps_bytes_alive_that_are_of_no_use_to_them(
    case: SqliteCase, pens: list[Pen]
) -> None:
    """One subscription has all, one every second, one every fifth message."""
    chosen = [range(1, 21), range(2, 21, 2), range(5, 21, 5)]
    entries = [
        pen.append([PAYLOADS[c - 1] for c in counters], counters=counters)
        for pen, counters in zip(pens, chosen, strict=False)
    ]
    case.store.commit([pen.commit() for pen in pens[:3]])
    assert number(case, "SELECT sum(length(body)) FROM part") == 20_000

    for at in (0, 1):
        pens[at].remove(entries[at])
        pens[at].write(case.store)

    assert number(case, "SELECT sum(length(body)) FROM part") == 4_000
    assert payloads_of(case, pens[2]) == PAYLOADS[4::5]
    assert_parts_agree(case)


def test_a_dead_letter_keeps_nobody_elses_bytes(case: SqliteCase, pens: list[Pen]) -> None:
    entries = publish(case, pens, PAYLOADS)
    for pen, mine in zip(pens, entries, strict=True):
        pen.move(without_payload(mine[:1]), line=DEAD_LETTER_LINE)
        pen.remove(mine[1:])
        pen.write(case.store)

    assert rows(case)["part"] == 0
    assert [payloads_of(case, pen, DEAD_LETTER_LINE) for pen in pens] == [PAYLOADS[:1]] * 5
    for pen, mine in zip(pens, entries, strict=True):
        pen.remove(mine[:1])
        pen.write(case.store)
    assert rows(case) == dict.fromkeys(TABLES, 0)


def test_a_message_with_a_session_shares_its_bytes_too(case: SqliteCase, pens: list[Pen]) -> None:
    entries = [pen.append(PAYLOADS, session_id="red") for pen in pens]
    case.store.commit([pen.commit() for pen in pens])
    assert number(case, "SELECT sum(length(body)) FROM part") == 20_000

    for pen, mine in zip(pens, entries, strict=True):
        pen.move(without_payload(mine[:2]), state=DEFERRED)
        pen.write(case.store)
        assert rows(case)["part"] == 20
        pen.remove(mine[2:])
        pen.write(case.store)
    assert number(case, "SELECT sum(length(body)) FROM part") == 2_000
    for pen, mine in zip(pens, entries, strict=True):
        pen.remove(mine[:2])
        pen.write(case.store)

    assert rows(case) == dict.fromkeys(TABLES, 0)


@pytest.mark.parametrize("session_id", [None, "red"])
def test_sweeping_a_deleted_fragment_frees_what_it_alone_had(
    case: SqliteCase, pens: list[Pen], session_id: str | None
) -> None:
    for _ in range(3):
        for pen in pens[:2]:
            pen.append(PAYLOADS, session_id=session_id)
        case.store.commit([pen.commit() for pen in pens[:2]])
    for pen in pens[:2]:
        assert_parts_agree(case)
        assert number(case, "SELECT sum(length(body)) FROM part") == 60_000
        case.store.delete([pen.fragment])
        case.reopen()
        while case.store.sweep():
            assert_parts_agree(case)

    assert rows(case) == dict.fromkeys(TABLES, 0)


def test_a_local_number_used_again_knows_of_its_parts(case: SqliteCase, pens: list[Pen]) -> None:
    publish(case, pens, PAYLOADS)
    pens[3].append([b"in between"])
    case.store.delete([pens[4].fragment])
    pens[3].write(case.store)
    while case.store.sweep():
        pass
    heir = Pen(FragmentId(99, 0))
    case.store.create([heir.fragment])
    entries = publish(case, [pens[0], heir], PAYLOADS[:3])[1]
    case.reopen()
    assert number(case, "SELECT has_parts FROM fragment WHERE entity_id = 99") == 1

    heir.remove(entries)
    heir.write(case.store)

    assert_parts_agree(case)


def test_little_is_written_into_each_chunk(case: SqliteCase, pens: list[Pen]) -> None:
    """To count the users of a few bytes would cost more than the bytes."""
    publish(case, pens, [b"x" * (PART_BYTES_MIN // 2 - 1)] * 2)
    assert rows(case)["part"] == 0

    publish(case, pens, [bytes([at]) * (PART_BYTES_MIN // 2) for at in range(2)])
    assert rows(case)["part"] == 1


def test_fragments_without_payloads_in_common_have_no_parts(
    case: SqliteCase, pens: list[Pen]
) -> None:
    for at, pen in enumerate(pens):
        pen.append([bytes([at]) + payload for payload in PAYLOADS])
    case.store.commit([pen.commit() for pen in pens])

    assert rows(case)["part"] == 0
    assert number(case, "SELECT max(has_parts) FROM fragment") == 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_subscription_that_gets_every_tenth_message_gets_few_chunks(
    case: SqliteCase, pens: list[Pen], is_shared: bool
) -> None:
    """A commit of a thousand messages is one row for it, and a second for the holes."""
    counters = range(1, 1_001, 10)
    payloads = [b"%d;" % counter * 100 for counter in counters]
    for pen in pens if is_shared else pens[:1]:
        pen.append(payloads, counters=counters)
    case.store.commit([pen.commit() for pen in (pens if is_shared else pens[:1])])

    count = 5 if is_shared else 1
    found = rows(case)
    assert (found["chunk"], found["recent"], found["gap"]) == (count, count, count)
    assert found["part"] == (1 if is_shared else 0)
    assert payloads_of(case, pens[0]) == payloads


# Damage.


def damaged(case: SqliteCase, pen: Pen) -> tuple[list[int], list[int]]:
    """The counters that are served and those that are reported."""
    page = case.store.browse(pen.fragment, MAIN_LINE, start=0, count_max=999, bytes_max=1 << 30)
    assert page.is_end
    low = (1 << 43) - 1
    return [n & low for n in numbers(page.entries)], [n & low for n in page.damaged]


def test_a_damaged_payload_is_damaged_for_all_and_each_sets_aside_its_own(
    case: SqliteCase, pens: list[Pen]
) -> None:
    """D4."""
    publish(case, pens, PAYLOADS)
    case.damage(pens[2].fragment, pens[2].sequence(4))
    rest = [counter for counter in range(1, 21) if counter != 4]

    for pen in pens:
        assert damaged(case, pen) == (rest, [4])
        assert case.store.read_payloads(pen.fragment, [pen.sequence(4)]) == [None]
        pen.update([Entry(pen.sequence(4), None, 0, enqueued_at_ms=0, state=SET_ASIDE)])
        pen.write(case.store)
        assert damaged(case, pen) == (rest, [])
    for pen in pens:
        pen.changes = []
        pen.remove([Entry(pen.sequence(c), None, 1_000, enqueued_at_ms=0) for c in rest])
        pen.write(case.store)

    assert rows(case)["part"] == 0
    assert rows(case)["entry"] == 5


def test_a_missing_part_costs_its_messages_and_no_others(case: SqliteCase, pens: list[Pen]) -> None:
    pens[0].append(PAYLOADS)
    pens[1].append(PAYLOADS[:10])
    pens[2].append(PAYLOADS[10:])
    case.store.commit([pen.commit() for pen in pens[:3]])
    with Scalpel(case.path) as scalpel:
        part = scalpel.number("SELECT min(id) FROM part")
        scalpel.execute("DELETE FROM part WHERE id = ?", part)

    assert damaged(case, pens[0]) == (list(range(11, 21)), list(range(1, 11)))
    assert damaged(case, pens[1]) == ([], list(range(1, 11)))
    assert damaged(case, pens[2]) == (list(range(1, 11)), [])


def test_a_damaged_head_costs_its_fragment_alone_and_its_bytes_are_kept(
    case: SqliteCase, pens: list[Pen]
) -> None:
    entries = publish(case, pens, PAYLOADS)
    with Scalpel(case.path) as scalpel:
        scalpel.flip_head(pens[1].fragment, pens[1].sequence(1), 40)

    assert damaged(case, pens[1]) == ([], list(range(1, 21)))
    assert damaged(case, pens[0]) == (list(range(1, 21)), [])
    pens[1].update(
        [
            Entry(pens[1].sequence(c), None, 0, enqueued_at_ms=0, state=SET_ASIDE)
            for c in range(1, 21)
        ]
    )
    pens[1].write(case.store)

    with Scalpel(case.path) as scalpel:
        assert scalpel.execute("SELECT body FROM evidence") == [(b"".join(PAYLOADS),)]
        assert scalpel.number("SELECT users FROM part_users") == 4
    for at in (0, 2, 3, 4):
        pens[at].remove(entries[at])
        pens[at].write(case.store)
    assert rows(case)["part"] == 0


def test_what_lies_between_the_numbers_of_a_damaged_chunk_is_not_reported(
    case: SqliteCase, pens: list[Pen]
) -> None:
    """Nobody ever had those messages, whether the head or the gap is damaged."""
    counters = range(3, 60, 7)
    for what in ("head", "gap"):
        pen = pens[0] if what == "head" else pens[1]
        pen.append([b"%d" % c for c in counters], counters=counters)
        pen.write(case.store)
        with Scalpel(case.path) as scalpel:
            if what == "head":
                scalpel.flip_head(pen.fragment, pen.sequence(3), 20)
            else:
                scalpel.flip_gap(pen.fragment, pen.sequence(3))

        assert damaged(case, pen) == ([], list(counters))


@pytest.mark.parametrize("text", ["[1", "[]", "[77]", "[null]", "{}", "", "[[1]]"])
def test_a_damaged_list_of_parts_stops_nobody(case: SqliteCase, pens: list[Pen], text: str) -> None:
    """The head names the parts too; only the count is wrong then, and that is for `check`."""
    entries = publish(case, pens, PAYLOADS)
    with Scalpel(case.path) as scalpel:
        chunk, _ = scalpel.chunk_of(pens[0].fragment, pens[0].sequence(1))
        scalpel.execute(f"UPDATE chunk SET body = '{text}' WHERE id = ?", chunk)

    assert payloads_of(case, pens[0]) == PAYLOADS
    for pen, mine in zip(pens, entries, strict=True):
        pen.move(without_payload(mine[:1]), state=DEFERRED)
        pen.remove(mine[1:])
        pen.write(case.store)
        page = case.store.browse(pen.fragment, MAIN_LINE, start=0, count_max=9, bytes_max=1 << 20)
        assert [entry.payload for entry in page.entries] == PAYLOADS[:1]

    assert number(case, "SELECT users FROM part_users") == 1


def test_copies_that_one_fragment_gets_of_a_message_are_stored_once(
    case: SqliteCase, pens: list[Pen]
) -> None:
    """What actions set is each copy's own, the payload is not."""
    [pen, *_] = pens
    payload = bytes(10_000)
    entries = [pen.append([payload])[0] for _ in range(20)]
    for at, entry in enumerate(entries):
        entry.modified = pack({"RuleName": b"%d" % at})
    case.store.commit([pen.commit()])

    assert number(case, "SELECT sum(length(body)) FROM part") == 10_000
    assert number(case, "SELECT sum(length(body)) FROM chunk") < 20 * 10
    case.reopen()
    assert payloads_of(case, pen) == [payload] * 20
    assert_parts_agree(case)
    pen.remove(entries)
    pen.write(case.store)
    assert rows(case) == dict.fromkeys(TABLES, 0)
