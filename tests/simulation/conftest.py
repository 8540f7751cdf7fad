"""What every simulation needs."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Fragments complain about every planted fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
