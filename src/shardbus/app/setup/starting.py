"""Set-up of a bus that is about to serve: through its own site, before any client can reach it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final, final

from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.client import Answer, Management
from shardbus.app.cli.failures import CommandError, ServerUnavailable
from shardbus.app.cli.sas import Credential
from shardbus.app.setup.application import apply_plan
from shardbus.app.setup.current import Current
from shardbus.app.setup.difference import plan
from shardbus.app.setup.model import ENTITIES_MAX, Blueprint
from shardbus.app.setup.step import Step
from shardbus.gateway.http.server.message import HttpRequest
from shardbus.gateway.http.server.site import ANSWER_MS_MAX, Site

log = logging.getLogger(__name__)

# Another gateway may be setting up the same namespace: a refusal counts only without progress. A
# broker may be late, too.
REFUSALS_MAX: Final = 3
ATTEMPTS_MAX: Final = 20
RETRY_S: Final = 0.5
_ENDPOINT: Final = "http://localhost"


@final
class SiteTransport:
    """Asks a site of this process, from a thread other than its loop's. A `client.Transport`."""

    def __init__(self, site: Site, loop: asyncio.AbstractEventLoop) -> None:
        self._site = site
        self._loop = loop

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        lowered = {name.lower(): value for name, value in headers.items()} | {"host": "localhost"}
        request = HttpRequest(method, target, lowered, body or b"", is_secure=False)
        asked = asyncio.run_coroutine_threadsafe(self._site.respond(request), self._loop)
        try:
            response = asked.result(ANSWER_MS_MAX / 1000)
        except TimeoutError as error:
            raise ServerUnavailable("the bus did not answer while it was set up") from error
        return Answer(response.status, response.body)


async def set_up(site: Site, blueprint: Blueprint, credential: Credential) -> None:
    """Bring the namespace to the blueprint; raises the failures of commands."""
    transport = SiteTransport(site, asyncio.get_running_loop())
    for warning in blueprint.warnings:
        log.warning("%s", warning)
    fewest, fruitless = -1, 0
    for attempt in range(1, ATTEMPTS_MAX + 1):
        left, failure = await asyncio.to_thread(_attempt, transport, blueprint, credential)
        if failure is None:
            return
        if fewest < 0 or left < fewest:
            fewest, fruitless = left, 0
        fruitless += not isinstance(failure, ServerUnavailable)
        if fruitless == REFUSALS_MAX or attempt == ATTEMPTS_MAX:
            raise failure
        await asyncio.sleep(RETRY_S)


def _attempt(
    transport: SiteTransport, blueprint: Blueprint, credential: Credential
) -> tuple[int, CommandError | None]:
    """How many steps there were, and why not all were done.

    Raises Blocked, since trying again does not help.
    """
    management = Management(transport, _ENDPOINT, credential, clock=time.time)
    current = Current(management, ApiClient(transport, _ENDPOINT, credential, clock=time.time))
    try:
        found = plan(blueprint, current, deletes_missing=False)
    except CommandError as error:
        return ENTITIES_MAX, error
    return len(found.todo()), apply_plan(found, _log).failure


def _log(step: Step) -> None:
    log.info("set up: %s", step.lines())
