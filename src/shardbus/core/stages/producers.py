"""The producers of a fragment: the last batch of each, and fingerprints of its contents.

A batch whose number is not above the last one was published before. A producer may also give a
*fingerprint*, which identifies the rows of a batch however they were divided. With it a repeated
batch is told from other rows under a used number. The former is nothing new; the latter would be
lost silently, so they are refused with an error of their own.
"""

from __future__ import annotations

from typing import final

from shardbus.core.errors import (
    ALREADY_PUBLISHED,
    BATCH_DIFFERS,
    INVALID_ARGUMENT,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    Refused,
)
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.records import PRODUCER
from shardbus.core.limits import (
    BATCH_MAX,
    FINGERPRINT_BYTES_MAX,
    FINGERPRINTS_MAX,
    PRODUCER_KEPT_MS,
    PRODUCER_NAME_BYTES_MAX,
    PRODUCER_ONCE_KEPT_MS,
)
from shardbus.core.message import NEVER_MS
from shardbus.core.stages.command import Producer, Producers, Publication
from shardbus.core.stages.record import producer_change, unpack_producer


@final
class KnownProducers:
    """Decides whether a batch may be published, and remembers that it was."""

    def __init__(
        self, fragment_number: int, ledger: Ledger, records: dict[tuple[int, bytes], bytes]
    ) -> None:
        self._fragment_number = fragment_number
        self._ledger = ledger
        self._named: dict[bytes, Producer] = {}
        # Producers that publish once, the oldest first; they do not take places from the others.
        self._once: dict[bytes, Producer] = {}
        for (kind, key), data in records.items():
            if kind == PRODUCER:
                producer = unpack_producer(key, data)
                # A producer that was loaded is kept for its whole time again.
                producer.noted_ms = ledger.steady_ms if producer.is_once else NEVER_MS
                self._all_like(producer.is_once)[key] = producer

    def _all_like(self, is_once: bool) -> dict[bytes, Producer]:
        return self._once if is_once else self._named

    @property
    def deadline_ms(self) -> int:
        """When to look for producers to forget."""
        for producer in self._once.values():
            return producer.noted_ms + PRODUCER_ONCE_KEPT_MS
        return NEVER_MS

    def found(self, name: bytes) -> Producers:
        """One producer with what is known about its batches; with an empty name all, without that.

        A producer that publishes once and asks whether it has is kept for its whole time again:
        publishing in bites may take long.
        """
        if not name:
            known_ones = list(self._named.values()) + list(self._once.values())
            return Producers([Producer(each.name, each.batch, each.at_ms) for each in known_ones])
        known = self._known(name)
        if known is not None and known.is_once:
            known.noted_ms = self._ledger.steady_ms
            self._once[name] = self._once.pop(name)
        return Producers([] if known is None else [known])

    def check(self, publication: Publication | None, now_ms: int) -> None:
        """Refused when the batch was published before, or cannot be remembered."""
        self.check_new(publication)
        if publication is not None and self._is_newcomer(publication):
            self._check_room(publication.is_once, now_ms)

    def check_new(self, publication: Publication | None) -> None:
        """Refused when the batch was published before."""
        if publication is None:
            return
        name, batch = publication.producer, publication.batch
        is_named = 1 <= len(name) <= PRODUCER_NAME_BYTES_MAX
        is_told = len(publication.fingerprint) <= FINGERPRINT_BYTES_MAX
        if not is_named or not is_told or not 0 <= batch <= BATCH_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"The name of a producer must have 1 to {PRODUCER_NAME_BYTES_MAX} bytes, the "
                f"number of a batch must be from 0 to {BATCH_MAX}, and a fingerprint may have "
                f"at most {FINGERPRINT_BYTES_MAX} bytes.",
            )
        known = self._known(name)
        if known is not None and batch <= known.batch:
            raise refusal_of_repeat(known, publication)

    def note(self, publication: Publication, now_ms: int) -> None:
        """Remember that a batch is published."""
        name = publication.producer
        known = self._known(name)
        if self._is_newcomer(publication) and not publication.is_once:
            self._make_room(now_ms)
        producer = Producer(name, publication.batch, now_ms, self._ledger.steady_ms)
        if known is not None:
            producer.fingerprints = known.fingerprints[1 - FINGERPRINTS_MAX :]
        producer.fingerprints.append((publication.batch, publication.fingerprint))
        producer.is_once = publication.is_once and (known is None or known.is_once)
        # It may continue as a regular producer; if not, it is the last to be forgotten.
        self._once.pop(name, None)
        self._all_like(producer.is_once)[name] = producer
        self._ledger.changes.append(producer_change(producer))

    def forget(self, name: bytes) -> None:
        """Forget a producer that publishes once and is done."""
        if self._once.pop(name, None) is not None:
            self._ledger.changes.append(RecordChange(PRODUCER, name, None))

    def end_overdue(self) -> None:
        """Forget producers that publish once and did not say in time that they are done."""
        while self._once:
            producer = next(iter(self._once.values()))
            if producer.noted_ms + PRODUCER_ONCE_KEPT_MS > self._ledger.steady_ms:
                return
            self.forget(producer.name)

    def _is_newcomer(self, publication: Publication) -> bool:
        """Whether this producer is new among those of its kind."""
        known = self._known(publication.producer)
        return known is None or (known.is_once and not publication.is_once)

    def _known(self, name: bytes) -> Producer | None:
        return self._named.get(name) or self._once.get(name)

    def _check_room(self, is_once: bool, now_ms: int) -> None:
        if is_once:
            if len(self._once) >= self._ledger.bounds.producers_max:
                raise Refused(
                    SERVER_BUSY,
                    f"Fragment {self._fragment_number} remembers {len(self._once)} producers "
                    "that published once and did not confirm it, its maximum: try again "
                    "later.",
                )
            return
        if len(self._named) < self._ledger.bounds.producers_max:
            return
        if not any(self._is_forgettable(each, now_ms) for each in self._named.values()):
            raise Refused(
                QUOTA_EXCEEDED,
                f"Fragment {self._fragment_number} remembers {len(self._named)} producers, "
                "its maximum: let fewer producers publish more batches each, for example "
                "with txnAppId and txnVersion instead of a transactionId for each write.",
            )

    def _make_room(self, now_ms: int) -> None:
        if len(self._named) < self._ledger.bounds.producers_max:
            return
        for producer in list(self._named.values()):
            if self._is_forgettable(producer, now_ms):
                del self._named[producer.name]
                self._ledger.changes.append(RecordChange(PRODUCER, producer.name, None))

    def _is_forgettable(self, producer: Producer, now_ms: int) -> bool:
        """By both clocks: only the wall clock runs while the fragment is not in memory, but the
        wall clock alone cannot end what was noted since the fragment was loaded.
        """
        steady_ms, noted_ms = self._ledger.steady_ms, producer.noted_ms
        is_old = noted_ms == NEVER_MS or noted_ms + PRODUCER_KEPT_MS <= steady_ms
        return is_old and producer.at_ms + PRODUCER_KEPT_MS <= now_ms


def refusal_of_repeat(known: Producer, publication: Publication) -> Refused:
    """Why a batch that is not above the producer's last one is not published."""
    name = f"'{known.name.decode('utf-8', 'replace')}'"
    if is_same(known, publication):
        return Refused(
            ALREADY_PUBLISHED,
            f"Producer {name} has already published batch {publication.batch}: its last batch "
            f"is {known.batch}.",
        )
    return Refused(
        BATCH_DIFFERS,
        f"Producer {name} has published up to batch {known.batch}, and batch "
        f"{publication.batch} now comes with rows that are not known to be the same. Nothing "
        "of it was published. Either the counter of the batches was set back, for example by "
        "a restored or copied checkpoint: publish under another producer. Or the query makes "
        "other rows when it runs again, and the first ones are on the bus: publish without a "
        "fingerprint to skip the batch.",
    )


def is_same(known: Producer, publication: Publication) -> bool:
    """Whether a batch that is not above the last one was published with the same fingerprint, as
    far as both are known. A batch older than the remembered ones is not known to be the same.
    """
    if not publication.fingerprint or not known.fingerprints:
        return True
    for batch, fingerprint in known.fingerprints:
        if batch == publication.batch:
            return not fingerprint or fingerprint == publication.fingerprint
    return False
