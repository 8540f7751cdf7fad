"""`shardbus queue ...`: create, show, list, update and delete through the management API."""

import sys
from collections.abc import Callable

import click

from shardbus.app.access import Options, access_from, access_options
from shardbus.app.atom import Queue
from shardbus.app.client import Management
from shardbus.app.console import Console, Json, run_command, table
from shardbus.app.duration import to_words
from shardbus.app.failures import Usage
from shardbus.app.queue_options import MB_PER_GB, elements_from, queue_options


def _name() -> click.Argument:
    return click.Argument(["name"])


@click.group()
def queue() -> None:
    """Create, show, list, update and delete queues."""


@queue.command(params=[_name(), *queue_options(is_update=False), *access_options()])
def create(name: str, **options: str | int | bool | None) -> None:
    """Create the queue NAME."""
    _run(options, lambda bus, to: _show(to, bus.create_queue(name, elements_from(options))))


@queue.command(params=[_name(), *access_options()])
def show(name: str, **options: str | int | bool | None) -> None:
    """Show the queue NAME: sizes, fragments, counts, properties."""
    _run(options, lambda bus, to: _show(to, bus.queue(name)))


@queue.command("list", params=access_options())
def list_queues(**options: str | int | bool | None) -> None:
    """List the queues of the namespace."""
    _run(options, lambda bus, to: _show_all(to, bus.queues()))


@queue.command(params=[_name(), *queue_options(is_update=True), *access_options()])
def update(name: str, **options: str | int | bool | None) -> None:
    """Change properties of the queue NAME."""
    _run(options, lambda bus, to: _update(bus, to, name, options))


@queue.command(params=[_name(), *access_options()])
def delete(name: str, **options: str | int | bool | None) -> None:
    """Delete the queue NAME and every message in it."""
    _run(options, lambda bus, to: _delete(bus, to, name))


def _run(options: Options, act: Callable[[Management, Console], None]) -> None:
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        act(access_from(options).management(), console)
        return 0

    sys.exit(run_command(console, command))


def _update(bus: Management, to: Console, name: str, options: Options) -> None:
    elements = elements_from(options)
    if not elements:
        raise Usage("nothing to change: name a property, as in --lock-duration 30s")
    _show(to, bus.update_queue(name, elements))


def _delete(bus: Management, to: Console, name: str) -> None:
    bus.delete_queue(name)
    to.show({"name": name, "deleted": True}, f"deleted {name}")


def _show(to: Console, described: Queue) -> None:
    to.show(document(described), table(_rows(described)))


def _show_all(to: Console, queues: list[Queue]) -> None:
    heading = ("NAME", "FRAGMENTS", "MESSAGES", "DEAD LETTERS", "MAXIMUM SIZE")
    rows = [
        (
            described.name,
            _fragments(described),
            str(described.counts["active"]),
            str(described.counts["dead_letter"]),
            _size(described.size_max_mb),
        )
        for described in queues
    ]
    to.show([document(described) for described in queues], table([heading, *rows]))


def document(described: Queue) -> dict[str, Json]:
    """The JSON form of a queue; sizes are those of the whole entity (R9)."""
    return {
        "name": described.name,
        "partitioned": described.is_partitioned,
        "fragment_count": described.fragment_count,
        "size_max_mb": described.size_max_mb,
        "size_bytes": described.size_bytes,
        "message_count": described.message_count,
        "counts": described.counts,
        "properties": described.elements,
    }


def _rows(described: Queue) -> list[tuple[str, ...]]:
    elements = described.elements
    rows = [
        ("name", described.name),
        ("status", elements.get("Status", "")),
        ("availability", elements.get("EntityAvailabilityStatus", "")),
        ("fragments", _fragments(described)),
        ("maximum size", _size_line(described)),
        ("size", f"{described.size_bytes} bytes"),
        ("messages", str(described.message_count)),
        *((f"  {kind.replace('_', ' ')}", str(n)) for kind, n in described.counts.items()),
        ("lock duration", to_words(elements.get("LockDuration", ""))),
        ("maximum deliveries", elements.get("MaxDeliveryCount", "")),
        ("default time to live", to_words(elements.get("DefaultMessageTimeToLive", ""))),
        ("dead-letter on expiry", elements.get("DeadLetteringOnMessageExpiration", "")),
        ("sessions", elements.get("RequiresSession", "")),
        ("duplicate detection", elements.get("RequiresDuplicateDetection", "")),
        ("created", elements.get("CreatedAt", "")),
    ]
    return [row for row in rows if row[1]]


def _fragments(described: Queue) -> str:
    return "not told" if described.fragment_count is None else str(described.fragment_count)


def _size_line(described: Queue) -> str:
    whole = _size(described.size_max_mb)
    count = described.fragment_count
    if count is None or count == 1:
        return whole
    return f"{whole} ({_size(described.size_max_mb // count)} x {count} fragments)"


def _size(megabytes: int) -> str:
    whole, rest = divmod(megabytes, MB_PER_GB)
    return f"{whole} GB" if rest == 0 else f"{megabytes} MB"
