"""Functions that the commands for queues, topics, subscriptions and rules share."""

import sys
from collections.abc import Callable

from shardbus.app.cli.access import Options, access_from
from shardbus.app.cli.client import Management
from shardbus.app.cli.confirm import confirm
from shardbus.app.cli.console import Console, counted, run_command
from shardbus.app.cli.entities.atom import TOPIC, AtomDescription, EntityKind
from shardbus.app.cli.entities.entity_options import MB_PER_GB
from shardbus.app.cli.failures import Usage


def run(options: Options, act: Callable[[Management, Console], None]) -> None:
    """Call `act` with the bus of the options, and end the process."""
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        act(access_from(options).management(), console)
        return 0

    sys.exit(run_command(console, command))


def changes(elements: dict[str, str]) -> dict[str, str]:
    """The elements that an update changes; Usage when there are none."""
    if not elements:
        raise Usage("nothing to change: give a property, as in --lock-duration 30s")
    return elements


def delete_entity(
    bus: Management, to: Console, kind: EntityKind, path: str, options: Options
) -> None:
    """Ask for confirmation and delete an entity; NotFound if it is of another kind than that of the
    command.
    """
    found = bus.entity(kind, path)
    confirm(options, f"Delete the {kind.word} {path} {_contents(kind, found)}?")
    bus.delete(path)
    to.show({"name": path, "deleted": True}, f"deleted {path}")


def _contents(kind: EntityKind, found: AtomDescription) -> str:
    if kind is TOPIC:
        count = found.elements.get("SubscriptionCount", "0")
        return f"with its {counted(int(count) if count.isdigit() else 0, 'subscription')}"
    sign = "at least " if is_partial(found) else ""
    return f"with {sign}{counted(found.message_count, 'message')}"


def is_partial(found: AtomDescription) -> bool:
    """Whether some fragments did not answer, so that the counts are lower bounds (R29)."""
    return found.elements.get("EntityAvailabilityStatus", "Available") != "Available"


def count_text(found: AtomDescription, count: int) -> str:
    """A count; `≥ 75` when some fragments did not answer."""
    return f"≥ {count}" if is_partial(found) else str(count)


def fragments_text(described: AtomDescription) -> str:
    return "not told" if described.fragment_count is None else str(described.fragment_count)


def size_line(described: AtomDescription) -> str:
    whole = limit_text(described.size_max_mb)
    count = described.fragment_count
    if count is None or count == 1:
        return whole
    return f"{whole} ({limit_text(described.size_max_mb // count)} x {count} fragments)"


def limit_text(megabytes: int) -> str:
    whole, rest = divmod(megabytes, MB_PER_GB)
    return f"{whole} GB" if rest == 0 else f"{megabytes} MB"
