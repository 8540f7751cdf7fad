"""A snapshot of a store or a catalogue, for callers that copy it without knowing the kind of
store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, final

CATALOGUE_NAME: Final = "catalogue"

SPARE_BYTES: Final = 64 * 1024 * 1024
"""How much disk space a backup leaves free, on its own disk and on that of the store."""

Watch = Callable[[int], None]
"""Called with the number of bytes copied so far; an exception that it raises ends the copy."""


def broker_name(index: int) -> str:
    """The name of a broker, by its index in every entity's map of fragments."""
    return f"broker-{index}"


def copy_name(name: str) -> str:
    """The name of a copied store or catalogue in every backup."""
    return f"{name}.db"


@final
class Copied:
    """A file that was copied completely and is durable. A catalogue has no messages."""

    def __init__(self, size_bytes: int, sha256: str, fragments: int, messages: int) -> None:
        self.size_bytes = size_bytes
        self.sha256 = sha256
        self.fragments = fragments
        self.messages = messages


class Snapshot(Protocol):
    """A store or a catalogue at one moment. The methods may be called from any thread, one at a
    time.
    """

    def size_bytes(self) -> int:
        """Approximately how much there is to copy."""
        ...

    def copy(self, target: Path, watch: Watch) -> Copied:
        """Write a new file. StoreError, and no file is left, if that fails or the file exists
        already.
        """
        ...

    def close(self) -> None:
        """Release the snapshot; a second call does nothing."""
        ...


class Copyable(Protocol):
    """A store or a catalogue, in the process that writes it."""

    def size_bytes(self) -> int:
        """Approximately how much there is to copy."""
        ...

    def snapshot(self) -> Snapshot:
        """A snapshot of the present moment. Called while nothing is being written."""
        ...
