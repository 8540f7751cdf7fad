"""A queue that was repartitioned begins to forward (P6, R27)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.core.errors import NOT_ALLOWED
from shardbus.core.messages.command import COMPLETE
from shardbus.core.namespace.entity import EntitySpec
from tests.support.refusals import refusal_of
from tests.unit.broker.test_maps import Town


@pytest.fixture
def town() -> Iterator[Town]:
    town = Town()
    yield town
    town.close()


def test_what_waits_in_former_fragments_is_received_before_the_queue_forwards(town: Town) -> None:
    """P6, R27: fragments forward each by itself, so newer messages could overtake older ones."""
    town.run(town.namespace.create_queue("elsewhere", EntitySpec()))
    town.put(0)
    town.change(2)
    spec = town.entity().spec.copy()
    spec.forward_to = "elsewhere"
    with refusal_of(NOT_ALLOWED, town.near, "1 messages"):
        town.run(town.namespace.update_queue(town.near, spec))
    [delivery] = town.client().deliveries
    town.settle(delivery, COMPLETE)

    assert town.run(town.namespace.update_queue(town.near, spec)).spec.forward_to == "elsewhere"
