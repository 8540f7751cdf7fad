"""The cluster in the JSON API: its nodes, slots and stores (R39-R41)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Final, final

from msgspec import Struct

from shardbus.broker.cluster.slot_map import PROTOCOL
from shardbus.core.namespace.access import MANAGE
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows
from shardbus.gateway.http.api.route import Route
from shardbus.gateway.http.document import Count, told
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.observing.cluster import ClusterView, free_slots
from shardbus.stores.base.sight import SeenMember, Sight

SERVING: Final = "serving"
LEAVING: Final = "leaving"
SILENT: Final = "silent"
SERVED: Final = "served"
FREE: Final = "free"

# A node without a beat for this long is shown as silent. Dead nodes are not in the database.
SILENT_MS: Final = 3_000
# Number of changes of owners that are shown.
TAKEOVERS_MAX: Final = 50


class ClusterStore(Struct, kw_only=True):
    index: Count
    address: Annotated[str, told("The database, without user and password.")]
    problem: Annotated[str, told("Why this node cannot reach it; empty otherwise.")]
    timeline: Annotated[Count, told("Raised by each failover to a standby.")]
    slots: Count
    free_slots: Annotated[Count, told("Slots that no node serves at this moment.")]
    size_bytes: Count
    oldest_snapshot_ms: Annotated[
        Count,
        told("Age of the oldest snapshot, which prevents later dead rows from being vacuumed."),
    ]
    standbys: Annotated[Count, told("Standbys that are connected to the database.")]
    lag_bytes: Annotated[
        Count | None,
        told(
            "Bytes that the slowest standby has not stored yet; null without a standby, or if the "
            "user of the database may not see them."
        ),
    ]


class ClusterNode(Struct, kw_only=True):
    name: str
    roles: list[str]
    address: Annotated[str, told("Where gateways reach its broker; empty without one.")]
    version: str
    protocol: Annotated[
        Count | None, told("Its version of the protocol; null if its release does not report one.")
    ]
    state: Annotated[str, told("serving, leaving, or silent.")]
    beat_age_ms: Annotated[
        Count, told("When the node was last seen, by the clock of the database.")
    ]
    started_at: str | None
    slots: Annotated[Count, told("Number of slots of its broker.")]


class ClusterSlot(Struct, kw_only=True):
    slot: Count
    store: Count
    state: Annotated[str, told("served or free.")]
    owner: Annotated[str, told("The owner, or the last owner of a free slot.")]
    epoch: Annotated[Count, told("Raised whenever the slot gets another owner.")]
    commits: Count
    taken_at: str | None
    taken_from: str


class Takeover(Struct, kw_only=True):
    slot: Count
    at: str
    giver: Annotated[str, told("The previous owner; empty if there was none.")]
    taker: str


class Cluster(Struct, kw_only=True):
    is_clustered: Annotated[bool, told("Whether this is a node of a cluster.")]
    cluster_id: str
    nodes: list[ClusterNode]
    stores: list[ClusterStore]
    slots: list[ClusterSlot]
    takeovers: Annotated[list[Takeover], told("The latest change of each slot, newest first.")]
    given_total: Annotated[
        Count, told("Slots that were handed over since this gateway started; 0 without a gateway.")
    ]
    taken_total: Annotated[
        Count, told("Slots that were taken from silent brokers since this gateway started.")
    ]


@final
class ClusterPages:
    """A Group of the API. Without a view this is a single server."""

    def __init__(self, view: ClusterView | None) -> None:
        self._view = view

    def rows(self) -> list[Row]:
        return [
            shows(
                Route(
                    "/api/v1/cluster",
                    "The nodes, slots and stores of the cluster, as this node sees them.",
                    Cluster,
                    right=MANAGE,
                ),
                self._show,
            )
        ]

    async def _show(self, call: Call[Nothing]) -> Cluster:
        view = self._view
        if view is None:
            return Cluster(
                is_clustered=False,
                cluster_id="",
                nodes=[],
                stores=[],
                slots=[],
                takeovers=[],
                given_total=0,
                taken_total=0,
            )
        found = cluster_document(view.cluster_id, view.addresses, view.sights, view.outages)
        found.given_total, found.taken_total = view.given, view.taken
        return found


def cluster_document(
    cluster_id: str,
    addresses: Sequence[str],
    sights: Sequence[Sight | None],
    outages: Sequence[str],
) -> Cluster:
    """`sights[i]` is the latest view of the store at `addresses[i]`, if there is one."""
    slots = [each for index, sight in enumerate(sights) for each in _slots(index, sight)]
    slots.sort(key=lambda one: one.slot)
    taken = [slot for slot in slots if slot.taken_at is not None]
    taken.sort(key=lambda one: one.taken_at or "", reverse=True)
    return Cluster(
        is_clustered=True,
        cluster_id=cluster_id,
        nodes=_nodes(sights, slots),
        stores=[
            _store(index, addresses[index], sight, outages[index])
            for index, sight in enumerate(sights)
        ],
        slots=slots,
        takeovers=[
            Takeover(slot=one.slot, at=one.taken_at or "", giver=one.taken_from, taker=one.owner)
            for one in taken[:TAKEOVERS_MAX]
        ],
        given_total=0,
        taken_total=0,
    )


def _store(index: int, address: str, sight: Sight | None, outage: str) -> ClusterStore:
    return ClusterStore(
        index=index,
        address=address,
        problem=outage,
        timeline=0 if sight is None else sight.timeline,
        slots=0 if sight is None else len(sight.slots),
        free_slots=0 if sight is None else free_slots(sight),
        size_bytes=0 if sight is None else sight.size_bytes,
        oldest_snapshot_ms=0 if sight is None else sight.oldest_snapshot_ms,
        standbys=0 if sight is None else sight.standbys,
        lag_bytes=None if sight is None else sight.lag_bytes,
    )


def _slots(index: int, sight: Sight | None) -> list[ClusterSlot]:
    if sight is None:
        return []
    living = {member.incarnation for member in sight.members}
    return [
        ClusterSlot(
            slot=slot.slot,
            store=index,
            state=SERVED if slot.incarnation in living else FREE,
            owner=slot.owner,
            epoch=slot.epoch,
            commits=slot.commits,
            taken_at=format_moment(slot.taken_at_ms) if slot.taken_at_ms else None,
            taken_from=slot.taken_from,
        )
        for slot in sight.slots
    ]


def _nodes(sights: Sequence[Sight | None], slots: Sequence[ClusterSlot]) -> list[ClusterNode]:
    """All brokers, and the nodes that are only gateways."""
    nodes: dict[str, ClusterNode] = {}
    for sight in sights:
        for member in sight.members if sight is not None else ():
            node = _node(member.about, member.name, member.beat_age_ms, _state(member))
            known = nodes.get(member.name)
            if known is None or known.beat_age_ms > node.beat_age_ms:
                nodes[member.name] = node
        for gateway in sight.gateways if sight is not None else ():
            state = SERVING if gateway.age_ms <= 4 * SILENT_MS else SILENT
            node = _node(gateway.about, gateway.name, gateway.age_ms, state)
            nodes.setdefault(gateway.name, node)
    for slot in slots:
        if slot.state == SERVED and slot.owner in nodes:
            nodes[slot.owner].slots += 1
    return [nodes[name] for name in sorted(nodes)]


def _state(member: SeenMember) -> str:
    if member.beat_age_ms > SILENT_MS:
        return SILENT
    return LEAVING if member.is_leaving else SERVING


def _node(about: str, name: str, age_ms: int, state: str) -> ClusterNode:
    try:
        found: object = json.loads(about)
    except ValueError:
        found = {}
    said = found if isinstance(found, dict) else {}
    roles, started = said.get("roles"), said.get("started_at_ms")
    protocol = said.get(PROTOCOL)
    return ClusterNode(
        name=name,
        roles=[str(role) for role in roles] if isinstance(roles, list) else [],
        address=str(said.get("address", "")),
        version=str(said.get("version", "")),
        protocol=protocol if isinstance(protocol, int) else None,
        state=state,
        beat_age_ms=age_ms,
        started_at=format_moment(started) if isinstance(started, int) else None,
        slots=0,
    )
