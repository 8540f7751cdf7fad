"""A namespace in this process that files are applied to: through its site, or over HTTP."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.client import Management
from shardbus.app.cli.sas import Credential
from shardbus.app.setup.application import Applied, apply_plan
from shardbus.app.setup.current import Current
from shardbus.app.setup.difference import plan
from shardbus.app.setup.model import Blueprint
from shardbus.app.setup.starting import SiteTransport
from shardbus.app.setup.step import SetupPlan
from tests.unit.gateway.site import Endpoint

T = TypeVar("T")


class Town(Endpoint):
    """An endpoint with a view from inside."""

    def visited(self, work: Callable[[Current], T]) -> T:
        """Do something with the namespace from a thread, as a command does."""

        async def serve() -> T:
            transport = SiteTransport(self.site, asyncio.get_running_loop())
            return await asyncio.to_thread(lambda: work(self._current(transport)))

        return asyncio.run(serve())

    def planned(self, blueprint: Blueprint, *, deletes_missing: bool = False) -> SetupPlan:
        return self.visited(
            lambda current: plan(blueprint, current, deletes_missing=deletes_missing)
        )

    def applied(self, blueprint: Blueprint, *, deletes_missing: bool = False) -> Applied:
        return self.visited(
            lambda current: apply_plan(
                plan(blueprint, current, deletes_missing=deletes_missing), lambda step: None
            )
        )

    def made(self, blueprint: Blueprint) -> None:
        """Apply what has to work."""
        applied = self.applied(blueprint)
        assert applied.failure is None, applied.failure

    def everything(self, *, with_keys: bool = False) -> Blueprint:
        return self.visited(lambda current: current.everything(with_keys=with_keys))

    def _current(self, transport: SiteTransport) -> Current:
        now_s = self.clock.now_ms() // 1000
        management = Management(transport, "http://localhost", Credential(), clock=lambda: now_s)
        api = ApiClient(transport, "http://localhost", Credential(), clock=lambda: now_s)
        return Current(management, api)


def signs(plan: SetupPlan) -> list[str]:
    """The plan in words: sign, kind and name of each step that is not the same."""
    steps = (step for step in plan.steps if step.sign != "=")
    return [f"{step.sign} {step.kind} {step.name}" for step in steps]
