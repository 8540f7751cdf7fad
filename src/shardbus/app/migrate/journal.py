"""The journal of a migration: which messages the target has, on disk before anything is removed.

One JSON document per line. A line `begin` names messages that are about to be sent, a line `done`
those that the target has accepted. A message that was begun and is not done is in doubt: the
process may have been killed between the answer and the line.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, final

from shardbus.app.cli.failures import Usage

VERSION: Final = 1


@final
class Journal:
    """Usage when the file cannot be used: another migration's, or in use."""

    def __init__(self, path: Path, source: str, target: str) -> None:
        self._path = path
        self._done: dict[str, set[int]] = {}
        self._doubtful: dict[str, dict[int, str]] = {}
        try:
            self._file = path.open("a+b")
        except OSError as error:
            raise Usage(f"the journal {path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise Usage(f"the journal {path} is in use by another migration") from error
        try:
            self._read({"version": VERSION, "from": source, "to": target})
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def begin(self, line: str, numbers: Sequence[int], session_id: str = "") -> None:
        """These messages of a line are about to be sent."""
        self._write({"line": line, "begin": list(numbers), "session": session_id})
        self._apply_begin(line, list(numbers), session_id)

    def done(self, line: str, numbers: Sequence[int]) -> None:
        """The target has accepted these messages."""
        self._write({"line": line, "done": list(numbers)})
        self._apply_done(line, list(numbers))

    def refute(self, line: str, numbers: Sequence[int]) -> None:
        """These messages, which were in doubt, have not reached the target."""
        self._write({"line": line, "not": list(numbers)})
        self._apply_not(line, list(numbers))

    def is_done(self, line: str, number: int) -> bool:
        return number in self._done.get(line, ())

    def done_count(self, line: str) -> int:
        return len(self._done.get(line, ()))

    def in_doubt(self, line: str) -> dict[int, str]:
        """Messages that may or may not have reached the target, with their sessions."""
        return dict(self._doubtful.get(line, {}))

    def _read(self, head: dict[str, object]) -> None:
        self._file.seek(0)
        content = self._file.read()
        # A line that was cut off by a crash: what it says had not begun.
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        lines = [json.loads(line) for line in whole.splitlines()]
        if not lines:
            self._write(head)
            return
        if lines[0] != head:
            raise Usage(
                f"the journal {self._path} is of another migration (from {lines[0].get('from')} "
                f"to {lines[0].get('to')}): give another file with --journal"
            )
        for line in lines[1:]:
            if "begin" in line:
                self._apply_begin(line["line"], line["begin"], line["session"])
            elif "done" in line:
                self._apply_done(line["line"], line["done"])
            else:
                self._apply_not(line["line"], line["not"])

    def _write(self, document: dict[str, object]) -> None:
        self._file.write(json.dumps(document).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _apply_begin(self, line: str, numbers: list[int], session_id: str) -> None:
        self._doubtful.setdefault(line, {}).update(dict.fromkeys(numbers, session_id))

    def _apply_done(self, line: str, numbers: list[int]) -> None:
        self._done.setdefault(line, set()).update(numbers)
        self._apply_not(line, numbers)

    def _apply_not(self, line: str, numbers: list[int]) -> None:
        doubtful = self._doubtful.get(line, {})
        for number in numbers:
            doubtful.pop(number, None)
