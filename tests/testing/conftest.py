"""Private buses for the tests of what tests use."""

from collections.abc import Iterator

import pytest

from shardbus.testing import PrivateBus, WarmProcess


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmProcess]:
    process = WarmProcess()
    yield process
    process.close()


@pytest.fixture
def bus(warm: WarmProcess) -> Iterator[PrivateBus]:
    started = warm.start()
    yield started
    started.close()
