"""`check` and `repair` of payloads that several fragments have in common."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.stores.base.check import StoreReport
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen, Scalpel, read_all, without_payload

SUBSCRIPTIONS = [FragmentId(20 + at, 0) for at in range(4)]
EVERY = 12
SIZE = 700
FLIPS = 60
Shelf = dict[tuple[int, int], bytes]
"""What is served, by entity and counter."""


def payload_of(counter: int) -> bytes:
    return b"%04d" % counter * (SIZE // 4)


class Published:
    """Three commits to four subscriptions; the last of them was deleted and is not swept yet.

    The first gets everything, the second every third message, the third everything with sessions.
    Some messages are done, some dead letters.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shelf: Shelf = {}
        store = SqliteStore(path, durability="relaxed", recent_max=4)
        store.create(SUBSCRIPTIONS)
        pens = [Pen(fragment) for fragment in SUBSCRIPTIONS]
        for start in (1, 1 + EVERY, 1 + 2 * EVERY):
            self._publish(store, pens, range(start, start + EVERY))
        store.delete(SUBSCRIPTIONS[3:])
        store.close()

    def _publish(self, store: SqliteStore, pens: list[Pen], counters: range) -> None:
        payloads = {counter: payload_of(counter) for counter in counters}
        chosen = [counters, counters[::3], counters, counters]
        for at, (pen, mine) in enumerate(zip(pens, chosen, strict=True)):
            entries = pen.append(
                [payloads[counter] for counter in mine],
                counters=mine,
                session_id="red" if at == 2 else None,
            )
            self.shelf |= {(pen.fragment.entity_id, c): payloads[c] for c in mine}
            if at == 0:
                pen.move(entries[:1], line=DEAD_LETTER_LINE)
        store.commit([pen.commit() for pen in pens])
        done = read_all(store, pens[0].fragment)[-4:-2]
        pens[0].move(without_payload(done[:1]), line=DEAD_LETTER_LINE)
        pens[0].remove(done[1:])
        pens[0].write(store)
        del self.shelf[pens[0].fragment.entity_id, done[1].sequence_number]
        for counter in counters:
            del self.shelf[pens[3].fragment.entity_id, counter]


@pytest.fixture
def store(tmp_path: Path) -> Published:
    return Published(tmp_path / "broker-0.db")


def checked(path: Path) -> StoreReport:
    return check_store(path, lambda _: None)


def served(path: Path) -> Shelf:
    found: Shelf = {}
    live = SqliteStore(path)
    try:
        for fragment in SUBSCRIPTIONS[:3]:
            for line in (MAIN_LINE, DEAD_LETTER_LINE):
                for entry in read_all(live, fragment, line):
                    assert entry.payload is not None
                    found[fragment.entity_id, entry.sequence_number] = entry.payload
        return found
    finally:
        live.close()


def lost_in(report: StoreReport) -> set[tuple[int, int]]:
    return {
        (damage.entity_id, number)
        for damage in report.damages
        for first, last in damage.ranges
        for number in range(first, last + 1)
    }


def assert_repaired(store: Published, lost: set[tuple[int, int]]) -> None:
    """Exactly these are told and set aside, the rest is served and still stored once."""
    assert lost_in(checked(store.path)) == lost
    outcome = repair_store(store.path, lambda _: None)

    assert outcome.kept_as == "broker-0.db.damaged-1"
    assert [damage.what for damage in checked(store.path).damages] == []
    assert served(store.path) == {
        name: payload for name, payload in store.shelf.items() if name not in lost
    }
    with Scalpel(store.path) as scalpel:
        counted = scalpel.execute("SELECT part, count(*) FROM chunk_part GROUP BY part")
        assert scalpel.execute("SELECT part, users FROM part_users") == counted
        assert scalpel.number("SELECT sum(length(body)) FROM part") <= 3 * EVERY * SIZE


def test_a_sound_store_with_shared_payloads_is_found_sound(store: Published) -> None:
    report = checked(store.path)

    assert [damage.what for damage in report.damages] == []
    assert report.messages == len(store.shelf)
    assert served(store.path) == store.shelf


def test_a_damaged_payload_is_told_for_each_of_its_users(store: Published) -> None:
    """D4: 18 is not among those of the second subscription, 16 is."""
    with Scalpel(store.path) as scalpel:
        scalpel.flip_payload(SUBSCRIPTIONS[0], 18)
        scalpel.flip_payload(SUBSCRIPTIONS[2], 16)

    assert_repaired(store, {(20, 18), (22, 18), (20, 16), (21, 16), (22, 16)})


def test_a_missing_part_costs_its_messages(store: Published) -> None:
    with Scalpel(store.path) as scalpel:
        chunk, _ = scalpel.chunk_of(SUBSCRIPTIONS[1], 16)
        sql = "SELECT min(part) FROM chunk_part WHERE chunk = ?"
        scalpel.execute("DELETE FROM part WHERE id = ?", scalpel.number(sql, chunk))

    lost = lost_in(checked(store.path))
    assert {entity for entity, _ in lost} == {20, 21, 22}
    assert_repaired(store, lost)


def test_a_damaged_head_costs_one_subscription(store: Published) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.flip_head(SUBSCRIPTIONS[1], 16, 20)

    assert_repaired(store, {(21, 13), (21, 16), (21, 19), (21, 22)})
    with Scalpel(store.path) as scalpel:
        [(body,)] = scalpel.execute("SELECT body FROM evidence")
    assert body == b"".join(payload_of(counter) for counter in (13, 16, 19, 22))


def test_a_damaged_gap_costs_messages_and_not_the_numbers_between(store: Published) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.flip_gap(SUBSCRIPTIONS[1], 16)

    assert_repaired(store, {(21, 13), (21, 16), (21, 19), (21, 22)})


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE part_users SET users = users + 1 WHERE part = 2", "is recorded with"),
        ("UPDATE part_users SET users = users - 1 WHERE part = 2", "is recorded with"),
        ("INSERT INTO part VALUES (99, x'00')", "part 99 belongs to no chunk"),
        ("INSERT INTO part_users VALUES (99, 1)", "part 99 is recorded with 1 users, but has 0"),
        ("UPDATE chunk SET body = '[3]' WHERE id = {}", "lists other parts than its"),
        ("UPDATE chunk SET body = '[' WHERE id = {}", "lists other parts than its"),
        ("UPDATE chunk SET body = x'00' WHERE id = {}", "lists other parts than its"),
        ("DELETE FROM gap WHERE chunk = {}", "does not say which numbers it lacks"),
        ("UPDATE fragment SET has_parts = 0", "has chunks with parts, but its row does not say so"),
    ],
)
def test_what_is_counted_or_listed_wrongly_costs_nothing(
    store: Published, sql: str, what: str
) -> None:
    with Scalpel(store.path) as scalpel:
        chunk, _ = scalpel.chunk_of(SUBSCRIPTIONS[1], 16)
        scalpel.execute(sql.format(chunk))

    damages = checked(store.path).damages
    assert any(what in damage.what for damage in damages)
    assert not any(damage.is_loss for damage in damages)
    assert_repaired(store, set())


def test_a_repaired_store_lets_parts_go_with_their_last_user(store: Published) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.execute("UPDATE part_users SET users = 77")
    repair_store(store.path, lambda _: None)
    live = SqliteStore(store.path)

    for fragment in SUBSCRIPTIONS[:3]:
        pen = Pen(fragment, live.load(fragment).counters)
        for line in (MAIN_LINE, DEAD_LETTER_LINE):
            pen.remove(read_all(live, fragment, line))
        pen.write(live)

    live.close()
    with Scalpel(store.path) as scalpel:
        for table in ("part", "part_users", "chunk", "gap", "entry", "place", "recent"):
            assert scalpel.number(f"SELECT count(*) FROM {table}") == 0


def test_a_lost_page_of_rows_costs_nothing_and_the_bytes_stay_shared(store: Published) -> None:
    """Not for the subscription with sessions, whose messages are no part of `place`."""
    with Scalpel(store.path) as scalpel:
        scalpel.execute(
            "INSERT INTO place SELECT first, chunk, count, size, due_at, is_mixed FROM recent"
        )
        scalpel.execute("DELETE FROM recent")
        scalpel.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = scalpel.number("SELECT rootpage FROM sqlite_schema WHERE name = 'place'")
    content = bytearray(store.path.read_bytes())
    content[(page - 1) * 8192 : (page - 1) * 8192 + 8] = b"\xff" * 8
    store.path.write_bytes(bytes(content))
    assert checked(store.path).is_torn

    repair_store(store.path, lambda _: None)

    assert [damage.what for damage in checked(store.path).damages] == []
    assert served(store.path) == store.shelf
    with Scalpel(store.path) as scalpel:
        scalpel.assert_parts_agree()
        assert scalpel.number("SELECT sum(length(body)) FROM part") == 3 * EVERY * SIZE


def test_a_chunk_that_lost_its_row_is_kept_as_evidence_with_its_bytes(store: Published) -> None:
    with Scalpel(store.path) as scalpel:
        _, first = scalpel.chunk_of(SUBSCRIPTIONS[1], 16)
        scalpel.execute("DELETE FROM place WHERE first = ?", first)
        scalpel.execute("DELETE FROM recent WHERE first = ?", first)

    assert any("no row refers to" in damage.what for damage in checked(store.path).damages)
    repair_store(store.path, lambda _: None)

    assert [damage.what for damage in checked(store.path).damages] == []
    with Scalpel(store.path) as scalpel:
        [(body,)] = scalpel.execute("SELECT body FROM evidence WHERE key = ?", first)
    assert body == b"".join(payload_of(counter) for counter in (13, 16, 19, 22))


def test_whatever_byte_is_flipped_check_sees_it_or_it_does_no_harm(tmp_path: Path) -> None:
    """Any bit of the file: after a repair nothing wrong is served and every loss was reported."""
    sound = Published(tmp_path / "sound.db")
    content = sound.path.read_bytes()
    dice = random.Random(4)
    outcomes = {"sound": 0, "repaired": 0, "left": 0}
    for attempt in range(FLIPS):
        spoilt = bytearray(content)
        spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
        folder = tmp_path / str(attempt)
        folder.mkdir()
        path = folder / "broker-0.db"
        path.write_bytes(bytes(spoilt))
        outcomes[_outcome(path, sound.shelf)] += 1

    assert outcomes["sound"] and outcomes["repaired"]
    assert outcomes["left"] <= FLIPS // 6


def _outcome(path: Path, shelf: Shelf) -> str:
    outcome = repair_store(path, lambda _: None)
    if outcome.report.is_sound():
        assert served(path) == shelf
        return "sound"
    if not outcome.kept_as:
        return "left"
    found = served(path)
    assert [damage.what for damage in checked(path).damages] == []
    assert set(found) <= set(shelf)
    missing = {name for name, payload in shelf.items() if found.get(name) != payload}
    if not outcome.report.is_torn:
        assert missing <= lost_in(outcome.report)
    return "repaired"
