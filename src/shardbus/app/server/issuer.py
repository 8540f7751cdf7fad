"""The keys of the OpenID issuer: fetched, kept, and asked for again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, final

import msgspec

from shardbus.app.server.fetching import FetchFailed, fetch_document
from shardbus.app.server.settings import Settings
from shardbus.broker.access.bearer import KeySet, read_keys
from shardbus.broker.access.sign_in import SignIn, Terms
from shardbus.broker.clock import Clock
from shardbus.broker.guarded import guarded
from shardbus.core.document import Fields
from shardbus.core.errors import Unavailable

log = logging.getLogger(__name__)

DISCOVERY: Final = "/.well-known/openid-configuration"
REFRESH_MS: Final = 600_000
"""How often the keys are fetched. A withdrawn key is accepted for no longer than this."""
ASK_AGAIN_MS: Final = 30_000
"""The shortest time between two fetches because of a token, and after a failure."""
FETCH_MS_MAX: Final = 10_000
"""For both documents together."""
KEYS_AGE_MS_MAX: Final = 86_400_000
"""How long the last keys are used while the issuer cannot be reached."""

Fetch = Callable[[str], Awaitable[bytes]]


@final
class Issuer:
    """Keeps the key set of an issuer. A `sign_in.KeySource`."""

    def __init__(self, url: str, clock: Clock, fetch: Fetch = fetch_document) -> None:
        self._url = url
        self._clock = clock
        self._fetch = fetch
        self._known: KeySet | None = None
        self._known_since_ms = 0
        self._asked_ms = 0
        self._asking: asyncio.Task[None] | None = None
        self._why = ""
        self._listeners: list[Callable[[], None]] = []

    def watch(self, listener: Callable[[], None]) -> None:
        """Call a listener whenever the keys have changed: one may have been withdrawn."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Fetch the keys regularly, until cancelled."""
        try:
            while True:
                await self._ask()
                await asyncio.sleep((ASK_AGAIN_MS if self._why else REFRESH_MS) / 1000)
        finally:
            if self._asking is not None:
                self._asking.cancel()

    def problems(self) -> list[str]:
        """Why the issuer's keys cannot be fetched; empty if they can."""
        return [f"sign-in: {self._why}"] if self._why else []

    def known(self) -> KeySet | None:
        is_old = self._clock.steady_ms() - self._known_since_ms > KEYS_AGE_MS_MAX
        return None if is_old else self._known

    def keys(self) -> KeySet:
        known = self.known()
        if known is None:
            raise Unavailable(
                "The keys of the issuer are not known at the moment: tokens cannot be verified. "
                "Try again later."
            )
        return known

    async def ask_again(self) -> None:
        is_time = not self._asked_ms or self._clock.steady_ms() - self._asked_ms >= ASK_AGAIN_MS
        if is_time or self._asking is not None:
            await self._ask()

    async def _ask(self) -> None:
        """Fetch the keys; requests at the same time wait for the same answer."""
        if self._asking is None:
            self._asked_ms = self._clock.steady_ms()
            self._asking = asyncio.ensure_future(self._refresh())
            self._asking.add_done_callback(self._answered)
        # A request that stops waiting does not cancel the fetch for the others.
        await asyncio.shield(self._asking)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._asking = None

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(FETCH_MS_MAX / 1000):
                fetched = await self._fetched()
        except TimeoutError:
            self._failed(f"{self._url} has not answered in {FETCH_MS_MAX} ms")
        except (FetchFailed, ValueError) as error:
            self._failed(str(error))
        else:
            self._take(fetched)

    async def _fetched(self) -> KeySet:
        url = self._url.rstrip("/") + DISCOVERY
        fields = _document(url, await self._fetch(url))
        issuer = fields.text("issuer")
        if issuer != self._url:
            raise ValueError(
                f"{url} names the issuer {issuer[:300]!r}, but --oidc-issuer is {self._url!r}: "
                "both must be exactly the same"
            )
        where = fields.text("jwks_uri")
        content = await self._fetch(where)
        try:
            return read_keys(content)
        except ValueError as error:
            raise ValueError(f"{where[:300]}: {error}") from error

    def _take(self, fetched: KeySet) -> None:
        former, self._known = self._known, fetched
        self._known_since_ms = self._clock.steady_ms()
        if self._why or former is None:
            log.info("%s: %d keys of the issuer are known", self._url, len(fetched))
        self._why = ""
        if former is not None and not former.is_same_as(fetched):
            log.info("the keys of the issuer %s have changed", self._url)
            for listener in self._listeners:
                guarded(listener)

    def _failed(self, why: str) -> None:
        if why != self._why:
            log.warning("the keys of the issuer cannot be fetched: %s", why)
        self._why = why


def sign_in_of(settings: Settings, clock: Clock) -> tuple[SignIn, Issuer] | None:
    """Sign-in according to the settings; None if they name no issuer."""
    if not settings.oidc_issuer:
        return None
    issuer = Issuer(settings.oidc_issuer, clock)
    terms = Terms(settings.oidc_issuer, settings.oidc_audience, settings.oidc_grant)
    return SignIn(terms, issuer, clock), issuer


def _document(url: str, content: bytes) -> Fields:
    try:
        value: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{url} is not JSON") from error
    return Fields(value, f"answer of {url}")
