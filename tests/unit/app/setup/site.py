"""A namespace in this process that files are applied to, through the site and without a port."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from shardbus.app.api_client import ApiClient
from shardbus.app.client import Management
from shardbus.app.sas import Credential
from shardbus.app.setup.application import Applied, apply_plan
from shardbus.app.setup.current import Current
from shardbus.app.setup.difference import plan
from shardbus.app.setup.model import Blueprint
from shardbus.app.setup.starting import SiteTransport
from shardbus.app.setup.step import Plan
from shardbus.broker.auth import Authorizer, development_rule
from shardbus.broker.clock import SystemClock
from shardbus.broker.namespace import Namespace, NamespaceSettings
from shardbus.core.tier import NEWER, STANDARD, tier_named
from shardbus.gateway.http.admin import Admin
from shardbus.gateway.http.api import Api
from shardbus.gateway.http.api_access import AccessPages
from shardbus.gateway.http.counts import HttpCounts
from shardbus.gateway.http.fragments import FragmentsPage
from shardbus.gateway.http.metrics import Metrics
from shardbus.gateway.http.site import Site
from shardbus.stores.catalogue import MemoryCatalogue
from tests.unit.broker.hosts import FakeHost, InlineWorker

T = TypeVar("T")
NOW_S = 1_800_000_000


class Town:
    """A namespace and its site."""

    def __init__(self, tier: str = STANDARD, generation: str = NEWER) -> None:
        self.clock = SystemClock()
        hosts = [FakeHost(f"b{number}") for number in range(4)]
        settings = NamespaceSettings(tier_named(tier, generation), development_rule())
        catalogue = MemoryCatalogue(self.clock.now_ms())
        self.namespace = Namespace(catalogue, hosts, self.clock, settings, InlineWorker())
        authorizer = Authorizer(self.namespace, self.clock)
        health = self.namespace.problems
        metrics = Metrics(self.namespace, health, HttpCounts())
        fragments = FragmentsPage(self.namespace, [host.name for host in hosts])
        api = Api(
            self.namespace,
            authorizer,
            fragments,
            metrics,
            health=health,
            groups=[AccessPages(self.namespace, self.clock)],
        )
        admin = Admin(self.namespace, authorizer, self.clock)
        self.site = Site(admin, health, self.clock, system="test", api=api)

    def visited(self, work: Callable[[Current], T]) -> T:
        """Do something with the namespace from a thread, as a command does."""

        async def serve() -> T:
            transport = SiteTransport(self.site, asyncio.get_running_loop())
            return await asyncio.to_thread(lambda: work(self._current(transport)))

        return asyncio.run(serve())

    def planned(self, blueprint: Blueprint, *, deletes_missing: bool = False) -> Plan:
        return self.visited(
            lambda current: plan(blueprint, current, deletes_missing=deletes_missing)
        )

    def applied(self, blueprint: Blueprint, *, deletes_missing: bool = False) -> Applied:
        return self.visited(
            lambda current: apply_plan(
                plan(blueprint, current, deletes_missing=deletes_missing), lambda step: None
            )
        )

    def everything(self, *, with_keys: bool = False) -> Blueprint:
        return self.visited(lambda current: current.everything(with_keys=with_keys))

    def _current(self, transport: SiteTransport) -> Current:
        now_s = self.clock.now_ms() // 1000
        management = Management(transport, "http://localhost", Credential(), now_s=now_s)
        api = ApiClient(transport, "http://localhost", Credential(), clock=lambda: now_s)
        return Current(management, api)


def signs(plan: Plan) -> list[str]:
    """The plan in words: sign, kind and name of each step."""
    return [f"{step.sign} {step.kind} {step.name}" for step in plan.steps]
