"""A bulk lane for every test that asks for one."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.gateway.flight.lane_site import LaneSite

DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LaneSite]:
    site = LaneSite(tmp_path)
    yield site
    site.close()


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """No store stays open. Threads and sockets of gRPC are its own, and outlive its servers."""
    yield
    if _open_stores():
        gc.collect()
    assert not _open_stores()


def _open_stores() -> list[str]:
    opened = [str(entry.readlink()) for entry in DESCRIPTORS.iterdir() if entry.is_symlink()]
    return [name for name in opened if ".db" in name]
