"""The optional parts of the JSON API."""

from __future__ import annotations

from shardbus.broker.bus import Bus
from shardbus.gateway.http.api.bulk.blocks import BlockPages
from shardbus.gateway.http.api.bulk.lifecycle import LifecyclePages
from shardbus.gateway.http.api.bulk.readers import ReaderPages
from shardbus.gateway.http.api.bulk.stages import ReadBatch, StagePages
from shardbus.gateway.http.api.call import Group
from shardbus.gateway.http.api.entities.managing import ManagementPages
from shardbus.gateway.http.api.entities.maps import MapPages
from shardbus.gateway.http.api.messages.routes import MessagesApi
from shardbus.gateway.http.api.messages.sessions import SessionPages
from shardbus.gateway.http.api.messages.waiting import WaitingPages
from shardbus.gateway.http.api.operations.access import AccessPages
from shardbus.gateway.http.api.operations.backups import BackupPages, Backups
from shardbus.gateway.http.api.operations.cluster import ClusterPages
from shardbus.gateway.http.api.operations.insight import InsightPages
from shardbus.gateway.http.api.operations.jobs import JobPages
from shardbus.gateway.http.api.operations.orphans import OrphanPages
from shardbus.gateway.http.api.operations.pipelines import PipelinePages, Pipelines, T
from shardbus.gateway.http.api.operations.system import ServerFacts, SystemPages
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.api.search.pages import SearchPages
from shardbus.gateway.http.api.search.rule_trial import RuleTrialPages
from shardbus.gateway.http.jobs.known import KeptJobs
from shardbus.gateway.http.observing.broker_health import Brokers
from shardbus.gateway.http.observing.cluster import ClusterView
from shardbus.gateway.http.observing.overview import Overviews
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.gateway.http.server.throttling import HttpThrottle


def api_groups(  # noqa: PLR0913 - the parts of the bus that have routes, by keyword
    bus: Bus,
    counts: HttpCounts,
    throttle: HttpThrottle | None = None,
    *,
    read_batch: ReadBatch | None = None,
    pipelines: Pipelines[T] | None = None,
    backups: Backups | None = None,
    overviews: Overviews | None = None,
    facts: ServerFacts | None = None,
    jobs: KeptJobs | None = None,
    brokers: Brokers = list,
    cluster: ClusterView | None = None,
) -> list[Group]:
    """In the order in which the description lists them; stages need a reader of AMQP batches."""
    places = EntityPlaces(bus, counts, throttle)
    known = ServerFacts() if facts is None else facts
    groups: list[Group] = [
        ManagementPages(bus.namespace, bus.authorizer),
        MessagesApi(bus, counts, throttle),
        SearchPages(places),
        WaitingPages(places),
        SessionPages(places, lambda index: brokers()[index].name),
        RuleTrialPages(places),
        AccessPages(bus.namespace, bus.clock, known),
        MapPages(bus.namespace),
        OrphanPages(bus.namespace),
        ReaderPages(bus, places),
        LifecyclePages(places),
        BlockPages(places),
    ]
    if jobs is not None:
        groups.append(JobPages(places, jobs))
    if overviews is not None:
        groups.append(InsightPages(bus.namespace, overviews))
        name = bus.namespace.settings.name
        groups.append(SystemPages(known, name, bus.clock, overviews, brokers))
    if read_batch is not None:
        groups.append(StagePages(places, read_batch))
    if pipelines is not None:
        groups.append(PipelinePages(pipelines))
    if backups is not None:
        groups.append(BackupPages(backups))
    groups.append(ClusterPages(cluster))
    return groups
