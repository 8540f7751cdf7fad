"""What every simulation needs."""

from collections.abc import Iterator

import pytest

from tests.simulation.world import say_all, say_nothing


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Fragments complain about every planted fault."""
    say_nothing()
    yield
    say_all()
