"""`shardbus send`: one message, many equal ones, or one for each line of a file."""

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import repeat
from typing import Final

import click

from shardbus.app.cli.access import Options, access_options, text_option
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.console import Console, counted, run_command
from shardbus.app.cli.failures import Interrupted, Refused, ServerUnavailable, Usage
from shardbus.app.cli.messages.entity_path import (
    documents,
    entity_parameters,
    message_path,
    whole,
    with_api,
)
from shardbus.app.cli.messages.options import members_from, message_parameters
from shardbus.app.cli.messages.source import MessageSource, body_document
from shardbus.app.cli.messages.text import body_bytes
from shardbus.app.cli.progress import Progress

# What one request may have: the bus accepts 1000 messages and a megabyte.
NO_SESSION: Final = "The SessionId was not set"
BATCH_COUNT_MAX: Final = 500
BATCH_BYTES_MAX: Final = 700_000
COUNT_MAX: Final = 100_000_000

_POSITION: Final = re.compile(r"^messages\[(\d+)\]")


@click.command(
    params=[
        *entity_parameters(has_subscription=False),
        click.Argument(["body"], required=False),
        click.Option(["--file", "file"], metavar="FILE", help="Read FILE; - means standard input."),
        click.Option(["--lines", "is_lines"], is_flag=True, help="Send a message for each line."),
        click.Option(
            ["--jsonl", "is_documents"],
            is_flag=True,
            help="Send a message for each line, a document as printed by --jsonl of peek and "
            "receive.",
        ),
        *message_parameters(),
        click.Option(
            ["--count"], type=click.IntRange(1, COUNT_MAX), metavar="N", help="Send N copies."
        ),
        *access_options(),
    ]
)
def send(
    entity: str, body: str | None, properties: tuple[str, ...], **options: str | int | bool | None
) -> None:
    """Send BODY to ENTITY, a queue or topic; without BODY the contents of --file or standard
    input.
    """
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        path = message_path(entity, options)
        sending = _planned(body, properties, options)
        with_api(options, lambda api: sending.run(api, path))
        console.show(sending.document(path), sending.text(path))
        return 0

    sys.exit(run_command(console, command))


class SendWork:
    """Sends messages in as few requests as their sizes allow, and stops at the first failure."""

    def __init__(self, messages: Iterator[Document], total: int | None) -> None:
        self._messages = messages
        self._total = total
        self._sent = 0
        self._duplicates = 0
        self._under_way = 0

    def run(self, api: ApiClient, path: str) -> None:
        progress = Progress("sending", self._total)
        try:
            for batch in batches(self._messages):
                self._under_way = len(batch)
                self._send(api, path, batch)
                self._under_way = 0
                progress.advance(len(batch))
        except KeyboardInterrupt as error:
            raise Interrupted(f"interrupted: {self.text(path)}{self._doubt()}") from error
        finally:
            progress.end()

    def document(self, path: str) -> Document:
        return {"entity": path, "sent": self._sent, "duplicates": self._duplicates}

    def text(self, path: str) -> str:
        dropped = f", {self._duplicates} dropped as duplicates" if self._duplicates else ""
        return f"sent {counted(self._sent, 'message')} to {path}{dropped}"

    def _doubt(self) -> str:
        count = self._under_way
        return f"; the last request may have sent {counted(count, 'message')} more" if count else ""

    def _send(self, api: ApiClient, path: str, batch: list[Document]) -> None:
        before = self._sent + self._duplicates
        try:
            answer = api.post(f"entities/{path}/messages", {"messages": batch})
        except (Refused, ServerUnavailable) as failure:
            text = self._reason(str(failure), api, path, batch[0])
            if before:
                text = f"{text} ({counted(before, 'message')} sent before)"
            raise type(failure)(text) from failure
        self._sent += whole(answer, "sent")
        self._duplicates += whole(answer, "duplicates")
        failures = documents(answer, "failures")
        if failures:
            raise self._failure(failures, before)

    def _reason(self, text: str, api: ApiClient, path: str, first: Document) -> str:
        """The reason for a refusal, in the numbers and options that the user knows."""
        if NO_SESSION in text:
            return f"{path} requires sessions, and a message has none: give --session ID"
        before = self._sent + self._duplicates
        place = _POSITION.match(text)
        if place is not None:
            return f"message {before + int(place[1]) + 1}{text[place.end() :]}"
        if not text.startswith("The body has more than"):
            return text
        size_bytes = len(body_bytes(first))
        limit_bytes = message_bytes_max(api, path)
        if size_bytes > limit_bytes:
            return (
                f"message {before + 1} has {size_bytes:,} bytes; {path} allows at most "
                f"{limit_bytes:,}"
            )
        return (
            f"message {before + 1} has {size_bytes:,} bytes, more than a request of the JSON API "
            "can have: send it with an SDK"
        )

    def _failure(self, failures: list[Document], before: int) -> Refused | ServerUnavailable:
        first = failures[0]
        is_refused = first.get("code") not in ("server-busy", "outcome-unknown")
        kind = Refused if is_refused else ServerUnavailable
        unknown = sum(bool(each.get("is_unknown")) for each in failures)
        doubt = f", {unknown} of which may be stored nevertheless" if unknown else ""
        position = before + whole(first, "position") + 1
        return kind(
            f"{counted(self._sent, 'message')} sent and {len(failures)} not{doubt}; the first of "
            f"these is message {position}: {first.get('message')}"
        )


def message_bytes_max(api: ApiClient, path: str) -> int:
    """The size of the largest message that an entity accepts."""
    described = api.get(f"entities/{path}").get("description")
    return 1024 * whole(dict(described) if isinstance(described, dict) else {}, "message_kb_max")


def batches(messages: Iterator[Document]) -> Iterator[list[Document]]:
    """As many messages as one request may have, at least one."""
    batch: list[Document] = []
    size_bytes = 0
    for message in messages:
        message_bytes = len(json.dumps(message))
        is_full = len(batch) >= BATCH_COUNT_MAX or size_bytes + message_bytes > BATCH_BYTES_MAX
        if batch and is_full:
            yield batch
            batch, size_bytes = [], 0
        batch.append(message)
        size_bytes += message_bytes
    if batch:
        yield batch


def _planned(body: str | None, properties: tuple[str, ...], options: Options) -> SendWork:
    said = members_from(options, properties, datetime.now(UTC))
    file, given = text_option(options, "file"), options.get("count")
    is_lines, is_documents = bool(options.get("is_lines")), bool(options.get("is_documents"))
    if is_lines and is_documents:
        raise Usage("--lines and --jsonl read the same lines differently: give one of them")
    if body is not None and (file is not None or is_lines or is_documents):
        raise Usage("a BODY cannot be given with --file, --lines or --jsonl")
    if is_lines or is_documents:
        if given is not None:
            raise Usage("--count repeats one message and cannot be used with lines")
        source = MessageSource(file)
        read = source.lines() if is_lines else source.documents()
        return SendWork((_with(message, said) for message in read), None)
    count = given if isinstance(given, int) else 1
    if count > 1 and "message_id" in said:
        raise Usage("--count sends several messages, which cannot share one --message-id")
    single = body_document(os.fsencode(body)) if body is not None else MessageSource(file).body()
    return SendWork(repeat(_with(single, said), count), count)


def _with(message: Document, said: Document) -> Document:
    """A message with the options' members; properties are added to its own."""
    together = {**message, **said}
    own, more = message.get("properties"), said.get("properties")
    if isinstance(own, dict) and isinstance(more, dict):
        together["properties"] = {**own, **more}
    return together
