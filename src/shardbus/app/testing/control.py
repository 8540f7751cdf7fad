"""What a test may ask of its bus over HTTP, beside all that clients may: the time, and entities."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, TypeVar, final

import msgspec
from msgspec import Meta, Struct

from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.sas import Credential
from shardbus.app.setup.files import read_json
from shardbus.app.setup.json_text import parse_json
from shardbus.app.setup.starting import set_up
from shardbus.app.testing.clock import MovableClock
from shardbus.broker.broker import Broker
from shardbus.broker.bus import Bus
from shardbus.gateway.http.api.operations.system import Ports
from shardbus.gateway.http.moment import format_moment, parse_moment
from shardbus.gateway.http.server.connection import Respond
from shardbus.gateway.http.server.message import JSON, HttpRequest, HttpResponse
from shardbus.gateway.http.server.site import Site

ROOT: Final = "test-server"
TIME_PATH: Final = f"{ROOT}/time"
ENTITIES_PATH: Final = f"{ROOT}/entities"

ADVANCE_MS_MAX: Final = 100 * 366 * 86_400_000
IDLE_STEP_MS: Final = 30_000
"""Idleness is measured by looks: a look that comes later than a minute counts as a pause."""
SETTLE_S_MAX: Final = 30.0
QUIET_LOOKS: Final = 3
_LOOK_S: Final = 0.0005

B = TypeVar("B")


class Move(Struct, forbid_unknown_fields=True, rename="camel"):
    """What is done with the time, in this order: moved, then stopped or started."""

    advance_ms: Annotated[int, Meta(ge=0, le=ADVANCE_MS_MAX)] | None = None
    advance_to: Annotated[str, Meta(max_length=40)] | None = None
    is_frozen: bool | None = None


class _BadRequest(Exception):
    """The request is invalid; the text says what would be valid."""


@final
class TestControl:
    """The `front.Hooks` of a test server. The token is known to its parent alone."""

    __test__ = False

    def __init__(self, clock: MovableClock, token: str, ready: Callable[[Ports], None]) -> None:
        self._clock = clock
        self._expected = f"Bearer {token}".encode()
        self._ready = ready
        self._brokers: Sequence[Broker] = ()
        self._turn = asyncio.Lock()

    def watch(self, brokers: Sequence[Broker]) -> None:
        self._brokers = brokers

    def ready(self, ports: Ports) -> None:
        self._ready(ports)

    def responding(self, site: Site, bus: Bus) -> Respond:
        async def respond(request: HttpRequest) -> HttpResponse:
            if request.path.partition("/")[0] != ROOT:
                return await site.respond(request)
            return await self._respond(request, site, bus)

        return respond

    async def _respond(self, request: HttpRequest, site: Site, bus: Bus) -> HttpResponse:
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, self._expected):
            return _failed(401, "The token of this test server is needed: Authorization: Bearer …")
        request.vouched()
        answers: dict[tuple[str, str], Callable[[], Awaitable[object]]] = {
            (TIME_PATH, "GET"): self._time,
            (TIME_PATH, "POST"): lambda: self._move(request, bus),
            (ENTITIES_PATH, "POST"): lambda: _declare(request, site, bus),
        }
        answer = answers.get((request.path, request.method))
        if answer is None:
            known = ", ".join(f"{method} /{path}" for path, method in answers)
            return _failed(404, f"A test server answers: {known}.")
        try:
            async with self._turn:
                return HttpResponse(200, JSON, msgspec.json.encode(await answer()))
        except (_BadRequest, CommandError) as error:
            return _failed(400, str(error))

    async def _time(self) -> object:
        now_ms = self._clock.now_ms()
        return {"now": format_moment(now_ms), "nowMs": now_ms, "isFrozen": self._clock.is_frozen}

    async def _move(self, request: HttpRequest, bus: Bus) -> object:
        move = _read(request, Move)
        by_ms = move.advance_ms or 0
        if move.advance_to is not None:
            moment_ms = parse_moment(move.advance_to)
            if moment_ms is None:
                raise _BadRequest(f"{move.advance_to!r} is not a moment: write 2026-01-31T12:00Z.")
            by_ms += moment_ms - self._clock.now_ms()
            if not 0 <= by_ms <= ADVANCE_MS_MAX:
                now = format_moment(self._clock.now_ms())
                raise _BadRequest(
                    f"It is {now} and time only moves forward, by 100 years at most: "
                    f"{move.advance_to} cannot be reached."
                )
        if move.is_frozen:
            self._clock.freeze()
        await self._advance(by_ms, bus)
        if move.is_frozen is False:
            self._clock.unfreeze()
        return await self._time()

    async def _advance(self, by_ms: int, bus: Bus) -> None:
        """Move as time would: every lock, schedule and expiry at its own moment."""
        while by_ms > 0:
            watches_idle = await bus.namespace.delete_idle()
            step_ms = min(by_ms, IDLE_STEP_MS) if watches_idle else by_ms
            by_ms -= step_ms
            await self._clock.advance(step_ms, self._settle)
        await bus.namespace.delete_idle()
        await self._settle()

    async def _settle(self) -> None:
        """Wait until everything that was due is decided and stored."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + SETTLE_S_MAX
        quiet = 0
        while quiet < QUIET_LOOKS and loop.time() < deadline_s:
            await asyncio.sleep(0 if quiet else _LOOK_S)
            quiet = quiet + 1 if all(broker.is_quiet for broker in self._brokers) else 0


async def _declare(request: HttpRequest, site: Site, bus: Bus) -> object:
    """Create or update the entities of a `Config.json` or an ARM template."""
    try:
        text = request.body.decode()
    except UnicodeDecodeError as error:
        raise _BadRequest(f"The body is not UTF-8: {error}.") from error
    blueprint = read_json(parse_json(text, "the request"), "the request", {})
    root = bus.namespace.settings.root_rule
    await set_up(site, blueprint, Credential(root.name, root.primary_key))
    return {"warnings": list(blueprint.warnings)}


def _read(request: HttpRequest, kind: type[B]) -> B:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _BadRequest(f"The body is not the expected JSON: {error}.") from error


def _failed(status: int, message: str) -> HttpResponse:
    return HttpResponse(status, JSON, msgspec.json.encode({"error": {"message": message}}))
