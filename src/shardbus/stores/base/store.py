"""The contract of a message store. The tests in tests/stores check its docstrings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, final

from shardbus.core.fragment.change import Change, Counters, Remember
from shardbus.core.limits import BATCH_MAX
from shardbus.core.message import Entry
from shardbus.core.namespace.entity import Entity
from shardbus.core.runs import Runs


class FragmentId(NamedTuple):
    """One fragment of one entity. Entity ids are never used twice in a namespace."""

    entity_id: int
    number: int


class StoreError(Exception):
    """The store could not do what was asked. After a commit this means *unknown*: load again."""


class NotStored(StoreError):
    """The changes cannot be stored: none of them was, and none will be.

    The cause is in the changes of one fragment, not in the disk: without that fragment the other
    commits can be stored.
    """


class Fenced(StoreError):
    """Another process owns the store now; this one writes nothing to it any more, nor reads it."""


class OtherBuild(StoreError):
    """Another build made the stored data; this build neither reads nor changes it."""


class UnknownFragment(NotStored):
    """The fragment was never created here, or was deleted."""


@final
class Unfinished:
    """An entity whose fragments may exist although the catalogue does not list it.

    `is_final`: it was deleted, and its fragments must be removed with all messages. Otherwise it
    was being created, and nobody could use it yet; but the catalogue may be an old copy that does
    not know how the creation ended.
    """

    def __init__(self, entity: Entity, *, is_final: bool) -> None:
        self.entity = entity
        self.is_final = is_final


@final
class FragmentImage:
    """What a fragment needs in order to start, whatever the length of its lines."""

    def __init__(
        self,
        counters: Counters,
        next_due_ms: int,
        remembered: list[Remember] | None = None,
        records: dict[tuple[int, bytes], bytes] | None = None,
    ) -> None:
        self.counters = counters
        # The earliest moment at which `read_due` may return something; NEVER_MS when there is none.
        self.next_due_ms = next_due_ms
        # The message ids that are remembered, in the order of their commits.
        self.remembered: list[Remember] = [] if remembered is None else remembered
        # The records that the fragment keeps, by kind and key.
        self.records: dict[tuple[int, bytes], bytes] = {} if records is None else records


@final
class FragmentCommit:
    """Everything that one fragment decided since its last commit, in order."""

    def __init__(self, fragment: FragmentId, changes: list[Change], counters: Counters) -> None:
        self.fragment = fragment
        self.changes = changes
        self.counters = counters


@final
class Page:
    """Messages in ascending sequence order, with payloads (except for `read_heads`).

    `damaged` has the numbers of messages in the range whose record fails its checksum; they are not
    in `entries`. `is_end` says that the store holds nothing of that kind beyond this page.
    """

    def __init__(self, entries: list[Entry], damaged: list[int], is_end: bool) -> None:
        self.entries = entries
        self.damaged = damaged
        self.is_end = is_end


class WaitingSession(NamedTuple):
    """A session with active messages on the main line.

    Its rank is the lowest sequence number of these messages. The rank rises while messages of the
    session are received, so a session that was read before may appear again on a later page. It
    falls when a message before the others becomes active again.
    """

    rank: int
    key: str


@final
class SessionPage:
    """Sessions in ascending order of rank; `is_end` says that there are no more."""

    def __init__(self, sessions: list[WaitingSession], is_end: bool) -> None:
        self.sessions = sessions
        self.is_end = is_end


@final
class Due:
    """Messages that are due, and when to look again (NEVER_MS: when new messages come).

    Scheduled messages have their payloads, the others do not. `damaged` are messages that are due
    but cannot be read; only their number, line, state and size are known. They are returned every
    time until they are set aside.
    """

    def __init__(
        self, entries: list[Entry], next_due_ms: int, damaged: list[Entry] | None = None
    ) -> None:
        self.entries = entries
        self.next_due_ms = next_due_ms
        self.damaged: list[Entry] = [] if damaged is None else damaged


class MessageStore(Protocol):
    """Fragments on durable storage.

    `create`, `delete`, `sweep` and `commit` are called from one thread at a time (the writer). The
    reads are called from another single thread (the reader), possibly while a commit runs, and then
    see the state before or after it, never between. `close` is called when both are idle. Any
    method may raise StoreError, and no other exception for what the environment does (full disk,
    damage, I/O errors).

    `shortage` says why the store accepts no additions, and is empty while there is room. It may be
    read at any time, and changes in commits and in `look`. During a shortage messages can still be
    settled, moved and removed. In a store that `is_read_only` nothing can be changed.

    `loss` says which stored commits the store had lost when it was opened, as far as that can be
    known; it is empty if it knows of none.
    """

    @property
    def shortage(self) -> str: ...

    @property
    def is_read_only(self) -> bool: ...

    @property
    def loss(self) -> str: ...

    def look(self) -> None:
        """Check how much room there is, since other processes may have changed that. For the
        writer.
        """
        ...

    def fragments(self) -> list[FragmentId]:
        """All fragments that exist here (deleted ones do not, even before they are swept)."""
        ...

    def highest_entity_id(self) -> int:
        """The highest entity id of all fragments ever created here, also of deleted ones; 0 if
        none.

        Called by the writer.
        """
        ...

    def recorded(self, kinds: Sequence[int]) -> list[FragmentId]:
        """The fragments that have records of one of these kinds. A read."""
        ...

    def timed(self) -> list[FragmentId]:
        """The fragments that have a message which is or will be due."""
        ...

    def create(self, fragments: Sequence[FragmentId]) -> None:
        """Create fragments with empty lines, all or none, durably; existing ones stay as they
        are.
        """
        ...

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        """Delete fragments, all or none, durably and quickly; unknown ones are ignored.

        Their data is removed by `sweep`.
        """
        ...

    def sweep(self) -> bool:
        """Remove a bounded part of what deleted fragments left; True while there is more."""
        ...

    def load(self, fragment: FragmentId) -> FragmentImage:
        """The state of the fragment after its last commit.

        StoreError when its counters or one of its records are damaged, because promises depend on
        each of them. Damaged message ids are left out and logged.
        """
        ...

    def last_counters(self, fragments: Sequence[FragmentId]) -> list[int]:
        """The highest counter that each of these fragments has ever used. A read.

        0 for a fragment that is unknown, or whose counters are damaged.
        """
        ...

    def commit(self, commits: Sequence[FragmentCommit]) -> None:
        """Store everything or nothing; on return it survives a crash.

        Within one FragmentCommit changes apply in order; its counters replace the stored ones.
        Entries with a `session_id` can be found by it, in any spelling, as long as they are on the
        main line; a session is forgotten with its last message there, unless it has a state.
        Payloads that are the same object in several fragments are shared: a store may keep them
        once, until the last of these messages is removed. A commit without changes is written too,
        even if its counters are the stored ones, so that its return proves that the store can be
        written. StoreError means *unknown*: each fragment in the commit must be loaded again.
        NotStored means that nothing was stored because of one of the commits: it uses numbers that
        were used before, an unknown fragment, or an invalid piece of a stage. The other commits can
        be stored without it.
        """
        ...

    def read_line(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        """Active messages of a line with a sequence number greater than `after`.

        Stops at `count_max` messages or when `bytes_max` of payload is reached, and returns at
        least one message if there is one. Messages removed, deferred, set aside or on another line
        are not returned. Cost depends on what is returned, not on how many messages wait.
        """
        ...

    def read_heads(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        """Like read_line, but without payloads, and without reading them.

        `bytes_max` counts payloads all the same. Only damage that can be seen without the payload
        is reported. Cost depends on how many messages are returned, not on their size.
        """
        ...

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
        """Like read_line from `start` on (inclusive), but with messages in every state except set
        aside.

        With `session_id` only messages of that session are returned, and they alone count; the line
        must then be the main line.
        """
        ...

    def read_entries(
        self, fragment: FragmentId, sequence_numbers: Sequence[int], *, bytes_max: int
    ) -> list[Entry | None]:
        """Messages of any line and state, with payloads, in the order of the numbers.

        None for a message that is gone, set aside or damaged. Payloads are left out (None) from the
        first one that would exceed `bytes_max`, but never that of the first message.
        """
        ...

    def read_session(
        self, fragment: FragmentId, session_id: str, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        """Like read_line for the messages of one session on the main line."""
        ...

    def read_sessions(self, fragment: FragmentId, *, after: int, count_max: int) -> SessionPage:
        """Sessions with active messages on the main line and a rank greater than `after`.

        Cost depends on what is returned, not on how many sessions or messages there are.
        """
        ...

    def list_sessions(
        self, fragment: FragmentId, *, updated_after_ms: int, skip: int, count_max: int
    ) -> list[str]:
        """Ids of sessions in a fixed order, without the first `skip`.

        Each id is spelled as in the session's first active message there; without one, as in its
        first deferred, scheduled or delayed message; without any, as when its state was set.

        With `updated_after_ms` < 0, sessions that have messages on the main line in any state, or a
        state; otherwise sessions whose state was set after that moment.
        """
        ...

    def read_state(self, fragment: FragmentId, session_id: str) -> bytes | None:
        """The state of a session, None if it has none. StoreError when the record is damaged."""
        ...

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        """Payloads in the order of the numbers; None for a message that is gone or damaged."""
        ...

    def read_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> dict[int, bytes | None]:
        """The pieces of a stage by ascending number; None for a damaged one.

        Those after one number and up to another. A stage that was never put, or was dropped, has
        none. Payloads stored beside the pieces are not read.
        """
        ...

    def check_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> list[int]:
        """The pieces of a stage with damaged payloads beside them; ascending.

        However many payloads there are, only few are in memory at a time.
        """
        ...

    def read_due(
        self,
        fragment: FragmentId,
        *,
        now_ms: int,
        count_max: int,
        bytes_max: int,
        claimed: Runs | None = None,
    ) -> Due:
        """Messages whose `due_ms` has come, the earliest first.

        These are messages on the main line that expired by `now_ms`, in any state, scheduled
        messages whose moment has come, and delayed ones whose delay is over. Messages that have not
        changed since they came are roughly in the order of commits. Stops at `count_max`, and when
        the payloads of scheduled ones reach `bytes_max` (at least one is returned). The store does
        not know locks: a message stays due until it is removed or changed. Messages in `claimed`
        are skipped, damaged or not, at a cost that depends on the number of their chunks; there may
        be as many as messages in the line.
        """
        ...

    def close(self) -> None:
        """Release files and memory. No other method may be called afterwards."""
        ...
