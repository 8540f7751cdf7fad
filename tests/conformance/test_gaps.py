"""What the bus does not do yet is refused in so many words, never silently ignored.

Each test here is to be replaced by one that the feature passes.
"""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.conftest import Queue


def test_queues_that_forward_are_not_made(
    administration: ServiceBusAdministrationClient, queue: Queue, queue_name: str
) -> None:
    """R27 is missing."""
    with pytest.raises(HttpResponseError, match="does not offer ForwardTo"):
        administration.create_queue(queue_name, forward_to=queue.name)
    with pytest.raises(HttpResponseError, match="does not offer ForwardDeadLettered"):
        administration.create_queue(queue_name, forward_dead_lettered_messages_to=queue.name)

    assert queue_name not in [queue.name for queue in administration.list_queues()]


def test_topics_are_not_made(
    administration: ServiceBusAdministrationClient, queue_name: str
) -> None:
    """R30 is missing."""
    with pytest.raises(HttpResponseError) as refusal:
        administration.create_topic(queue_name)

    assert refusal.value.status_code in (400, 501)
    assert queue_name not in [queue.name for queue in administration.list_queues()]
