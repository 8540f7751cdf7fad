"""Locks messages of a line by their numbers, over several fragments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.operations.asking import ask_all, failure_of, to_port
from shardbus.broker.routing.dispatch import ignore
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.limits import DEFERRED_COUNT_MAX
from shardbus.core.messages.command import (
    NO_SESSION,
    RELEASE,
    Delivery,
    Received,
    ReceiveNumbered,
    Settle,
)


async def lock_numbered(
    router: EntityRouter,
    line: int,
    numbers: Sequence[int],
    new_seed: Callable[[], bytes],
    session: bytes = NO_SESSION,
) -> list[Delivery]:
    """Those of these active messages that are there and not locked, locked, by fragment; with
    `session`, the token of a held one, only messages of that session.

    At most DEFERRED_COUNT_MAX numbers; a failure of a fragment is raised, and nothing stays locked.
    """
    assert len(numbers) <= DEFERRED_COUNT_MAX
    tokens = {router.index_of_token(each): each for each in router.held_links.tokens_of(session)}
    shares: dict[int, list[int]] = {}
    for number in numbers:
        index = router.index_of_number(number)
        if index >= 0 and (session == NO_SESSION or index in tokens):
            shares.setdefault(index, []).append(number)
    indexes = list(shares)

    def hand_back(position: int, answer: Answer) -> None:
        if isinstance(answer, Received) and answer.deliveries:
            locks = [delivery.token for delivery in answer.deliveries]
            router.ports[indexes[position]].submit(Settle(RELEASE, locks), ignore)

    questions = [
        to_port(
            router.ports[index],
            ReceiveNumbered(
                line, share, token_seed=new_seed(), session=tokens.get(index, NO_SESSION)
            ),
        )
        for index, share in shares.items()
    ]
    answers = await ask_all(questions, hand_back)
    failure = failure_of(answers)
    if failure is not None:
        for position, answer in enumerate(answers):
            hand_back(position, answer)
        raise failure
    return [
        delivery
        for answer in answers
        if isinstance(answer, Received)
        for delivery in answer.deliveries
    ]
