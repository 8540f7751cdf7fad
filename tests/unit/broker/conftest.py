"""A house for every test that asks for one, torn down after it."""

from collections.abc import Iterator

import pytest

from tests.unit.broker.house import House


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()
