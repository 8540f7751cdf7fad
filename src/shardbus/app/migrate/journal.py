"""The journal of a migration: which messages the target has, on disk before anything is removed.

One JSON document per line. A line `begin` names messages that are about to be sent, a line `done`
those that the target has accepted. A message that was begun and is not done is in doubt: the
process may have been killed between the answer and the line. Messages are recorded by the id that
`TargetEntities.life` gives their entities too: an entity that was created again has other messages
under the same numbers.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, final

from msgspec import MsgspecError, Struct, field
from msgspec.json import decode

from shardbus.app.cli.failures import Refused, Usage

VERSION: Final = 1


class _Entry(Struct, forbid_unknown_fields=True):
    """A line of the file after the first. It has exactly one of `begin`, `done` and `not`."""

    line: str
    begin: list[int] | None = None
    session: str = ""
    ids: list[str] = []
    done: list[int] | None = None
    refuted: list[int] | None = field(default=None, name="not")

    def __post_init__(self) -> None:
        if [self.begin, self.done, self.refuted].count(None) != 2:
            raise ValueError("it has no known member")


@final
class Journal:
    """Usage when the file cannot be used: another migration's, damaged, or in use. Refused when it
    cannot be written any more.
    """

    def __init__(self, path: Path, source: str, target: str) -> None:
        self._path = path
        self._done: dict[str, set[int]] = {}
        self._doubtful: dict[str, dict[int, str]] = {}
        self._ids: dict[str, dict[str, int]] = {}
        try:
            self._file = path.open("a+b", buffering=0)
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

    def begin(
        self, line: str, numbers: Sequence[int], session_id: str = "", ids: Sequence[str] = ()
    ) -> None:
        """These messages of a line are about to be sent; `ids` are theirs where the target detects
        duplicates.
        """
        said = _Entry(line, begin=list(numbers), session=session_id, ids=list(ids))
        more: dict[str, object] = {"ids": said.ids} if ids else {}
        self._write({"line": line, "begin": said.begin, "session": session_id, **more})
        self._apply(said)

    def done(self, line: str, numbers: Sequence[int]) -> None:
        """The target has accepted these messages."""
        self._write({"line": line, "done": list(numbers)})
        self._apply(_Entry(line, done=list(numbers)))

    def refute(self, line: str, numbers: Sequence[int]) -> None:
        """These messages, which were in doubt, have not reached the target."""
        self._write({"line": line, "not": list(numbers)})
        self._apply(_Entry(line, refuted=list(numbers)))

    def is_done(self, line: str, number: int) -> bool:
        return number in self._done.get(line, ())

    def number_of_id(self, line: str, message_id: str) -> int | None:
        """The number of the message that was sent with this id, if the journal records ids."""
        return self._ids.get(line, {}).get(message_id)

    def in_doubt(self, line: str) -> dict[int, str]:
        """Messages that may or may not have reached the target, with their sessions."""
        return dict(self._doubtful.get(line, {}))

    def _read(self, head: dict[str, object]) -> None:
        self._file.seek(0)
        content = self._file.read()
        # A crash cut off this line, so the work that it announces had not begun.
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        lines = whole.splitlines()
        if not lines:
            self._write(head)
            return
        self._check_head(lines[0], head)
        for number, line in enumerate(lines[1:], 2):
            try:
                self._apply(decode(line, type=_Entry))
            except (MsgspecError, ValueError) as error:
                raise self._damaged(number, error) from error

    def _check_head(self, line: bytes, head: dict[str, object]) -> None:
        try:
            found = decode(line, type=dict[str, object])
        except (MsgspecError, ValueError) as error:
            raise self._damaged(1, error) from error
        if found != head:
            raise Usage(
                f"the journal {self._path} is of another migration (from {found.get('from')} "
                f"to {found.get('to')}): give another file with --journal"
            )

    def _damaged(self, number: int, error: Exception) -> Usage:
        return Usage(
            f"the journal {self._path} is damaged in line {number} ({error}): restore the file, or "
            "name a new one with --journal: messages that the target has are then sent again"
        )

    def _write(self, document: dict[str, object]) -> None:
        """Write one line, and wait until it is on the disk."""
        left = memoryview(json.dumps(document).encode() + b"\n")
        try:
            while left:
                left = left[os.write(self._file.fileno(), left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Refused(
                f"the journal {self._path} cannot be written: {error.strerror}; nothing is removed "
                "without it. Fix this, and run the same command again to continue"
            ) from error

    def _apply(self, said: _Entry) -> None:
        doubtful = self._doubtful.setdefault(said.line, {})
        if said.begin is not None:
            doubtful.update(dict.fromkeys(said.begin, said.session))
            ids = self._ids.setdefault(said.line, {})
            ids.update(zip(said.ids, said.begin, strict=False))
            return
        for number in said.done or said.refuted or ():
            doubtful.pop(number, None)
        self._done.setdefault(said.line, set()).update(said.done or ())
