"""The repartition storm, small enough for every day, and whether its books can tell (P6)."""

import gc
from pathlib import Path

import pytest

from tests.durability.killed_server import BROKER, PHASES, SERVER
from tests.durability.repartition_storm import DRAINING, Books, Plan, Receiver, run


def _plan(
    victim: str, phases: tuple[str, ...], *, is_topic: bool = False, has_sessions: bool = False
) -> Plan:
    counts = [16, 4, 1][: len(phases)] * 2
    return Plan(
        messages=400,
        keys=20,
        senders=2,
        receivers=2,
        first=1,
        counts=counts[: len(phases)],
        phases=phases,
        victim=victim,
        seed=7,
        is_topic=is_topic,
        has_sessions=has_sessions,
    )


# The SDK leaves sockets behind that it could not connect.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed")
@pytest.mark.release
@pytest.mark.parametrize(
    ("victim", "phases", "options"),
    [
        pytest.param(SERVER, (*PHASES, DRAINING), (), marks=pytest.mark.release),
        (BROKER, PHASES[1:4], ("--broker-processes", "--broker-restart-ms", "200")),
    ],
    ids=["server", "broker"],
)
def test_a_kill_in_each_phase_of_a_repartition_costs_nothing(
    tmp_path: Path, victim: str, phases: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """P6, R43: with senders and receivers of the SDK, message by message."""
    verdict = run(_plan(victim, phases), tmp_path, *options)
    gc.collect()

    assert verdict.is_good, verdict
    assert (verdict.changes, verdict.kills) == (len(phases), len(phases))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed")
@pytest.mark.release
@pytest.mark.parametrize(
    ("victim", "phases", "options"),
    [
        (SERVER, (*PHASES, DRAINING), ()),
        (BROKER, PHASES[1:4], ("--broker-processes", "--broker-restart-ms", "200")),
    ],
    ids=["server", "broker"],
)
def test_a_kill_in_each_phase_of_the_repartition_of_a_topic_costs_nothing(
    tmp_path: Path, victim: str, phases: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """P6, R30, R43: in each of two subscriptions, message by message."""
    verdict = run(_plan(victim, phases, is_topic=True), tmp_path, *options)
    gc.collect()

    assert verdict.is_good, verdict
    assert (verdict.changes, verdict.kills) == (len(phases), len(phases))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed")
@pytest.mark.release
@pytest.mark.parametrize("is_topic", [False, True], ids=["queue", "topic"])
def test_sessions_change_hands_in_their_order_whatever_is_killed(
    tmp_path: Path, is_topic: bool
) -> None:
    """P6, R26: no message of a session comes first after a later one, whoever gets it."""
    plan = _plan(SERVER, (*PHASES, DRAINING), is_topic=is_topic, has_sessions=True)
    verdict = run(plan, tmp_path)
    gc.collect()

    assert verdict.is_good, verdict
    assert (verdict.changes, verdict.redelivered) == (len(plan.phases), 0)


class Message:
    """As much of a received message as the books read."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def _received(receiver: Receiver, *texts: str) -> None:
    for text in texts:
        receiver._checked(Message(text))  # type: ignore[arg-type]  # a message of the SDK


def test_the_books_tell_disorder_from_what_a_broken_connection_explains() -> None:
    """P6: a checker that cannot fail proves nothing."""
    books = Books(_plan(SERVER, ()))
    books.accepted = {(1, number) for number in range(6)} | {(2, 0)}
    receiver = Receiver(books)

    _received(receiver, "1:0", "1:2", "2:0", "1:1")
    assert (books.verdict.disordered, books.verdict.redelivered) == (1, 0)
    _received(receiver, "1:4")
    books.note_break()
    # Another receiver held it; what has come before comes again.
    _received(receiver, "1:3", "1:0")

    assert (books.verdict.disordered, books.verdict.redelivered) == (1, 1)


def test_a_broken_connection_explains_no_disorder_of_a_session() -> None:
    """P6, R26: the next holder gets what the last one had before anything later."""
    books = Books(_plan(SERVER, (), has_sessions=True))
    books.accepted = {(1, number) for number in range(4)}
    former, present = Receiver(books), Receiver(books)

    _received(former, "1:0", "1:1")
    books.note_break()
    _received(present, "1:1", "1:3", "1:2")

    assert (books.verdict.disordered, books.verdict.redelivered) == (1, 0)


def test_the_books_tell_what_is_missing_twice_and_strange() -> None:
    """P6."""
    books = Books(_plan(SERVER, ()))
    books.accepted = {(1, 0), (1, 1), (1, 2)}
    books.unsure = {(2, 0)}
    books.settling = {(1, 2)}
    books.completed = {(1, 0): 2, (2, 0): 1, (3, 0): 1}

    verdict = books.close()

    assert (verdict.missing, verdict.twice, verdict.strangers) == (1, 1, 1)
    assert not verdict.is_good
