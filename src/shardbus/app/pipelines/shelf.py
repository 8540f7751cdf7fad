"""Definitions on disk: one file each, written under another name, made durable, then renamed."""

from __future__ import annotations

import json
import logging
import os
from enum import StrEnum
from pathlib import Path
from typing import Final, final

from shardbus.app.pipelines.definition import Definition, definition_from
from shardbus.core.errors import Refused

log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 64 * 1024


class Intent(StrEnum):
    """The intended state of a pipeline after a restart of the bus."""

    RUN = "run"
    REST = "rest"
    # In a cluster: complete the claimed messages, then stop.
    FINISH = "finish"
    FINISHED = "finished"


@final
class Shelf:
    """The directory `pipelines` in the data directory. OSError when it cannot be written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> dict[str, tuple[Definition, Intent]]:
        """All definitions by name, and whether each is to run; an invalid file is logged and left
        in place.
        """
        found: dict[str, tuple[Definition, Intent]] = {}
        for file in sorted(self._directory.glob("*.json")):
            try:
                definition, intent = _read(file)
            except (OSError, ValueError, Refused) as error:
                log.error("%s is not a definition of a pipeline and is ignored: %s", file, error)
            else:
                found[definition.name] = definition, intent
        return found

    def put(self, definition: Definition, intent: Intent) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = {"definition": definition.to_document(), "intent": intent}
        self.write(self._file(definition.name), json.dumps(document, indent=2))

    def remove(self, name: str) -> None:
        self._file(name).unlink(missing_ok=True)
        self._job(name).unlink(missing_ok=True)
        _sync(self._directory)

    def put_job(self, name: str, document: dict[str, object]) -> Path:
        """Write the file that the driver reads."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write(self._job(name), json.dumps(document))
        return self._job(name)

    def write(self, file: Path, text: str) -> None:
        """Replace a file atomically; readable by the owner alone."""
        aside = file.with_name(file.name + ".new")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(file)
        _sync(self._directory)

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _job(self, name: str) -> Path:
        return self._directory / f"{name}.job"


def _read(file: Path) -> tuple[Definition, Intent]:
    with file.open("rb") as opened:
        content = opened.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
    document: object = json.loads(content)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    definition = definition_from(document.get("definition"))
    if file.stem != definition.name:
        raise ValueError(f"it is that of {definition.name}")
    # Versions before 'intent' wrote this member.
    otherwise = Intent.RUN if document.get("is_wanted") is True else Intent.REST
    return definition, Intent(document.get("intent", otherwise))


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
