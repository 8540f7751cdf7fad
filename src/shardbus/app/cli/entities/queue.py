"""`shardbus queue ...`: create, show, list, update and delete through the management API."""

from typing import Final

from shardbus.app.cli.console import Json
from shardbus.app.cli.entities.atom import QUEUE, AtomDescription
from shardbus.app.cli.entities.commands import EntityView, Row, entity_group
from shardbus.app.cli.entities.entity import count_text, fragments_text, limit_text


def _row(described: AtomDescription) -> Row:
    return (
        described.name,
        fragments_text(described),
        count_text(described, described.counts["active"]),
        count_text(described, described.counts["dead_letter"]),
        limit_text(described.size_max_mb),
    )


def _sizes(described: AtomDescription) -> list[Row]:
    return [
        ("messages", count_text(described, described.message_count)),
        *(
            (f"  {kind.replace('_', ' ')}", count_text(described, n))
            for kind, n in described.counts.items()
        ),
    ]


def _members(described: AtomDescription) -> dict[str, Json]:
    return {
        "message_count": described.message_count,
        "counts": described.counts,
        "warnings": described.warnings,
    }


queue: Final = entity_group(
    EntityView(
        QUEUE,
        shown="sizes, fragments, counts, properties",
        deleted="and every message in it",
        heading=("NAME", "FRAGMENTS", "MESSAGES", "DEAD LETTERS", "MAXIMUM SIZE"),
        row=_row,
        sizes=_sizes,
        members=_members,
    )
)
