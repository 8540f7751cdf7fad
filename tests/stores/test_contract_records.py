"""What `MessageStore` promises about the records that a fragment keeps, for every store."""

import pytest

from shardbus.stores.base.store import FragmentId, MessageStore, StoreError
from tests.stores.harness import Pen, StoreCase, read_all

OTHER = FragmentId(7, 4)


def test_a_new_fragment_has_no_records(store: MessageStore, pen: Pen) -> None:
    assert store.load(pen.fragment).records == {}


def test_records_are_found_by_kind_and_key_after_reopening(case: StoreCase, pen: Pen) -> None:
    pen.record(1, b"key", b"one")
    pen.record(2, b"key", b"two")
    pen.record(1, b"", b"")
    pen.record(1, bytes(range(256)), b"\x00;")
    pen.append([b"message"])
    pen.write(case.store)

    case.reopen()

    assert case.store.load(pen.fragment).records == {
        (1, b"key"): b"one",
        (2, b"key"): b"two",
        (1, b""): b"",
        (1, bytes(range(256))): b"\x00;",
    }
    assert [entry.payload for entry in read_all(case.store, pen.fragment)] == [b"message"]


def test_the_last_word_about_a_record_counts(store: MessageStore, pen: Pen) -> None:
    pen.record(1, b"a", b"old")
    pen.record(1, b"b", b"old")
    pen.record(1, b"gone", b"old")
    pen.write(store)

    pen.record(1, b"a", b"newer")
    pen.record(1, b"a", b"newest")
    pen.record(1, b"b", None)
    pen.record(1, b"b", b"again")
    pen.record(1, b"gone", None)
    pen.record(1, b"never there", None)
    pen.record(1, b"short lived", b"x")
    pen.record(1, b"short lived", None)
    pen.write(store)

    assert store.load(pen.fragment).records == {(1, b"a"): b"newest", (1, b"b"): b"again"}


def test_records_belong_to_their_fragment(store: MessageStore, pen: Pen) -> None:
    other = Pen(OTHER)
    store.create([OTHER])
    pen.record(1, b"key", b"mine")
    other.record(1, b"key", b"theirs")
    store.commit([pen.commit(), other.commit()])

    other.record(1, b"key", None)
    other.write(store)

    assert store.load(pen.fragment).records == {(1, b"key"): b"mine"}
    assert store.load(OTHER).records == {}


def test_a_record_may_be_as_large_as_a_prepared_transaction(case: StoreCase, pen: Pen) -> None:
    data = bytes(range(256)) * (16 * 4096)
    pen.record(3, b"transaction", data)
    pen.write(case.store)

    case.reopen()

    assert case.store.load(pen.fragment).records == {(3, b"transaction"): data}


def test_a_refused_commit_leaves_the_records_as_they_were(store: MessageStore, pen: Pen) -> None:
    pen.append([b"one"])
    pen.record(1, b"key", b"kept")
    pen.write(store)
    late = Pen(pen.fragment)
    late.record(1, b"key", b"never")
    late.append([b"with a used number"])

    with pytest.raises(StoreError):
        late.write(store)

    assert store.load(pen.fragment).records == {(1, b"key"): b"kept"}


def test_a_deleted_fragment_leaves_no_records_to_its_successor(case: StoreCase, pen: Pen) -> None:
    for at in range(40):
        pen.record(1, b"%d" % at, b"old")
    pen.write(case.store)
    case.store.delete([pen.fragment])

    case.store.create([pen.fragment])
    for _ in range(10):
        case.store.sweep()
    assert not case.store.sweep()
    case.reopen()

    assert case.store.load(pen.fragment).records == {}


def test_a_fragment_with_a_damaged_record_cannot_be_loaded(case: StoreCase, pen: Pen) -> None:
    """Without it nobody knows what was promised; written anew, or removed, it is sound again."""
    case.store.create([OTHER])
    pen.record(1, b"good", b"1")
    pen.record(9, b"bad", b"2")
    pen.append([b"message"])
    pen.write(case.store)
    case.damage_record(pen.fragment, 9, b"bad")

    with pytest.raises(StoreError, match="damaged"):
        case.store.load(pen.fragment)
    assert case.store.load(OTHER).records == {}
    assert [entry.payload for entry in read_all(case.store, pen.fragment)] == [b"message"]

    pen.record(9, b"bad", b"3")
    pen.write(case.store)
    assert case.store.load(pen.fragment).records == {(1, b"good"): b"1", (9, b"bad"): b"3"}


def test_a_store_tells_which_fragments_keep_records_of_a_kind(
    store: MessageStore, pen: Pen
) -> None:
    other = Pen(OTHER)
    store.create([OTHER])
    assert store.recorded([1, 2]) == []
    pen.record(1, b"a", b"x")
    pen.record(1, b"b", b"x")
    other.record(3, b"a", b"x")
    store.commit([pen.commit(), other.commit()])

    assert store.recorded([1, 2]) == [pen.fragment]
    assert set(store.recorded([1, 3])) == {pen.fragment, OTHER}
    assert store.recorded([2]) == []

    pen.record(1, b"a", None)
    pen.record(1, b"b", None)
    pen.write(store)
    store.delete([OTHER])
    assert store.recorded([1, 2, 3]) == []
