"""One moment of a store or a catalogue, as those see it who copy it and know no store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, final

CATALOGUE_NAME: Final = "catalogue"

SPARE_BYTES: Final = 64 * 1024 * 1024
"""What a backup leaves free, on the disk where it is made and on that of the store."""

Watch = Callable[[int], None]
"""Hears how many bytes have been copied; what it raises ends the copy."""


def broker_name(index: int) -> str:
    """The name of a broker is its place in every entity's map of fragments."""
    return f"broker-{index}"


def copy_name(name: str) -> str:
    """What the copy of a broker's store, or of the catalogue, is called in every backup."""
    return f"{name}.db"


@final
class Copied:
    """A file that was copied whole and is on disk. A catalogue has no messages."""

    def __init__(self, size_bytes: int, sha256: str, fragments: int, messages: int) -> None:
        self.size_bytes = size_bytes
        self.sha256 = sha256
        self.fragments = fragments
        self.messages = messages


class Snapshot(Protocol):
    """One moment of a store or a catalogue. Its methods may be called from any thread, one at a
    time.
    """

    def size_bytes(self) -> int:
        """About how much there is to copy."""
        ...

    def copy(self, target: Path, watch: Watch) -> Copied:
        """Write a new file; StoreError, and none is left, if that fails or one is there already."""
        ...

    def close(self) -> None:
        """Let the moment go; nothing happens the second time."""
        ...


class Copyable(Protocol):
    """A store or a catalogue, in the process that writes it."""

    def size_bytes(self) -> int:
        """About how much there is to copy."""
        ...

    def snapshot(self) -> Snapshot:
        """The present moment. Called while nothing is written."""
        ...
