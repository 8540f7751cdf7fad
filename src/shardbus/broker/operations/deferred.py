"""Deferred messages by their numbers: all of them or none, over several fragments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.operations.asking import ask_all, failure_of, failure_of_parts, to_port
from shardbus.broker.routing.dispatch import ignore
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    Refused,
)
from shardbus.core.limits import DEFERRED_COUNT_MAX
from shardbus.core.messages.command import (
    COMPLETE,
    NO_SESSION,
    RELEASE,
    Delivery,
    Received,
    ReceiveDeferred,
    Settle,
    Settled,
)
from shardbus.core.messages.settling import LOCK_LOST_TEXT

NOT_FOUND_TEXT: Final = (
    "Failed to find a message of the given sequence numbers: it does not exist, is not in "
    "the required state, or is locked by another receiver."
)


def shares_of(router: EntityRouter, numbers: list[int]) -> dict[int, list[int]]:
    """Sequence numbers by the position of their fragment; Refused when one has no fragment."""
    shares: dict[int, list[int]] = {}
    for number in numbers:
        index = router.index_of_number(number)
        if index < 0:
            raise Refused(MESSAGE_NOT_FOUND, NOT_FOUND_TEXT)
        shares.setdefault(index, []).append(number)
    return shares


@final
class DeferredReceive:
    """One request for deferred messages.

    They are first locked in all fragments, because locks can be undone; without locking, they are
    then completed.
    """

    def __init__(
        self,
        router: EntityRouter,
        line: int,
        numbers: list[int],
        *,
        session: bytes = NO_SESSION,
        new_seed: Callable[[], bytes],
    ) -> None:
        if len(numbers) > DEFERRED_COUNT_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"The request has {len(numbers)} sequence numbers; at most "
                f"{DEFERRED_COUNT_MAX} are allowed.",
            )
        self._router = router
        self._numbers = numbers
        self._shares = shares_of(router, numbers)
        tokens: dict[int, bytes] = {}
        for token in router.held_links.tokens_of(session):
            tokens[router.index_of_token(token)] = token
        if session != NO_SESSION and set(self._shares) - set(tokens):
            # All messages of a session are in its fragments.
            raise Refused(MESSAGE_NOT_FOUND, NOT_FOUND_TEXT)
        self._indexes = list(self._shares)
        self._questions = [
            to_port(
                router.ports[index],
                ReceiveDeferred(
                    line,
                    share,
                    is_locking=True,
                    token_seed=new_seed(),
                    session=tokens.get(index, NO_SESSION),
                ),
            )
            for index, share in self._shares.items()
        ]

    async def locked(self) -> list[Delivery]:
        """The messages, locked, in the requested order; or the failure of a fragment is raised."""
        answers = await ask_all(self._questions, self._hand_back)
        failure = failure_of(answers)
        if failure is not None:
            for position, answer in enumerate(answers):
                self._hand_back(position, answer)
            raise failure
        found = {
            delivery.entry.sequence_number: delivery
            for answer in answers
            if isinstance(answer, Received)
            for delivery in answer.deliveries
        }
        missing = [number for number in self._numbers if number not in found]
        if missing:
            # The record of a deferred message was found damaged.
            for position, answer in enumerate(answers):
                self._hand_back(position, answer)
            raise Refused(MESSAGE_NOT_FOUND, NOT_FOUND_TEXT)
        return [found[number] for number in self._numbers]

    async def removed(self) -> list[Delivery]:
        """The messages, removed; only those whose removal is certain, so that none comes twice.

        Raises the failure when no removal is certain.
        """
        deliveries = await self.locked()
        tokens = [self._tokens_of(index, deliveries) for index in self._indexes]
        questions = [
            to_port(self._router.ports[index], Settle(COMPLETE, share))
            for index, share in zip(self._indexes, tokens, strict=True)
        ]

        def let_go(position: int, answer: Answer) -> None:
            # Messages that are not removed stay locked by nobody; removed ones cannot come back.
            if not isinstance(answer, Settled):
                self._router.release(tokens[position])

        answers = await ask_all(questions, let_go)
        gone: set[bytes] = set()
        for position, answer in enumerate(answers):
            let_go(position, answer)
            if isinstance(answer, Settled):
                ended = zip(tokens[position], answer.lost, strict=True)
                gone.update(token for token, is_lost in ended if not is_lost)
        if deliveries and not gone:
            raise failure_of_parts(answers) or Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
        return [one for one in deliveries if one.token in gone]

    def _tokens_of(self, index: int, deliveries: list[Delivery]) -> list[bytes]:
        wanted = set(self._shares[index])
        return [one.token for one in deliveries if one.entry.sequence_number in wanted]

    def _hand_back(self, position: int, answer: Answer) -> None:
        if isinstance(answer, Received) and answer.deliveries:
            tokens = [delivery.token for delivery in answer.deliveries]
            port = self._router.ports[self._indexes[position]]
            port.submit(Settle(RELEASE, tokens), ignore)
