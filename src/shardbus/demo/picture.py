"""The state of the demo at one moment, as numbers and words, for the screen and the summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from shardbus.demo.tally import Counts


@final
@dataclass(frozen=True, slots=True)
class FragmentBar:
    """A fragment of the queue; `per_s` is the rate of sent messages."""

    number: int
    waiting: int
    per_s: float
    is_available: bool = True


@final
@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription, its rule, and how many messages wait."""

    name: str
    rule: str
    waiting: int


@final
@dataclass(frozen=True, slots=True)
class Capturing:
    """The pipeline; `note` explains a state other than `running`.

    `files` is -1 where they cannot be counted, as in an object store.
    """

    name: str
    state: str
    note: str = ""
    rows: int = 0
    backlog: int = 0
    batch: int = 0
    batch_rows: int = 0
    batch_ms: int = 0
    files: int = 0
    size_bytes: int = 0
    location: str = ""


@final
@dataclass(frozen=True, slots=True)
class PlacePicture:
    """The address of the bus, and the command that asks it.

    `options` select this bus in commands, `serving` are the arguments that serve it again.
    """

    url: str
    command: str
    python: str
    options: str = ""
    serving: str = ""

    def tips(self, pipeline: str, queue: str) -> tuple[str, ...]:
        """What to type in another terminal."""
        shown = (f"fragments {queue} --watch", f"deadletter list {queue}")
        more = (f"pipeline status {pipeline} --watch",)
        return tuple(f"{self.command} {words}{self.options}" for words in (*shown, *more))


@final
@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that one screen shows."""

    place: PlacePicture
    elapsed_s: float = 0.0
    queue: str = ""
    topic: str = ""
    counts: Counts = field(default_factory=Counts)
    sent_per_s: float = 0.0
    received_per_s: float = 0.0
    completed_per_s: float = 0.0
    published_per_s: float = 0.0
    fragments: tuple[FragmentBar, ...] = ()
    scheduled: int = 0
    dead_letters: int = 0
    subscriptions: tuple[Subscribed, ...] = ()
    capturing: Capturing | None = None
    problem: str = ""
    ending: str = ""

    @property
    def waiting(self) -> int:
        return sum(fragment.waiting for fragment in self.fragments)


def printable(text: str) -> str:
    """The text of a bus or a library without control characters, which must not reach the
    terminal.
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def duration_text(seconds: float) -> str:
    """A duration for people: 8 s, 3 min 20 s, 2 h 5 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size_text(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
