"""A pipe: what its reader has taken, and what it has left."""

import os
from collections.abc import Iterator
from threading import Thread

import pytest

from shardbus.app.cli.messages import pipes
from shardbus.app.cli.messages.pipes import wait_until_read


@pytest.fixture
def ends() -> Iterator[list[int]]:
    """The end to read from and the end to write to; a test may close them."""
    opened = list(os.pipe())
    yield opened
    for descriptor in opened:
        if descriptor >= 0:
            os.close(descriptor)


def close(ends: list[int], place: int) -> None:
    os.close(ends[place])
    ends[place] = -1


def never() -> None:
    raise AssertionError


def test_what_was_taken_has_been_read_also_by_a_reader_that_has_gone(ends: list[int]) -> None:
    os.write(ends[1], b"one\n")
    reading = Thread(target=lambda: os.read(ends[0], 100))
    reading.start()
    wait_until_read(ends[1], never)
    reading.join()

    close(ends, 0)
    wait_until_read(ends[1], never)


def test_what_a_reader_leaves_in_the_pipe_was_not_read(ends: list[int]) -> None:
    os.write(ends[1], b"one\ntwo\n")
    os.read(ends[0], 4)
    close(ends, 0)

    with pytest.raises(BrokenPipeError):
        wait_until_read(ends[1], never)


def test_a_slow_reader_is_told_of_once(ends: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "SLOW_S", 0.0)
    told: list[str] = []

    def slow() -> None:
        told.append("slow")
        os.read(ends[0], 100)

    os.write(ends[1], b"one\n")
    wait_until_read(ends[1], slow)

    assert told == ["slow"]
