"""One session after the other: accept whichever is free, complete its message, let it go."""

import time
from typing import Final, final

from bench.job import Sample
from bench.meter import BenchError, Meter, check_accepted
from shardbus.amqp.events import DeliveriesReceived, Event, SettlementsReceived
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED
from shardbus.amqp.session import AmqpSession
from shardbus.amqp.termini import Source

_SESSION_FILTER: Final = "com.microsoft:session-filter"


@final
class Accepting:
    """A link per session. Leaving one and asking for the next goes out in one write."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._asked = 0
        self._asked_at_ns = 0
        self._session: AmqpSession | None = None
        self._address = ""

    @property
    def leaves_links(self) -> bool:
        return True

    @property
    def sample(self) -> Sample | None:
        return self._meter.sample

    def attach(self, session: AmqpSession, address: str) -> Link:
        self._session, self._address = session, address
        return self._ask(session)

    def take(self, event: Event) -> None:
        if isinstance(event, DeliveriesReceived):
            event.link.settle(
                [delivery.delivery_id for delivery in event.deliveries], ACCEPTED, settled=False
            )
        elif isinstance(event, SettlementsReceived):
            check_accepted(event.state)
            self._completed(event)

    def pump(self, link: Link) -> None:
        """Everything is done as it happens: there is one message in flight."""

    def _completed(self, event: SettlementsReceived) -> None:
        if len(event.ids) != 1 or self._session is None:
            raise BenchError(f"a session of one message completed {len(event.ids)}")
        self._meter.latencies_us.append((time.perf_counter_ns() - self._asked_at_ns) / 1000)
        self._meter.count(1)
        event.link.detach()
        if self._asked < self._meter.total:
            self._ask(self._session)

    def _ask(self, session: AmqpSession) -> Link:
        source = Source()
        source.address = self._address
        source.filters = {_SESSION_FILTER: None}
        self._asked += 1
        self._asked_at_ns = time.perf_counter_ns()
        link = session.attach_receiver(
            f"bench-session-{self._asked}", source=source, settle_modes=(0, 0)
        )
        link.grant(1)
        return link
