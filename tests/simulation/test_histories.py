"""What each scenario of the simulation promises holds in its fixed histories, whoever dies when.

`docs/internals/simulation.md` says what each scenario plays and checks. `SEEDS=1-500` plays other
histories than the fixed ones.
"""

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

import pytest

from tests.simulation.batch_book import Batch, BatchBook, Item
from tests.simulation.batch_scenario import BatchTown, run_batches
from tests.simulation.catalogue_scenario import run_catalogue
from tests.simulation.follower_scenario import run_followers
from tests.simulation.forward_map_scenario import run_forward_maps
from tests.simulation.forward_scenario import ForwardTown, run_forwarding
from tests.simulation.map_scenario import run_id_maps, run_maps, run_topic_maps
from tests.simulation.reader_scenario import ReaderTown, run_reader_maps, run_readers
from tests.simulation.seeds import failure_of, seeds_in
from tests.simulation.sending import Violation
from tests.simulation.session_map_scenario import run_session_maps, run_topic_session_maps
from tests.simulation.session_reader_map_scenario import run_session_reader_maps
from tests.simulation.session_reader_scenario import run_session_readers
from tests.simulation.stage_scenario import StageTown, run_stage_maps, run_stages
from tests.simulation.taker_scenario import run_takers
from tests.simulation.topic_scenario import run_mapped_topics, run_topics
from tests.simulation.topic_town import TopicTown
from tests.simulation.town import Town
from tests.simulation.transaction_scenario import TransactionTown, run_transactions

CRASHES: Final = ("broker crashed", "gateway crashed")
AGAIN: Final = 7


class Histories(NamedTuple):
    """A scenario, the seeds that every run plays, and what must befall them so many times each."""

    run: Callable[[int], Town]
    seeds: str
    events: tuple[str, ...]
    times: int


ALL: Final = {
    # A batch of several keys is there whole or not at all; each key keeps its order (R49).
    "batches": Histories(
        run_batches,
        "1-20",
        ("accepted", "refused", "unknown", "spread", "in one fragment", "nowhere", *CRASHES),
        5,
    ),
    # What is forwarded arrives once, after as many hops as there are, dead letters as such (R27).
    "forwarding": Histories(
        run_forwarding,
        "1-12",
        (
            *("accepted", "refused", "unknown", "redirected accepted", *CRASHES),
            *("from a", "from p", "from t", "from d", "from n", "from h0"),
        ),
        2,
    ),
    # The same while what forwards, and what is forwarded to, gets other fragments (P6, R27).
    "forward maps": Histories(
        run_forward_maps,
        "1-12",
        (
            *("accepted", "refused", "unknown", "redirected accepted", *CRASHES),
            *("repartitioned accepted", "repartitioned refused", "repartitioned unknown"),
            *("from a", "from p", "from t", "from d", "from n", "from h0"),
        ),
        2,
    ),
    # A queue gets other fragments, and each key keeps its order, whoever dies when (P6).
    "maps": Histories(
        run_maps,
        "1-16",
        (
            *("sent accepted", "sent refused", "sent unknown", *CRASHES),
            *("repartitioned accepted", "repartitioned refused", "repartitioned unknown"),
        ),
        1,
    ),
    # The same where duplicates are detected: none is stored (P6, R24).
    "id maps": Histories(
        run_id_maps,
        "1-9",
        (
            *("sent accepted", "sent refused", "sent unknown", *CRASHES),
            *("repartitioned accepted", "repartitioned refused", "sent again accepted"),
        ),
        1,
    ),
    # The same with sessions: each has one holder, its order and its state (P6, R26).
    "session maps": Histories(
        run_session_maps,
        "1-12",
        (
            *("sent accepted", "sent refused", "sent unknown", *CRASHES),
            *("repartitioned accepted", "repartitioned refused", "repartitioned unknown"),
            *("accepted", "state read", "deferred received"),
        ),
        1,
    ),
    # The same with a topic: each subscription gets what its rules match, in order (P6, R30).
    "topic maps": Histories(
        run_topic_maps,
        "1-12",
        (
            *("sent accepted", "sent refused", "sent unknown", *CRASHES),
            *("repartitioned accepted", "repartitioned refused", "repartitioned unknown"),
            *("sent again accepted", "scheduled received"),
        ),
        1,
    ),
    # The same where the subscriptions have sessions (P6, R26).
    "subscription maps": Histories(
        run_topic_session_maps,
        "1-12",
        (
            *("sent accepted", "sent refused", *CRASHES),
            *("repartitioned accepted", "repartitioned refused", "repartitioned unknown"),
            *("accepted", "state read", "deferred received", "scheduled received"),
        ),
        1,
    ),
    # What topics promise while subscriptions and rules change holds with other maps, too (P6).
    "mapped topics": Histories(
        run_mapped_topics,
        "1-8",
        (
            *("accepted", "refused", "reached", "passed over", "plain", "stamp", "failed"),
            *("change accepted", "change refused", "duplicate dropped", *CRASHES),
            *("repartitioned accepted", "repartitioned refused", "repartitioned unknown"),
        ),
        1,
    ),
    # The same while the queues get other fragments: older messages are claimed first (P6).
    "reader maps": Histories(
        run_reader_maps,
        "1-12",
        (
            *("send accepted", "send refused", "delivered", *CRASHES),
            *("claimed", "claim completed", "claim lost", "read again", "released", "dropped"),
            *("repartitioned accepted", "repartitioned refused", "claimed after a former map"),
        ),
        3,
    ),
    # Readers and receivers of the same sessions while those get other fragments (P6, P2).
    "holder maps": Histories(
        run_session_reader_maps,
        "1-10,32,42",
        (
            *("sent accepted", "sent refused", "delivered", *CRASHES),
            *("claimed", "claim completed", "claim lost", "session claimed", "session served"),
            *("repartitioned accepted", "repartitioned refused", "claimed after a former map"),
            *("state read", "late message claimed"),
        ),
        1,
    ),
    # Readers and receivers complete together exactly what was sent, none of it twice.
    "readers": Histories(
        run_readers,
        "1-12",
        (
            *("send accepted", "send refused", "send unknown", "delivered", *CRASHES),
            *("completed by a receiver", "claimed", "claim completed", "claim lost", "read again"),
            *("released", "dropped", "in use", "taken over", "shut out"),
        ),
        3,
    ),
    # The same where messages have sessions: each has one holder, a reader or a receiver, and its
    # order (P2).
    "holders": Histories(
        run_session_readers,
        "1-10",
        (
            *("send accepted", "delivered", "completed by a receiver", *CRASHES),
            *("claimed", "claim completed", "claim lost", "read again", "released", "dropped"),
            *("session claimed", "session claimed on", "session accepted", "session refused"),
            *("session served", "taken over"),
        ),
        3,
    ),
    # Whoever lost a shared session to another does nothing with it any more, and what was locked
    # stays so for the other (P2).
    "takers": Histories(
        run_takers,
        "1-10",
        (
            *("send accepted", "delivered", "completed by a receiver", "obeyed", *CRASHES),
            *("session accepted", "session taken over", "completed for another", "session lost"),
            *("not taken over: session-lock-lost", "not taken over: session-cannot-be-locked"),
        ),
        3,
    ),
    # Every batch of a sink is visible once and whole, all of it of one attempt; a write that nobody
    # repeats, too, or not at all if it failed, and nothing of it is left (P3).
    "stages": Histories(
        run_stages,
        "1-16",
        (
            *("staged", "adopted", "bitten", "published", "published before", "refused", "unknown"),
            *("expired", "repeated", "differs", "prolonged", "rivals", "impatient", *CRASHES),
            *("write published", "write settled", "write refused", "write pending", "left alone"),
            *("forgotten", "not forgotten", "outlived"),
        ),
        3,
    ),
    # The same when the queue gets another map (P6).
    "stage maps": Histories(
        run_stage_maps,
        "1-8",
        (
            *("published", "published before", "repeated", "differs", *CRASHES),
            *("repartitioned accepted", "repartitioned refused"),
        ),
        2,
    ),
    # What a follower reads is what was stored, in order, none of it twice (P2).
    "followers": Histories(
        run_followers,
        "1-10,145,687,5107",
        (
            *("published", "adopted", "bitten", "sent", "not sent", "followed", "limited"),
            *("begun again", "not told", *CRASHES),
        ),
        3,
    ),
    # A message reaches the subscriptions whose rules take it exactly once, and no other (R28, R30).
    "topics": Histories(
        run_topics,
        "5-12,16,17,918,7090",
        (
            *("accepted", "refused", "unknown", "reached", "passed over", "plain", "stamp"),
            *("relabel", "failed", "duplicate dropped", "delivered again", "change accepted"),
            *("cancel accepted", *CRASHES),
        ),
        3,
    ),
    # A transaction is done in all of its fragments or in none; few end unknown, since the bus asks
    # until it knows (R22).
    "transactions": Histories(
        run_transactions,
        "1-20,35,40,50",
        (
            *("accepted", "refused", "unknown", "done", "not done", *CRASHES),
            *("requests accepted", "requests refused", "cancelled", "received", "gone"),
        ),
        5,
    ),
    # Nothing is gone from the stores because of what a catalogue does not know (R28). 23 and 98: a
    # fragment that is still to be made for a gateway that has gone.
    "catalogue": Histories(
        run_catalogue,
        "1-20,23,98",
        (
            *("lost", "restored", "accepted", "kept", "deleted", "orphans", "brought back"),
            *("creation accepted", "creation refused", "creation unknown", *CRASHES),
        ),
        5,
    ),
}


BOOKED: Final = BatchTown | ForwardTown | ReaderTown | StageTown | TopicTown | TransactionTown
SEEDS: Final = os.environ.get("SEEDS")


# Each history is played once, however many tests look at it.
PLAYED: Final = {name: cache(told.run) for name, told in ALL.items()}


def seen_in(town: Town) -> Counter[str]:
    """What befell the processes, and what the clients wrote into their book."""
    seen = Counter(town.events)
    if isinstance(town, BOOKED):
        seen.update(town.book.events)
    if isinstance(town, TransactionTown):
        seen.update(town.book.requests.events)
    return seen


@pytest.mark.parametrize(
    ("name", "seed"),
    [(name, seed) for name, told in ALL.items() for seed in seeds_in(SEEDS or told.seeds)],
)
def test_what_is_promised_holds(name: str, seed: int) -> None:
    """R22, R27, R28, R30, R49, P2, P3: beside each scenario stands what it is about."""
    failure = failure_of(PLAYED[name], seed)

    assert failure is None, failure


@pytest.mark.parametrize("name", ALL)
def test_one_seed_is_one_history(name: str) -> None:
    assert PLAYED[name](AGAIN).digest() == ALL[name].run(AGAIN).digest()


@pytest.mark.parametrize("name", ALL)
def test_the_fixed_histories_are_eventful(name: str) -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    told = ALL[name]
    seen: Counter[str] = Counter()
    for seed in seeds_in(told.seeds):
        seen.update(seen_in(PLAYED[name](seed)))

    for event in told.events:
        assert seen[event] >= told.times, f"{event}: {seen}"


def test_half_a_batch_is_a_violation() -> None:
    town = PLAYED["batches"](1)
    book = BatchBook()
    book.begin(1, Batch("keyed", 0, ["a", "b"]))
    book._stored[Item(1, 0)] = (town.sites[0].disk.kept.fragments()[0], 1)
    book.told(1, "unknown", is_cut_off=True)

    with pytest.raises(Violation, match="1 of 2 messages of batch 1"):
        book.finish()
