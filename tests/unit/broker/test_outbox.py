"""Sends whose answers are lost: asked about, never placed twice (R14-R16)."""

import pytest

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.runner import Runner
from shardbus.broker.routing.outbox import DOUBT_MS_MAX, DOUBTS_MAX, Outbox
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import Unavailable
from shardbus.core.limits import TICKETS_ASKED_MS
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import RELEASE, Receive, Send, Sent
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.tickets.command import AskTickets
from tests.unit.broker.house import SEED, House, payloads_of
from tests.unit.broker.ports import Scripted


def router_of(house: House, runners: list[Runner]) -> EntityRouter:
    return EntityRouter(
        list(runners),
        list(range(len(runners))),
        even_hash_starts(len(runners)),
        detects_duplicates=False,
        loop=house.loop,
        clock=house.clock,
        new_seed=lambda: b"gateway",
    )


def batch(router: EntityRouter, *payloads: bytes, key: str | None = None) -> list[Answer]:
    answers: list[Answer] = []
    messages = [Message(payload, partition_key=key) for payload in payloads]
    router.send_batch(messages, answers.append)
    return answers


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_message_whose_commit_failed_is_stored_once_wherever_that_is(
    house: House, moment: str
) -> None:
    """R14: without a key it is placed elsewhere, but not before it is known not to be stored."""
    runners = [house.runner(number) for number in range(2)]
    router = router_of(house, runners)
    house.pass_s()
    house.disk.commit_failures.append(moment)

    answers = batch(router, b"a")
    house.pass_s(5)

    assert [type(answer) for answer in answers] == [Sent]
    stored = [payloads_of(house.receive(runner)) for runner in runners]
    assert sorted(stored) == [[], [b"a"]]


@pytest.mark.parametrize(("moment", "expected"), [("before", Unavailable), ("after", Sent)])
def test_with_a_key_what_is_not_stored_is_told_for_certain(
    house: House, moment: str, expected: type[Answer]
) -> None:
    """R15: its sender sends it again; the bus would change the order."""
    runners = [house.runner(number) for number in range(2)]
    router = router_of(house, runners)
    house.pass_s()
    house.disk.commit_failures.append(moment)

    answers = batch(router, b"a", key="k")
    house.pass_s(5)

    [answer] = answers
    assert isinstance(answer, expected)
    assert not isinstance(answer, Unavailable) or not answer.is_unknown
    stored = [payload for runner in runners for payload in payloads_of(house.receive(runner))]
    assert stored == ([b"a"] if expected is Sent else [])


def test_what_cannot_be_learned_in_time_is_unknown(house: House) -> None:
    """R16."""
    runner = house.runner()
    router = router_of(house, [runner])
    house.pass_s()
    house.disk.commit_failures.extend(["before"] * 1_000)

    answers = batch(router, b"a")
    house.pass_s(DOUBT_MS_MAX / 1000 - 1)
    assert answers == []
    house.pass_s(2)

    [answer] = answers
    assert isinstance(answer, Unavailable) and answer.is_unknown


def test_what_is_stored_is_not_called_lost_because_a_damaged_message_cannot_be_set_aside(
    house: House,
) -> None:
    """The damage is found after the commit, and that it was is another one."""
    runners = [house.runner(number) for number in range(2)]
    router = router_of(house, runners)
    house.pass_s()
    sent = house.answer(runners[0], Send([Message(b"damaged")]))
    assert isinstance(sent, Sent)
    house.settle(runners[0], RELEASE, *house.receive(runners[0]))
    house.disk.kept.damage(runners[0].fragment_id, sent.first)
    house.disk.commit_failures.extend(["fine", "not at all"])

    answers = batch(router, b"a")
    house.ask(runners[0], Receive(MAIN_LINE, 1, is_locking=True, token_seed=SEED))
    house.pass_s(5)

    assert [type(answer) for answer in answers] == [Sent]
    stored = [payload for each in runners for payload in payloads_of(house.receive(each))]
    assert stored == [b"a"]


def test_sequence_numbers_are_told_after_a_lost_answer_where_they_are_wanted(house: House) -> None:
    runner = house.runner()
    router = router_of(house, [runner])
    house.pass_s()
    batch(router, b"a")
    house.pass_s()
    house.disk.commit_failures.append("after")
    answers: list[Answer] = []

    messages = [Message(b"b"), Message(b"c")]
    router.send_batch(messages, answers.append, keeps_reply=True)
    house.pass_s(5)

    [sent] = answers
    assert isinstance(sent, Sent) and sent.numbers() == [2, 3]


def test_many_doubts_are_one_question(house: House) -> None:
    port = Scripted()
    outbox = Outbox(port, b"me", loop=house.loop, clock=house.clock)
    for number in range(50):
        outbox.send([Message(b"%d" % number)], lambda answer: None, keeps_reply=False)
    port.fail_all()
    house.pass_s(0.15)

    questions = [command for command in port.commands() if isinstance(command, AskTickets)]
    assert [question.numbers for question in questions] == [list(range(1, 51))]
    # An answer that does not come is not asked for again and again.
    house.pass_s(5)
    assert len(port.commands()) == 1


def test_the_front_is_the_first_that_is_not_answered(house: House) -> None:
    port = Scripted()
    outbox = Outbox(port, b"me", loop=house.loop, clock=house.clock)

    def front() -> int:
        outbox.send([Message(b"x")], lambda answer: None, keeps_reply=False)
        [*_, command] = port.commands()
        assert isinstance(command, Send) and command.ticket is not None
        return command.ticket.front

    assert [front() for _ in range(4)] == [1, 1, 1, 1]
    port.answer(1, Sent(1, 1))
    assert front() == 1
    port.answer(0, Sent(1, 1))
    assert front() == 3


def test_what_the_fragment_may_have_forgotten_is_not_asked_about(house: House) -> None:
    """The process was stopped for an hour, say: its book would be gone, and all taken for lost."""
    port = Scripted()
    outbox = Outbox(port, b"me", loop=house.loop, clock=house.clock)
    answers: list[Answer] = []
    outbox.send([Message(b"x")], answers.append, keeps_reply=False)
    house.pass_s(TICKETS_ASKED_MS / 1000 + 1)

    port.fail_all()
    house.pass_s(1)

    [answer] = answers
    assert isinstance(answer, Unavailable) and answer.is_unknown
    assert not any(isinstance(command, AskTickets) for command in port.commands())


def test_doubts_are_bounded(house: House) -> None:
    port = Scripted()
    outbox = Outbox(port, b"me", loop=house.loop, clock=house.clock)
    answers: list[Answer] = []
    for _ in range(DOUBTS_MAX + 1):
        outbox.send([], answers.append, keeps_reply=False)

    port.fail_all()

    assert len(answers) == 1
