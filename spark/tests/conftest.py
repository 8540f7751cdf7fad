"""A lane that fails on demand, and streams that read from it as Spark would have them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark.tests.fake_lane import FakeLane


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLane]:
    # Locks of readers are below it.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with FakeLane() as lane:
        yield lane
