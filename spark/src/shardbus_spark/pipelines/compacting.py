"""Compaction during a capture: a thread that checks the table now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.events import Say, error_text
from shardbus_spark.tables.compaction import CannotCompact, compact, compactable

EVERY_S: Final = 60.0
CLEAN_EVERY_S: Final = 24 * 3600.0
# Everything it does can be interrupted.
END_S: Final = 5.0


@contextmanager
def compacting(definition: Definition, tell: Say, path: str = "") -> Iterator[None]:
    """Compact the table of a capture, or the table at `path`, in the background; and once more when
    a pipeline that ends by itself has ended.
    """
    compactor = Compactor(path or definition.path, tell)
    if not definition.flag("compact"):
        yield
        return
    thread = threading.Thread(target=compactor.run, daemon=True)
    thread.start()
    try:
        yield
        if definition.flag("once"):
            compactor.look(time.time_ns() // 1_000_000)
    finally:
        compactor.told.set()
        thread.join(END_S)


@final
class Compactor:
    """Reports what it has compacted, or why it cannot; a failure never ends the capture."""

    def __init__(self, path: str, tell: Say) -> None:
        self.told = threading.Event()
        self._path = path
        self._tell = tell
        self._turn = threading.Lock()
        self._cleaned_at_s: float | None = None
        self._cannot = False

    def run(self, every_s: float = EVERY_S) -> None:
        """Run until told to end, or until it turns out to be impossible."""
        while not self._cannot and not self.told.wait(every_s):
            self.look(time.time_ns() // 1_000_000)

    def look(self, now_ms: int) -> None:
        """One pass over the table."""
        with self._turn:
            try:
                self._pass(now_ms)
            except CannotCompact as error:
                self._cannot = True
                self._tell({"event": "compaction", "note": str(error)})
            except Exception as error:  # noqa: BLE001 - the capture continues; the next pass may succeed
                self._tell({"event": "compaction", "error": error_text(error)})

    def _pass(self, now_ms: int) -> None:
        table = compactable(self._path)
        if table is None:
            return
        now_s = time.monotonic()
        if self._cleaned_at_s is None or now_s - self._cleaned_at_s >= CLEAN_EVERY_S:
            table.clean()
            self._cleaned_at_s = now_s
        done = compact(table, now_ms, self.told.is_set)
        if done.files_before:
            self._tell(
                {
                    "event": "compaction",
                    "hours": done.hours,
                    "files_before": done.files_before,
                    "files_after": done.files_after,
                    "bytes": done.size_bytes,
                }
            )
