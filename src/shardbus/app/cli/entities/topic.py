"""`shardbus topic ...`: create, show, list, update and delete through the management API."""

from typing import Final

from shardbus.app.cli.console import Json, size_text
from shardbus.app.cli.entities.atom import TOPIC, AtomDescription
from shardbus.app.cli.entities.commands import EntityView, Row, entity_group
from shardbus.app.cli.entities.entity import count_text, fragments_text, limit_text


def _row(described: AtomDescription) -> Row:
    return (
        described.name,
        fragments_text(described),
        described.elements.get("SubscriptionCount", "0"),
        count_text(described, described.counts["scheduled"]),
        size_text(described.size_bytes),
        limit_text(described.size_max_mb),
    )


def _sizes(described: AtomDescription) -> list[Row]:
    elements = described.elements
    return [
        ("subscriptions", elements.get("SubscriptionCount", "")),
        ("  SQL filters", elements.get("SqlFilterCount", "")),
        ("  correlation filters", elements.get("CorrelationFilterCount", "")),
        ("scheduled", count_text(described, described.counts["scheduled"])),
    ]


def _members(described: AtomDescription) -> dict[str, Json]:
    count = described.elements.get("SubscriptionCount", "0")
    return {
        "subscription_count": int(count) if count.isdigit() else None,
        "scheduled_count": described.counts["scheduled"],
    }


topic: Final = entity_group(
    EntityView(
        TOPIC,
        shown="sizes, fragments, subscriptions, properties",
        deleted="with its subscriptions and every message in them",
        heading=("NAME", "FRAGMENTS", "SUBSCRIPTIONS", "SCHEDULED", "SIZE", "MAXIMUM SIZE"),
        row=_row,
        sizes=_sizes,
        members=_members,
    )
)
