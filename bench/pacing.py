"""Sending at a steady rate: what one sender notices, whatever others do."""

import time
from typing import final

from bench.job import Job, Sample
from bench.meter import Meter, check_accepted
from bench.payloads import Payloads
from shardbus.amqp.events import Event, SettlementsReceived
from shardbus.amqp.link import Link
from shardbus.amqp.session import AmqpSession


@final
class Pacing:
    """Sends a message when it is due, also when those before have no outcome yet."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._payloads = Payloads(job)
        self._meter = meter
        self._interval_ns = 1_000_000_000 // job.per_s
        self._due_ns = 0
        self._sent = 0
        self._sent_at_ns: dict[int, int] = {}

    @property
    def leaves_links(self) -> bool:
        return False

    @property
    def sample(self) -> Sample | None:
        return self._meter.sample

    def attach(self, session: AmqpSession, address: str) -> Link:
        return session.attach_sender("bench-pacing", target=address, snd_settle_mode=0)

    def take(self, event: Event) -> None:
        if isinstance(event, SettlementsReceived):
            check_accepted(event.state)
            now_ns = time.perf_counter_ns()
            for delivery in event.ids:
                sent_at_ns = self._sent_at_ns.pop(delivery)
                self._meter.latencies_us.append((now_ns - sent_at_ns) / 1000)
            self._meter.count(len(event.ids))

    def pump(self, link: Link) -> None:
        now_ns = time.perf_counter_ns()
        if self._due_ns == 0:
            self._due_ns = now_ns
        while self._due_ns <= now_ns and self._sent < self._meter.total and link.sendable > 0:
            tag = self._sent.to_bytes(4, "big")
            sent_at_ns = time.perf_counter_ns()
            delivery = link.send(tag, self._payloads.next(), False, self._payloads.format)
            self._sent_at_ns[delivery] = sent_at_ns
            self._sent += 1
            self._due_ns += self._interval_ns
