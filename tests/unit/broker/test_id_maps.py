"""A queue that detects duplicates gets other fragments, which know the earlier ids (P6, R24)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.namespace.repartition import _check_ids
from shardbus.core.errors import QUOTA_EXCEEDED
from shardbus.core.limits import CARRIED_IDS_MAX
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import Sent
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.sealing.command import Sealed
from tests.support.refusals import refusal_of
from tests.unit.broker.test_maps import KEYS, Town


class OnceTown(Town):
    """With a queue that detects duplicates."""

    name = "once"
    window_ms = 600_000

    def make(self) -> None:
        spec = EntitySpec()
        spec.requires_duplicate_detection = True
        spec.duplicate_window_ms = self.window_ms
        self.run(self.namespace.create_queue(self.name, spec))

    def is_new(self, message_id: str, key: str | None = None) -> bool:
        answers: list[Answer] = []
        message = Message(b"", message_id=message_id, partition_key=key)
        self.handle(self.name).router.send_batch([message], answers.append, keeps_reply=True)
        self.pass_s(0.1)
        [answer] = answers
        assert isinstance(answer, Sent), answer
        return not answer.duplicates

    def empty(self) -> None:
        operations = self.handle(self.name).operations
        self.run(operations.purge(MAIN_LINE, count_max=1_000))


@pytest.fixture
def once() -> Iterator[OnceTown]:
    town = OnceTown()
    town.make()
    yield town
    town.close()


@pytest.mark.parametrize("counts", [(3,), (3, 1), (4, 3), (3, 1, 4), (2, 3, 1)])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_queue_with_another_map_knows_the_ids_of_its_window(
    once: OnceTown, counts: tuple[int, ...], is_restarted: bool
) -> None:
    """P6, R24: with keys and without, and only as long as before."""
    sent: list[tuple[str, str | None]] = []
    for turn, count in enumerate(counts):
        for number in range(20):
            one = (f"{turn}.{number}", KEYS[number % len(KEYS)] if number % 2 else None)
            assert once.is_new(*one)
            sent.append(one)
        once.empty()
        once.change(count, once.name)
        if is_restarted:
            once.restart()
    assert not any(once.is_new(*one) for one in sent)
    assert once.is_new("new")

    once.pass_s(once.window_ms / 1000 * 1.02)
    once.empty()
    assert all(once.is_new(*one) for one in sent)


def test_the_form_of_ids_from_before_is_forgotten_with_them(once: OnceTown) -> None:
    """P6, R24: an id alone is a duplicate in a conventional queue, with its key in others."""
    assert once.is_new("x", "a")
    once.change(2, once.name)
    assert not once.is_new("x", "b"), "as it would have been before"
    once.pass_s(once.window_ms / 1000 * 1.1)
    assert once.is_new("x", "a") and once.is_new("x", "b")
    assert not once.is_new("x", "a")


def test_too_many_ids_prevent_a_repartition(once: OnceTown) -> None:
    """P6: nobody can send while they are carried over."""
    told = [Sealed(True, 0, 0, CARRIED_IDS_MAX), Sealed(True, 0, 0, 1)]
    _check_ids(once.entity(), told[:1])
    with refusal_of(QUOTA_EXCEEDED, once.near, str(CARRIED_IDS_MAX)):
        _check_ids(once.entity(), told)
