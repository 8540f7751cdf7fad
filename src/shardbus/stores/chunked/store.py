"""The reads of a store with chunks. Each runs in `read`, which the kind of store defines."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardbus.core.fragment.change import Append, StagePut
from shardbus.core.limits import BATCH_MAX
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.runs import Runs
from shardbus.stores.base.store import (
    Due,
    FragmentCommit,
    FragmentId,
    FragmentImage,
    Page,
    SessionPage,
    StoreError,
    UnknownFragment,
)
from shardbus.stores.chunked.chunk import session_name, unpack_counters
from shardbus.stores.chunked.due import DueReader
from shardbus.stores.chunked.lookup import Lookup
from shardbus.stores.chunked.reader import BROWSABLE, StoreQuestion, StoreReader
from shardbus.stores.chunked.session import ImageReader, SessionReader

log = logging.getLogger(__name__)

T = TypeVar("T")


class ChunkedReads(ABC):
    """What a MessageStore reads. `place` is what people call the store.

    `_locals` are the fragments that exist, with their local numbers. Replaced, never changed: the
    reader may look while the writer creates.
    """

    def __init__(self, place: str, lookup: Lookup, fragments: dict[FragmentId, int]) -> None:
        self.place = place
        self._locals = fragments
        self._reader = StoreReader(lookup)
        self._due = DueReader(lookup)
        self._sessions = SessionReader(lookup)
        self._images = ImageReader(lookup)

    @abstractmethod
    def read(self, work: Callable[[], T]) -> T:
        """Run some work that only reads; an error of the database becomes a StoreError."""

    def fragments(self) -> list[FragmentId]:
        return list(self._locals)

    def recorded(self, kinds: Sequence[int]) -> list[FragmentId]:
        found = self.read(lambda: self._images.recorded(kinds))
        return [fragment for fragment, local in self._locals.items() if local in found]

    def timed(self) -> list[FragmentId]:
        fragments = self._locals
        found = self.read(lambda: self._images.timed(list(fragments.values())))
        return [fragment for fragment, local in fragments.items() if local in found]

    def last_counters(self, fragments: Sequence[FragmentId]) -> list[int]:
        found = self.read(self._images.last_counters) if fragments else {}
        return [found.get(self._locals.get(fragment, -1), 0) for fragment in fragments]

    def load(self, fragment: FragmentId) -> FragmentImage:
        local = self._local(fragment)
        image = self.read(lambda: self._images.image(local))
        counters = unpack_counters(local, image.counters)
        if counters is None:
            raise StoreError(
                f"{self.place}: the counters of fragment {fragment.number} of entity "
                f"{fragment.entity_id} are damaged; restore a copy of the store"
            )
        if image.damaged_kinds:
            kinds = ", ".join(str(kind) for kind in sorted(set(image.damaged_kinds)))
            raise StoreError(
                f"{self.place}: records (of kind {kinds}) of fragment {fragment.number} of entity "
                f"{fragment.entity_id} are damaged, and what it promised is not known without "
                "them; restore a copy of the store, or give the promises up with "
                "`shardbus check --repair`"
            )
        if image.damaged:
            log.error(
                "%s: %d records of message ids of fragment %s are damaged: duplicates of those "
                "messages will not be recognised",
                self.place,
                image.damaged,
                fragment,
            )
        return FragmentImage(counters, image.next_due_ms, image.remembered, image.records)

    def read_line(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        return self._page(self._ask(fragment, line, after + 1, count_max, bytes_max))

    def read_heads(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        ask = self._ask(fragment, line, after + 1, count_max, bytes_max)
        ask.is_for_heads = True
        return self._page(ask)

    def browse(
        self,
        fragment: FragmentId,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        session_id: str | None = None,
    ) -> Page:
        assert session_id is None or line == MAIN_LINE, "only the main line has sessions"
        ask = self._ask(fragment, line, start, count_max, bytes_max, session_id)
        ask.states = BROWSABLE
        return self._page(ask)

    def read_entries(
        self, fragment: FragmentId, sequence_numbers: Sequence[int], *, bytes_max: int
    ) -> list[Entry | None]:
        local = self._local(fragment)
        return self.read(
            lambda: self._reader.entries(local, fragment.number, sequence_numbers, bytes_max)
        )

    def read_session(
        self, fragment: FragmentId, session_id: str, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        return self._page(
            self._ask(fragment, MAIN_LINE, after + 1, count_max, bytes_max, session_id)
        )

    def read_sessions(self, fragment: FragmentId, *, after: int, count_max: int) -> SessionPage:
        ask = self._ask(fragment, MAIN_LINE, after + 1, count_max, 0)
        return self.read(lambda: self._sessions.waiting(ask))

    def list_sessions(
        self, fragment: FragmentId, *, updated_after_ms: int, skip: int, count_max: int
    ) -> list[str]:
        local = self._local(fragment)
        return self.read(
            lambda: self._sessions.names(
                local, updated_after_ms=updated_after_ms, skip=skip, count_max=count_max
            )
        )

    def read_state(self, fragment: FragmentId, session_id: str) -> bytes | None:
        local = self._local(fragment)
        return self.read(lambda: self._sessions.state(local, session_name(session_id)))

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        local = self._local(fragment)
        return self.read(lambda: self._reader.payloads(local, fragment.number, sequence_numbers))

    def read_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> dict[int, bytes | None]:
        local = self._local(fragment)
        return self.read(lambda: self._images.stage(local, stage, after, until))

    def check_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> list[int]:
        local = self._local(fragment)
        return self.read(lambda: self._images.damaged_pieces(local, stage, after, until))

    def read_due(
        self,
        fragment: FragmentId,
        *,
        now_ms: int,
        count_max: int,
        bytes_max: int,
        claimed: Runs | None = None,
    ) -> Due:
        local = self._local(fragment)
        return self.read(
            lambda: self._due.due(
                local,
                fragment.number,
                now_ms=now_ms,
                count_max=count_max,
                bytes_max=bytes_max,
                claimed=claimed,
            )
        )

    def _ask(
        self,
        fragment: FragmentId,
        line: int,
        start: int,
        count_max: int,
        bytes_max: int,
        session_id: str | None = None,
    ) -> StoreQuestion:
        return StoreQuestion(
            self._local(fragment),
            fragment.number,
            line,
            start=start,
            count_max=count_max,
            bytes_max=bytes_max,
            session=None if session_id is None else session_name(session_id),
        )

    def _page(self, ask: StoreQuestion) -> Page:
        return self.read(lambda: self._reader.page(ask))

    def _local(self, fragment: FragmentId) -> int:
        local = self._locals.get(fragment)
        if local is None:
            raise UnknownFragment(
                f"{self.place}: holds no fragment {fragment.number} of entity {fragment.entity_id}"
            )
        return local


def has_payload(commits: Sequence[FragmentCommit]) -> bool:
    """Whether one of these commits adds messages, staged or not."""
    return any(
        isinstance(change, Append | StagePut) for commit in commits for change in commit.changes
    )
