"""How much is walked at once in search of garbage."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shardbus.app.server.garbage import calm

NEW = 1_200_000
WALKED_MAX = 350_000
"""Objects: more of them are a moment in which nobody is answered."""


@pytest.fixture
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("as_before")
def test_what_is_new_is_walked_in_pieces() -> None:
    calm()
    walked: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            older = range(1, info["generation"] + 1)
            walked.append(gc.get_count()[0] + sum(len(gc.get_objects(each)) for each in older))

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(NEW)]
    finally:
        gc.callbacks.remove(note)

    assert len(kept) == NEW
    assert walked
    assert max(walked) <= WALKED_MAX


FAULTS = """
import resource, sys
from shardbus.app.server.garbage import keep_unused_memory
if sys.argv[1] == "keep" and not keep_unused_memory():
    print("unknown")
    sys.exit()
def buffers():
    return [bytearray(1_000_000) for _ in range(6)]
buffers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    buffers()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> str:
    command = [sys.executable, "-c", FAULTS, how]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_buffers_of_a_request_do_not_take_new_pages_each_time() -> None:
    kept = faults("keep")
    if kept == "unknown":
        return
    assert int(kept) < int(faults("leave")) / 10
