"""The sources of `shardbus send`: one body, lines of text, or documents."""

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.failures import Usage

STANDARD_INPUT: Final = "-"
# A longer line or body could not be sent anyway.
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
DUMP_BYTES_MAX: Final = 256 * 1024 * 1024


class MessageSource:
    """Reads a file, or standard input, with a name for error texts."""

    def __init__(self, file: str | None) -> None:
        self.name = "standard input" if file in (None, STANDARD_INPUT) else str(file)
        self._file = file

    def body(self) -> Document:
        """All of it, as one message."""
        with self._opened() as stream:
            content = stream.read(BODY_BYTES_MAX + 1)
        if not content and self._file is None:
            raise Usage(
                "standard input is empty, and nothing was sent: give a BODY ('' for an empty "
                "message) or --file FILE"
            )
        if len(content) > BODY_BYTES_MAX:
            raise Usage(f"{self.name} has more than {BODY_BYTES_MAX} bytes; did you mean --lines?")
        return body_document(content)

    def lines(self) -> Iterator[Document]:
        """A message for each line, without its line end."""
        with self._opened() as stream:
            for line in self._read_lines(stream):
                yield body_document(line)

    def documents(self) -> Iterator[Document]:
        """A message for each line that is a document, or for each member of one JSON list."""
        with self._opened() as stream:
            lines = self._read_lines(stream)
            for number, line in enumerate(lines, 1):
                if number == 1 and line.lstrip().startswith(b"["):
                    yield from self._members(line + b"\n" + stream.read(DUMP_BYTES_MAX + 1))
                    return
                if line.strip():
                    yield self._document(line, f"line {number}")

    def _opened(self) -> BinaryIO:
        if self._file is None or self._file == STANDARD_INPUT:
            if sys.stdin.isatty():
                raise Usage("give a BODY, --file FILE, or data on standard input")
            return sys.stdin.buffer
        try:
            return Path(self._file).open("rb")
        except OSError as error:
            raise Usage(f"{self.name} cannot be read: {error.strerror}") from error

    def _read_lines(self, stream: BinaryIO) -> Iterator[bytes]:
        while line := stream.readline(BODY_BYTES_MAX + 1):
            if len(line) > BODY_BYTES_MAX:
                raise Usage(f"{self.name} has a line of more than {BODY_BYTES_MAX} bytes")
            yield line.removesuffix(b"\n").removesuffix(b"\r")

    def _members(self, text: bytes) -> Iterator[Document]:
        if len(text) > DUMP_BYTES_MAX:
            raise Usage(f"{self.name} is one list of more than {DUMP_BYTES_MAX} bytes: use --jsonl")
        listed = self._parsed(text, "it")
        for number, each in enumerate(listed if isinstance(listed, list) else [], 1):
            if not isinstance(each, dict):
                raise Usage(f"{self.name}: message {number} is not a JSON object")
            yield each

    def _document(self, line: bytes, what: str) -> Document:
        document = self._parsed(line, what)
        if not isinstance(document, dict):
            raise Usage(f"{self.name}: {what} is not a JSON object")
        return document

    def _parsed(self, text: bytes, what: str) -> object:
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Usage(f"{self.name}: {what} is not JSON: {error}") from error
        return value


def body_document(content: bytes) -> Document:
    """A message with this body, and nothing else."""
    try:
        return {"body": content.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(content).decode()}
