"""`shardbus migrate`: move entities and their messages from one namespace to another."""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardbus.app.cli.access import ClientAccess, Options, text_option
from shardbus.app.cli.console import Console, Json, counted, note, run_command
from shardbus.app.cli.duration import to_ms
from shardbus.app.cli.entities.atom import QUEUE, TOPIC
from shardbus.app.cli.failures import CommandError, Interrupted, ServerUnavailable, Usage
from shardbus.app.cli.importing import (
    entities_option,
    namespace_option,
    read_entities,
    side_access,
    without_access_rules,
)
from shardbus.app.cli.progress import Progress
from shardbus.app.cli.tables import fitted
from shardbus.app.setup.current import Current, visiting
from shardbus.app.setup.model import Blueprint, DeclaredEntity

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient

    from shardbus.app.migrate.entities import TargetEntities
    from shardbus.app.migrate.journal import Journal
    from shardbus.app.migrate.line_move import Line, Moved

ACTIVE: Final = "Active"
SAME: Final = "--from and --to are the same namespace"
AGAIN: Final = "run the same command again to continue"
_MEMBERS: Final = (
    "line", "sent", "scheduled", "removed", "known", "sessions", "left_deferred", "left_locked",
    "in_doubt", "left_late",
)  # fmt: skip


@click.command(
    params=[
        namespace_option("--from", "The namespace to read.", is_required=True),
        namespace_option("--to", "The namespace to write.", is_required=True),
        click.Option(["--from-ca"], metavar="FILE", help="Certificates to trust at the source."),
        click.Option(["--to-ca"], metavar="FILE", help="Certificates to trust at the target."),
        entities_option(),
        click.Option(
            ["--drain", "is_draining"],
            is_flag=True,
            help="Remove each message from the source when the target has it.",
        ),
        click.Option(
            ["--dead-letters", "has_dead_letters"],
            is_flag=True,
            help="Move dead letters too, to the dead letters of the target.",
        ),
        click.Option(
            ["--journal"],
            metavar="FILE",
            help="File that records the moved messages.  [default: ./shardbus-migrate-….journal]",
        ),
        click.Option(["--json", "is_json"], is_flag=True, help="Print one JSON document."),
    ]
)
def migrate(entities: tuple[str, ...], **options: str | int | bool | None) -> None:
    """Move queues and topics with their messages from one namespace to another, live.

    Either namespace may be the live service or a Shardbus. Entities that the target lacks are
    created. A journal makes the command repeatable: after an interruption or a crash, run the same
    command to continue; it does not send messages again that it finds on the target. Without
    --drain the source stays unchanged. Needs the official SDK: `pip install 'shardbus[migrate]'`.
    """
    console = Console(bool(options.get("is_json")))
    sys.exit(run_command(console, lambda: _run(console, entities, options)))


def _run(console: Console, entities: tuple[str, ...], options: Options) -> int:
    try:
        from azure.core.exceptions import AzureError

        from shardbus.app.migrate.journal import Journal
        from shardbus.app.migrate.typed import kept_types
    except ImportError as error:
        raise Usage(
            "the official SDK is not installed: run `pip install 'shardbus[migrate]'`"
        ) from error
    source, target = side_access(options, "from"), side_access(options, "to")
    if source.endpoint == target.endpoint:
        raise Usage(SAME)
    moved: list[Moved] = []
    path = _journal_path(options, source, target)
    with Journal(path, source.endpoint, target.endpoint) as kept, kept_types():
        try:
            _migrate(source, target, kept, entities, options, moved)
        except KeyboardInterrupt as error:
            raise Interrupted(f"interrupted: {_total(moved)}; {AGAIN}") from error
        except (AzureError, ValueError) as error:
            text = _reason(error, source, target)
            raise ServerUnavailable(f"{text} ({_total(moved)}; {AGAIN})") from error
    console.show(_document(moved), _shown(moved))
    return 0


def _reason(error: Exception, source: ClientAccess, target: ClientAccess) -> str:
    """Why the SDK failed. It hides, for instance, that a token has expired, or which namespace
    does not answer: each is asked once more, without the SDK.
    """
    for flag, access in (("--from", source), ("--to", target)):
        try:
            with visiting(access) as asked:
                asked.management.created_at()
        except CommandError as found:
            return f"{flag}: {found}"
    return " ".join(str(error).split())


def _migrate(
    source: ClientAccess,
    target: ClientAccess,
    journal: "Journal",
    names: tuple[str, ...],
    options: Options,
    moved: "list[Moved]",
) -> None:
    from shardbus.app.migrate.entities import TargetEntities, are_one

    is_json = bool(options.get("is_json"))
    with visiting(source) as there, visiting(target) as here:
        if are_one(there, here):
            raise Usage(SAME)
        found = without_access_rules(read_entities(there, names, with_keys=False))
        _check_sessions(found, options)
        tell = note if not is_json else _silent
        prepared = TargetEntities((there, here), source.endpoint, found, journal, tell)
        prepared.prepare()
        for entity in found.of_kind(QUEUE):
            _move(there, prepared, entity, options, journal, moved)
        for topic in found.of_kind(TOPIC):
            for entity in found.subscriptions_of(topic):
                _move(there, prepared, entity, options, journal, moved)
            prepared.finish(topic)


def _move(
    there: Current,
    prepared: "TargetEntities",
    entity: DeclaredEntity,
    options: Options,
    journal: "Journal",
    moved: "list[Moved]",
) -> None:
    from azure.servicebus import ServiceBusClient

    from shardbus.app.migrate.line_move import LineMove

    if entity.elements.get("ForwardTo"):
        # An entity that forwards has no messages: its destination has them.
        return
    status = entity.elements.get("Status", ACTIVE)
    if status != ACTIVE:
        note(f"{entity.path} is {status} on the source: its messages are not moved")
        return
    for line in _lines(prepared, entity, has_dead_letters=bool(options.get("has_dead_letters"))):
        progress = Progress(f"moving {line.name}")
        with (
            _client(options, "from", ServiceBusClient) as source,
            _client(options, "to", ServiceBusClient) as target,
        ):
            work = LineMove(
                (source, target),
                line,
                journal,
                is_draining=bool(options.get("is_draining")),
                advance=progress.advance,
                counts=(
                    _counter(there, entity, "dead_letter" if line.is_dead else "active"),
                    partial(prepared.waiting, entity.kind, entity.path),
                ),
            )
            moved.append(work.moved)
            try:
                work.run()
            finally:
                progress.end()


def _lines(
    prepared: "TargetEntities", entity: DeclaredEntity, *, has_dead_letters: bool
) -> "list[Line]":
    from shardbus.app.migrate.line_move import Line

    main = Line(
        entity.path,
        prepared.life(entity.kind, entity.path),
        tag=entity.name if entity.topic else "",
        detects_duplicates=prepared.detects_duplicates(entity.topic or entity.path),
        is_closed=bool(entity.topic) and prepared.is_finished(entity.topic),
        has_sessions=entity.elements.get("RequiresSession") == "true",
        lock_s=to_ms(entity.elements.get("LockDuration", "1m")) / 1000,
    )
    # Dead letters first: they must be found among the messages of the target's main line.
    return [replace(main, is_dead=True), main] if has_dead_letters else [main]


def _counter(there: Current, entity: DeclaredEntity, name: str) -> Callable[[], int]:
    return lambda: there.management.entity(entity.kind, entity.path).counts[name]


def _silent(text: str) -> None:
    """With --json there is one document and nothing else."""


def _check_sessions(found: Blueprint, options: Options) -> None:
    if options.get("is_draining"):
        return
    for entity in found.entities:
        if entity.elements.get("RequiresSession") == "true":
            raise Usage(
                f"{entity.path} requires sessions, and messages of sessions can be moved in order "
                "only with --drain: add --drain, or name other entities with --entities"
            )


def _client(options: Options, side: str, client: "type[ServiceBusClient]") -> "ServiceBusClient":
    text = text_option(options, f"{side}_namespace") or ""
    trusted = text_option(options, f"{side}_ca")
    if trusted is None:
        return client.from_connection_string(text)
    return client.from_connection_string(text, connection_verify=trusted)


def _journal_path(options: Options, source: ClientAccess, target: ClientAccess) -> Path:
    given = text_option(options, "journal")
    if given is not None:
        return Path(given)
    both = f"{source.endpoint} {target.endpoint}".encode()
    return Path(f"shardbus-migrate-{hashlib.sha256(both).hexdigest()[:8]}.journal")


def _total(moved: "list[Moved]") -> str:
    return f"{counted(sum(each.sent + each.scheduled for each in moved), 'message')} moved"


def _document(moved: "list[Moved]") -> Json:
    return {"lines": [{name: getattr(each, name) for name in _MEMBERS} for each in moved]}


def _shown(moved: "list[Moved]") -> str:
    heading = ("LINE", "SENT", "SCHEDULED", "REMOVED", "KNOWN", "SESSIONS")
    rows = [
        (each.line, *(str(getattr(each, name.lower())) for name in heading[1:])) for each in moved
    ]
    told = [fitted([heading, *rows], cut={}, optional=("SESSIONS", "KNOWN", "SCHEDULED"))]
    for each in moved:
        if each.left_deferred:
            told.append(f"{each.line}: {counted(each.left_deferred, 'deferred message')} left")
        if each.left_locked:
            told.append(
                f"{each.line}: {counted(each.left_locked, 'message')} left, locked by receivers: "
                f"{AGAIN}"
            )
        if each.left_late:
            told.append(
                f"{each.line}: {counted(each.left_late, 'message')} left that came after the topic "
                "was moved: receive them from the source, or delete the topic on the target and "
                "run the same command again"
            )
        if each.in_doubt:
            told.append(
                f"{each.line}: {counted(each.in_doubt, 'message')} sent again, because an earlier "
                "run was killed while sending and they are not on the target"
            )
    return "\n".join(told)
