"""A gateway for every test that asks for one, torn down after it."""

from collections.abc import Iterator

import pytest

from tests.unit.gateway.amqp.bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()
