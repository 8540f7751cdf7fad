"""One run of a job, from the place where it continues to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, final

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.transactions import Transactor
from shardbus.core.errors import (
    MESSAGE_LOCK_LOST,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    REPARTITIONING,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    Refused,
    Unavailable,
)
from shardbus.core.limits import DEFERRED_COUNT_MAX
from shardbus.core.message import ACTIVE, Entry, Message
from shardbus.core.messages.command import COMPLETE, DEAD_LETTER, NO_SESSION, Delivery, Settle
from shardbus.core.sequence import fragment_of
from shardbus.core.sessions.key import session_key
from shardbus.gateway.http.api.messages.batch_receiver import accept_session
from shardbus.gateway.http.api.messages.message import message_document
from shardbus.gateway.http.api.messages.scan import Scan, entry_of, scan_of
from shardbus.gateway.http.api.messages.values import read_numbers
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces, SendPlace
from shardbus.gateway.http.api.search.selection import Condition
from shardbus.gateway.http.document import write
from shardbus.gateway.http.jobs.job import (
    BURY,
    DELETE,
    DONE,
    EXPORT,
    FAILED,
    STOPPED,
    STOPPING,
    UNDO,
    WARNINGS_MAX,
    Kept,
    only_numbers,
)
from shardbus.gateway.http.jobs.repairing import Unrepairable
from shardbus.gateway.http.jobs.resending import Resender
from shardbus.gateway.http.jobs.storing import JobStorage, LeaseLost
from shardbus.gateway.http.jobs.undo_marks import Grounds, grounds_of
from shardbus.gateway.http.messaging.head_receiver import release
from shardbus.gateway.http.server.message import Departure

log = logging.getLogger(__name__)

CHUNK_COUNT: Final = 100
_INEXACT: Final = (
    "The server ended meanwhile: messages of the second before may be done, but not counted."
)
SAVE_MS: Final = 1_000
RETRY_MS: Final = 1_000
# Temporary refusals.
_PASSING: Final = (MESSAGE_LOCK_LOST, SESSION_LOCK_LOST, REPARTITIONING)
RETRIES_MAX: Final = 120
"""A fragment that does not come back within about two minutes ends the job."""
FULL_WAITS_MAX: Final = 3_600
"""A target that has no room for about an hour ends the job, too."""


@final
class Stopped(Exception):
    """The client, or the end of the server, stops the job."""


def continued(kept: Kept) -> None:
    """Note that a job which was running is continued."""
    kept.job.restarts += 1
    if not kept.is_exact and _INEXACT not in kept.job.warnings:
        kept.job.warnings.append(_INEXACT)


async def outcome(made: Callable[[], JobRun], job_id: str) -> tuple[str, str]:
    """Run a job to its end; returns the state in which it ended, and why it failed."""
    try:
        await made().run()
    except Stopped:
        return STOPPED, ""
    except (Refused, Unavailable) as failure:
        return FAILED, failure.message
    except OSError as error:
        return FAILED, f"The state of the job cannot be kept: {error}."
    except LeaseLost:
        raise
    except Exception:
        log.exception("job %s failed", job_id)
        return FAILED, "An internal error occurred; the server's log has the details."
    return DONE, ""


@final
class _Locked(Exception):
    """Messages are locked for a while, perhaps by this job before it was interrupted."""


@final
class JobRun:
    """Walks over the line, and does the work for selected messages in chunks.

    The place to continue is kept at least once a second. After a crash, messages that were
    processed since then are looked for again and not found, because they are gone. Progress and
    position advance together, chunk by chunk, so that an interruption cannot separate them.
    """

    def __init__(
        self,
        kept: Kept,
        places: EntityPlaces,
        transactor: Transactor,
        storage: JobStorage,
    ) -> None:
        self._storage = storage
        self._kept = kept
        self._job = kept.job
        self._places = places
        self._transactor = transactor
        self._condition = Condition(kept.job.selection)
        self._saved_at_s = 0.0
        self._patient_until_s = 0.0
        """Until then the job waits for locked messages: it may have locked them before."""
        numbers = kept.job.selection.numbers
        self._numbers = set(read_numbers(numbers)) if isinstance(numbers, list) else None
        self._is_only_numbered = only_numbers(kept.job.action, kept.job.selection) is not None
        self._ended: set[int] = set()
        """The part of the present chunk that was done before it failed and is repeated."""
        self._is_ending_some = False
        """Whether messages are being ended: an interruption now leaves them uncounted."""
        rate_max = kept.job.rate_max
        self._chunk_count = min(CHUNK_COUNT, rate_max) if rate_max else CHUNK_COUNT
        self._due_s = 0.0

    async def run(self) -> None:
        """Do everything; Refused, Unavailable or Stopped is raised otherwise."""
        retries, full_waits, done_before = 0, 0, self._job.done
        if self._job.restarts:
            self._be_patient()
        try:
            while True:
                try:
                    await self._walk()
                    return
                except _Locked:
                    self._job.error = "waiting for locked messages, perhaps locked by this job"
                except (Refused, Unavailable) as failure:
                    if _is_full(failure):
                        full_waits = full_waits + 1 if self._job.done == done_before else 1
                        done_before = self._job.done
                    else:
                        retries += 1
                    if max(retries - RETRIES_MAX, full_waits - FULL_WAITS_MAX) > 0:
                        raise
                    if not (_is_full(failure) or _is_passing(failure)):
                        raise
                    self._be_patient()
                    if not self._job.error:
                        log.warning("job %s waits: %s", self._job.id, failure.message)
                    self._job.error = f"waiting: {failure.message}"
                # Others who show the job read what is stored.
                await self._save_now_and_then()
                await asyncio.sleep(RETRY_MS / 1000)
                self._check_stop()
        finally:
            try:
                await self._save(is_exact=not self._is_ending_some)
            finally:
                self._storage.close()

    async def _walk(self) -> None:
        place = self._places.line_of(self._job.entity)
        if self._kept.entity_id not in (0, place.handle.entity.entity_id):
            raise Refused(
                NOT_FOUND,
                f"'{place.handle.entity.name}' was deleted and created again after the job began: "
                "start another job for its messages.",
            )
        if self._is_only_numbered and self._numbers is not None:
            await self._take_numbered(place, sorted(self._numbers))
            return
        scan, _ = await scan_of(self._places, place)
        if self._kept.cursor is not None:
            scan.resume(self._kept.cursor)
        examined_before = self._job.examined - scan.searched
        while True:
            batch = await scan.batch()
            # Before the position advances: otherwise such a fragment would be left out.
            self._check_unavailable(scan)
            self._check_stop()
            if not batch:
                return
            for seen, chosen in self._chunks(batch):
                self._job.skipped += await self._do(place, chosen) if chosen else 0
                for entry in seen:
                    scan.passed(entry)
                self._kept.cursor = scan.place
                self._job.examined = examined_before + scan.searched
                self._job.error = ""
                self._check_stop()
                await self._pace(len(chosen))
            await self._save_now_and_then()

    async def _take_numbered(self, place: EntityPlace, numbers: Sequence[int]) -> None:
        """Read the numbers directly: the line may be much longer than the list of numbers."""
        given = self._kept.cursor
        at = int(given) if given is not None and given.isdecimal() else 0
        while at < len(numbers):
            self._check_stop()
            some = numbers[at : at + self._chunk_count]
            here = [each for each in some if each <= self._last_of(fragment_of(each))]
            left_out = len(some) - len(here)
            meant = [each for each in here if each not in self._ended]
            self._job.skipped += left_out + (await self._lock_and_end(place, meant) if meant else 0)
            at += len(some)
            self._ended.clear()
            self._kept.cursor = str(at)
            self._job.examined += len(some)
            self._job.error = ""
            await self._pace(len(meant))
            await self._save_now_and_then()

    def _chunks(self, batch: Sequence[Entry]) -> Iterator[tuple[list[Entry], list[Entry]]]:
        """The examined messages of a batch in their order, and which of them are selected."""
        seen: list[Entry] = []
        chosen: list[Entry] = []
        for entry in batch:
            seen.append(entry)
            if self._is_meant(entry):
                chosen.append(entry)
            if len(chosen) == self._chunk_count:
                yield seen, chosen
                seen, chosen = [], []
        if seen:
            yield seen, chosen

    def _check_unavailable(self, scan: Scan) -> None:
        if scan.unavailable:
            numbers = ", ".join(map(str, scan.unavailable))
            raise Unavailable(f"fragments of '{self._job.entity}' are unavailable: {numbers}")

    def _is_meant(self, entry: Entry) -> bool:
        number = entry.sequence_number
        is_later = number > self._last_of(fragment_of(number))
        if is_later or (self._numbers is not None and number not in self._numbers):
            return False
        if self._job.action == UNDO and grounds_of(entry.payload or b"", self._job.mark) is None:
            return False
        return self._condition.matches(entry)

    def _last_of(self, fragment: int) -> int:
        for last in self._kept.lasts:
            if fragment_of(last) == fragment:
                return last
        return 0

    async def _do(self, place: EntityPlace, entries: Sequence[Entry]) -> int:
        """Do the work for some messages; returns how many were skipped."""
        job = self._job
        if job.action == EXPORT:
            await self._write(entries)
            job.done += len(entries)
            return 0
        active = [entry for entry in entries if entry.state == ACTIVE]
        skipped = len(entries) - len(active)
        if not active:
            return skipped
        if place.has_sessions:
            return skipped + await self._end_in_sessions(place, active)
        numbers = [entry.sequence_number for entry in active]
        return skipped + await self._lock_and_end(place, numbers)

    async def _end_in_sessions(self, place: EntityPlace, entries: Sequence[Entry]) -> int:
        """Hold each session, as a receiver would, for as long as its messages take."""
        skipped = 0
        for session_id, numbers in _by_session(entries).items():
            token = await self._held(place, session_id, len(numbers))
            if not token:
                skipped += len(numbers)
                continue
            try:
                skipped += await self._lock_and_end(place, numbers, token)
            finally:
                place.handle.router.release_session(token)
        return skipped

    async def _held(self, place: EntityPlace, session_id: str, count: int) -> bytes:
        """The token of a session; empty while others hold it."""
        try:
            held = await accept_session(place.handle.router, session_id, 0, Departure())
        except Refused as refusal:
            if refusal.kind is not SESSION_CANNOT_BE_LOCKED:
                raise
            if self._now_s() < self._patient_until_s:
                raise _Locked from refusal
            self._warn(f"{count} messages of session '{session_id}' stay: {refusal.message}")
            return NO_SESSION
        return NO_SESSION if held is None else held.token

    async def _lock_and_end(
        self, place: EntityPlace, numbers: Sequence[int], session: bytes = NO_SESSION
    ) -> int:
        """Returns how many were skipped: they are gone, locked by others, or cannot be read."""
        assert len(numbers) <= DEFERRED_COUNT_MAX
        skipped = 0
        locked = await place.handle.operations.lock_numbered(place.line, numbers, session)
        if locked:
            skipped += await self._end_all(place, locked)
        if len(locked) < len(numbers) and self._now_s() < self._patient_until_s:
            taken = {each.entry.sequence_number for each in locked}
            if await _are_there(place, [each for each in numbers if each not in taken]):
                raise _Locked
        return skipped + len(numbers) - len(locked)

    async def _end_all(self, place: EntityPlace, locked: Sequence[Delivery]) -> int:
        skipped, left = 0, list(locked)
        try:
            if self._job.has_backup:
                await self._write([each.entry for each in locked], locked)
                # Before the messages are removed.
                await self._storage.sync()
            for share in _by_fragment(place.handle, locked):
                self._is_ending_some = True
                skipped += await self._end(place, share)
                self._is_ending_some = False
                left = [each for each in left if each not in share]
        finally:
            if left:
                release(place.handle.router, *left)
        return skipped

    async def _end(self, place: EntityPlace, share: list[Delivery]) -> int:
        """Remove messages of one fragment and send them to the destination; returns how many cannot
        be read.
        """
        job = self._job
        if job.action == DELETE:
            await place.handle.operations.settle(Settle(COMPLETE, [each.token for each in share]))
            self._count(share)
            return 0
        if job.action == BURY:
            await place.handle.operations.settle(self._burial(share))
            self._count(share)
            return 0
        if job.action == UNDO:
            return await self._bury_again(place, share)
        resender = Resender(place.handle, self._target(), self._transactor, job.edit, job.mark)
        readable: list[tuple[Delivery, Message]] = []
        for delivery in share:
            try:
                message = resender.message(delivery)
            except Unrepairable as failure:
                self._warn(f"message {delivery.entry.sequence_number} stays: {failure}")
                message = None
            if message is not None:
                readable.append((delivery, message))
        unread = [each for each in share if all(each is not one for one, _ in readable)]
        if unread:
            release(place.handle.router, *unread)
        if readable:
            await resender.move([one for one, _ in readable], [one for _, one in readable])
            self._count([one for one, _ in readable])
        return len(unread)

    def _count(self, ended: Sequence[Delivery]) -> None:
        self._job.done += len(ended)
        if self._is_only_numbered:
            self._ended.update(each.entry.sequence_number for each in ended)

    def _burial(self, share: Sequence[Delivery]) -> Settle:
        tokens = [each.token for each in share]
        reason, description = self._job.reason or None, self._job.description or None
        return Settle(DEAD_LETTER, tokens, reason=reason, description=description)

    async def _bury_again(self, place: EntityPlace, share: list[Delivery]) -> int:
        """Make messages dead letters again, with their reasons; returns how many were received
        before.
        """
        received: list[Delivery] = []
        groups: dict[Grounds, list[bytes]] = {}
        for delivery in share:
            grounds = grounds_of(delivery.payload or b"", self._job.mark)
            if grounds is None or delivery.entry.delivery_count > 0:
                received.append(delivery)
            else:
                groups.setdefault(grounds, []).append(delivery.token)
        if received:
            release(place.handle.router, *received)
        for (reason, description), tokens in groups.items():
            settlement = Settle(DEAD_LETTER, tokens, reason=reason, description=description)
            await place.handle.operations.settle(settlement)
            self._job.done += len(tokens)
        return len(received)

    def _target(self) -> SendPlace:
        target = self._places.target(self._job.destination)
        found = target.subscription
        known = self._kept.subscription_id
        if known and (found is None or found.entity_id != known):
            raise Refused(
                NOT_FOUND,
                f"'{self._job.destination}' was deleted and created again after the job began: "
                "start another job for the rest.",
            )
        return target

    # The export, or the copy of removed messages.

    async def _write(self, entries: Sequence[Entry], locked: Sequence[Delivery] = ()) -> None:
        payloads = {each.entry.sequence_number: each.payload for each in locked}
        lines = b"".join(
            write(
                message_document(
                    entry,
                    payloads.get(entry.sequence_number) or entry.payload or b"",
                    delivery_count=entry.delivery_count,
                    is_exact=True,
                )
            )
            + b"\n"
            for entry in entries
        )
        await self._storage.write(self._job, lines)
        self._job.export_lines += len(entries)

    # Stopping, waiting and storing.

    def _be_patient(self) -> None:
        """Wait for messages that this job may have locked before it was interrupted."""
        with suppress(Refused):
            spec = self._places.line_of(self._job.entity).handle.entity.spec
            self._patient_until_s = self._now_s() + (spec.lock_ms + RETRY_MS) / 1000

    async def _pace(self, count: int) -> None:
        """Wait until the rate of the job allows this number of messages."""
        if not self._job.rate_max or not count:
            return
        self._due_s = max(self._due_s, self._now_s()) + count / self._job.rate_max
        while (left_s := self._due_s - self._now_s()) > 0:
            await self._save_now_and_then()
            await asyncio.sleep(min(left_s, SAVE_MS / 1000))
            self._check_stop()

    def _warn(self, text: str) -> None:
        if len(self._job.warnings) < WARNINGS_MAX:
            self._job.warnings.append(text)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _check_stop(self) -> None:
        if self._job.state == STOPPING:
            raise Stopped

    async def _save_now_and_then(self) -> None:
        now_s = self._now_s()
        if now_s - self._saved_at_s >= SAVE_MS / 1000:
            self._saved_at_s = now_s
            await self._save()

    async def _save(self, *, is_exact: bool = False) -> None:
        self._kept.is_exact = is_exact
        await self._storage.save(self._kept)


def _is_full(failure: Refused | Unavailable) -> bool:
    """Whether the target has no room; it will have room when its receivers continue."""
    return isinstance(failure, Refused) and failure.kind == QUOTA_EXCEEDED


def _is_passing(failure: Refused | Unavailable) -> bool:
    return isinstance(failure, Unavailable) or failure.kind in _PASSING


async def _are_there(place: EntityPlace, numbers: Sequence[int]) -> bool:
    """Whether any of these messages exists; the others were moved before an interruption."""
    for number in numbers:
        with suppress(Refused):
            await entry_of(place, number)
            return True
    return False


def _by_fragment(handle: EntityHandle, deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    shares: dict[int, list[Delivery]] = {}
    for delivery in deliveries:
        shares.setdefault(handle.router.index_of_token(delivery.token), []).append(delivery)
    return list(shares.values())


def _by_session(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """The numbers of messages by session, in the spelling of the first message of each."""
    spellings: dict[str, str] = {}
    found: dict[str, list[int]] = {}
    for entry in entries:
        assert entry.session_id is not None, "the entity requires sessions"
        spelling = spellings.setdefault(session_key(entry.session_id), entry.session_id)
        found.setdefault(spelling, []).append(entry.sequence_number)
    return found
