"""What happened over AMQP since the process started, counted for the metrics."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, final

from shardbus.core.errors import OUTCOME_UNKNOWN, SERVER_BUSY, Refused, Unavailable
from shardbus.core.messages.command import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE
from shardbus.gateway.readings import (
    AMQP_MESSAGES,
    AMQP_REFUSED,
    AMQP_REQUESTS,
    THROTTLED,
    TOKENS_REFUSED,
    TRANSACTIONS,
    MetricReading,
)

_SETTLEMENTS: Final = {
    COMPLETE: "completed",
    ABANDON: "abandoned",
    DEFER: "deferred",
    DEAD_LETTER: "dead_lettered",
    RELEASE: "released",
}
UNAVAILABLE: Final = "unavailable"
CBS: Final = "$cbs"


@final
class AmqpCounts:
    """Ascending counters for all connections together.

    They are incremented once for all messages that one read or one commit brings, so the path of a
    single message pays nothing for them.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.delivered = 0
        self.throttled = 0
        self.committed = 0
        self.rolled_back = 0
        self.commits_failed = 0
        self.keys_refused = 0
        self._settled = [0] * (max(_SETTLEMENTS) + 1)
        self._refused: dict[str, int] = {}
        self._requests: dict[tuple[str, int], int] = {}

    def settled(self, how: int, messages: int) -> None:
        """Count settled messages by the way of settling."""
        self._settled[how] += messages

    def refused(self, failure: Refused | Unavailable, deliveries: int) -> None:
        """Count refused deliveries or settlements."""
        kind = failure.kind.name if isinstance(failure, Refused) else UNAVAILABLE
        if isinstance(failure, Unavailable) and failure.is_unknown:
            kind = OUTCOME_UNKNOWN.name
        self._refused[kind] = self._refused.get(kind, 0) + deliveries
        if kind == SERVER_BUSY.name:
            # An Unavailable is not a Refused, so only the throttle refuses with this kind.
            self.throttled += deliveries

    def answered(self, node: str, status: int) -> None:
        """A request to `$cbs` or `$management` was answered."""
        key = (node, status)
        self._requests[key] = self._requests.get(key, 0) + 1

    def readings(self) -> list[MetricReading]:
        found = [
            MetricReading(AMQP_MESSAGES, self.sent, action="sent"),
            MetricReading(AMQP_MESSAGES, self.delivered, action="delivered"),
            MetricReading(TRANSACTIONS, self.committed, outcome="committed"),
            MetricReading(TRANSACTIONS, self.rolled_back, outcome="rolled_back"),
            MetricReading(TRANSACTIONS, self.commits_failed, outcome="failed"),
            MetricReading(THROTTLED, self.throttled, protocol="amqp"),
        ]
        for how, action in _SETTLEMENTS.items():
            found.append(MetricReading(AMQP_MESSAGES, self._settled[how], action=action))
        for kind, count in sorted(self._refused.items()):
            found.append(MetricReading(AMQP_REFUSED, count, reason=kind))
        for (node, status), count in sorted(self._requests.items()):
            found.append(MetricReading(AMQP_REQUESTS, count, node=node, status=str(status)))
        found.append(MetricReading(TOKENS_REFUSED, self._tokens_refused(), protocol="amqp"))
        return found

    def _tokens_refused(self) -> int:
        tokens = [
            count
            for (node, status), count in self._requests.items()
            if node == CBS and status >= HTTPStatus.BAD_REQUEST
        ]
        return self.keys_refused + sum(tokens)
