"""Who may use the bulk lane: a call takes no resources before the bus has accepted its token.

A call is checked when it begins, before any of its data is read. Only the result of the token check
is cached here for a moment: every right is still checked by the bus, with the token itself.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, final

import pyarrow as pa
import pyarrow.flight as flight

from shardbus.core.document import Fields
from shardbus.gateway.flight.server.bus import BusApi, BusError
from shardbus.gateway.flight.server.telling import LaneRefusal

CALLS_OPEN_MAX: Final = 1_024
"""Calls of all authorised clients, each of which takes a thread of gRPC."""
CALLS_OPEN_OF_RULE_MAX: Final = CALLS_OPEN_MAX // 2
"""Calls whose tokens one access rule has signed."""
ADMITTED_S: Final = 10
ADMITTED_MAX: Final = 1_000

TOKEN: Final = "token"
_HEADER: Final = "authorization"


@final
class LaneAdmission:
    """Which tokens are good, and how many calls their holders have open."""

    def __init__(
        self,
        bus: BusApi,
        *,
        calls_max: int = CALLS_OPEN_MAX,
        of_rule_max: int = CALLS_OPEN_OF_RULE_MAX,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`bus` is asked about unknown tokens only, so that waiting for them delays nobody else."""
        self._bus = bus
        self._calls_max = calls_max
        self._of_rule_max = of_rule_max
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._open: Counter[str] = Counter()

    def enter(self, token: str) -> str:
        """Check a token; returns the rule that signed it, which has one more call open until
        `leave`.

        BusError without a good token, and for one call too many.
        """
        if not token:
            raise BusError(
                401,
                "unauthorized",
                "MissingToken: The call has no token: send one in the header authorization.",
            )
        rule = self._rule_of(token)
        with self._lock:
            if self._open.total() >= self._calls_max or self._open[rule] >= self._of_rule_max:
                raise BusError(503, "server-busy", "Too many calls are open; try again later.")
            self._open[rule] += 1
        return rule

    def leave(self, rule: str) -> None:
        with self._lock:
            self._open[rule] -= 1
            if not self._open[rule]:
                del self._open[rule]

    @property
    def calls_open(self) -> int:
        with self._lock:
            return self._open.total()

    def _rule_of(self, token: str) -> str:
        now_s = self._monotonic_s()
        with self._lock:
            rule, until_s = self._known.get(token, ("", 0.0))
        if now_s < until_s:
            return rule
        fields = Fields(self._bus.get("token", token), "answer")
        rule = f"{fields.text('entity')}/{fields.text('rule')}"
        with self._lock:
            self._known[token] = rule, now_s + ADMITTED_S
            self._known.move_to_end(token)
            while len(self._known) > ADMITTED_MAX:
                self._known.popitem(last=False)
        return rule


@final
class LaneGuest(flight.ServerMiddleware):
    """A call that was admitted, with its token."""

    def __init__(self, admission: LaneAdmission, token: str) -> None:
        with LaneRefusal():
            self._rule = admission.enter(token)
        self.token = token
        self._admission = admission

    def call_completed(self, exception: pa.ArrowException | None) -> None:
        self._admission.leave(self._rule)


@final
class GuestFactory(flight.ServerMiddlewareFactory):
    """Admits calls before any of their data is read."""

    def __init__(self, admission: LaneAdmission) -> None:
        self._admission = admission

    def start_call(
        self, info: flight.CallInfo, headers: dict[str, list[str] | list[bytes]]
    ) -> flight.ServerMiddleware | None:
        if info.method == flight.FlightMethod.LIST_FLIGHTS:
            # Arrow's clients call this without a token to see whether the server is up. There is no
            # such list: the call is refused at once.
            return None
        shown = headers.get(_HEADER) or [""]
        text = shown[0].decode("latin-1") if isinstance(shown[0], bytes) else shown[0]
        return LaneGuest(self._admission, text)


def token_of(context: flight.ServerCallContext) -> str:
    """The token of a call."""
    shown = context.get_middleware(TOKEN)
    return shown.token if isinstance(shown, LaneGuest) else ""
