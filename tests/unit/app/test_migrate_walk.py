"""Walking over the messages of a source, whose numbers do not rise from page to page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from azure.servicebus import ServiceBusReceiver

from shardbus.app.migrate.line_move import walk

PAGE = 2
LOW, HIGH = 1 << 48, 2 << 48
BY_TIME = [HIGH + 1, LOW + 1, LOW + 2, HIGH + 2, LOW + 3, HIGH + 3, LOW + 4]


@dataclass
class Shown:
    sequence_number: int


class Namespace:
    """A partitioned entity; it knows where its last page ended until it `forgets`."""

    def __init__(self, forgets_after: int = -1) -> None:
        self._left = forgets_after
        self._places: dict[int, int] = {1: 0}

    def peek_messages(self, count: int, sequence_number: int) -> list[Shown]:
        del count
        self._left -= 1
        if self._left == 0:
            self._places = {1: 0}
        place = self._places.get(sequence_number)
        if place is None:
            page = sorted(each for each in BY_TIME if each >= sequence_number)[:PAGE]
        else:
            page = BY_TIME[place : place + PAGE]
            if page:
                self._places[page[-1] + 1] = place + len(page)
        return [Shown(number) for number in page]


@pytest.mark.parametrize("forgets_after", [-1, 2, 3, 4, 5])
def test_every_message_is_shown_once_also_by_a_namespace_that_forgets_the_place(
    forgets_after: int,
) -> None:
    receiver = cast("ServiceBusReceiver", Namespace(forgets_after))

    shown = [each.sequence_number for page in walk(receiver) for each in page]

    assert sorted(number for number in shown if number is not None) == sorted(BY_TIME)
