"""The contract of a message store. Its docstrings are what tests/stores checks."""

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
    """The store could not do it; after a commit this means *unknown*: load again."""


class NotStored(StoreError):
    """What was to be stored cannot be: nothing of it was, and nothing will be.

    The cause lies in what one of the fragments wants, not in the disk: without that one the others
    of a commit can be stored.
    """


class Fenced(StoreError):
    """Another process owns the store now; this one writes nothing to it any more, nor reads it."""


class OtherBuild(StoreError):
    """What is stored was made by another build, and this one neither reads nor changes it."""


class UnknownFragment(NotStored):
    """The fragment was never created here, or was deleted."""


@final
class Unfinished:
    """An entity whose fragments may exist although the catalogue does not list it.

    `is_final`: it was deleted, and whatever its fragments hold is to go. Otherwise it was being
    created, and nobody could use it yet; but the catalogue may be an old copy that does not know
    how that ended.
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
        # The message ids that were remembered and not forgotten yet, in the order of commits.
        self.remembered: list[Remember] = [] if remembered is None else remembered
        # The records that the fragment keeps, by kind and key.
        self.records: dict[tuple[int, bytes], bytes] = {} if records is None else records


@final
class FragmentCommit:
    """Everything one fragment decided since its last commit, in order."""

    def __init__(self, fragment: FragmentId, changes: list[Change], counters: Counters) -> None:
        self.fragment = fragment
        self.changes = changes
        self.counters = counters


@final
class Page:
    """Messages in rising sequence order, payloads included (but for `read_heads`).

    `damaged` names messages of the range whose record fails its checksum; they are not in
    `entries`. `is_end` says that the store holds nothing of that kind beyond this page.
    """

    def __init__(self, entries: list[Entry], damaged: list[int], is_end: bool) -> None:
        self.entries = entries
        self.damaged = damaged
        self.is_end = is_end


class WaitingSession(NamedTuple):
    """A session with active messages on the main line.

    Its rank is the lowest sequence number of those. It rises while the session is received from,
    so a session that was read before may come again with a later page, and it falls when a message
    becomes active again before the others.
    """

    rank: int
    key: str


@final
class SessionPage:
    """Sessions in rising order of rank; `is_end` says that there are none beyond."""

    def __init__(self, sessions: list[WaitingSession], is_end: bool) -> None:
        self.sessions = sessions
        self.is_end = is_end


@final
class Due:
    """Messages whose time has come, and when to look again (NEVER_MS: when more come).

    Scheduled ones have their payloads, the others do not. `damaged` are those that were met
    instead of one that can be given out; of these only number, line, state and size are told.
    They come again every time until they are set aside.
    """

    def __init__(
        self, entries: list[Entry], next_due_ms: int, damaged: list[Entry] | None = None
    ) -> None:
        self.entries = entries
        self.next_due_ms = next_due_ms
        self.damaged: list[Entry] = [] if damaged is None else damaged


class MessageStore(Protocol):
    """Fragments on durable storage.

    `create`, `delete`, `sweep` and `commit` are called from one thread at a time (the writer); the
    reads from another single thread (the reader), possibly while a commit runs, and then see the
    state before or after it, never between. `close` is called when both are quiet.
    Any method may raise StoreError; nothing else is raised for what the world does (full disk,
    damage, I/O errors).

    `shortage` says why nothing more is to be taken in, and is empty while there is room; it may be
    read at any time, and changes in commits and in `look`. What is there can be settled, moved and
    removed all the same. In a store that `is_read_only` nothing can be.
    """

    @property
    def shortage(self) -> str: ...

    @property
    def is_read_only(self) -> bool: ...

    def look(self) -> None:
        """See whether there is room, which others may have taken or given back. For the writer."""
        ...

    def fragments(self) -> list[FragmentId]:
        """All fragments that exist here (deleted ones do not, even before they are swept)."""
        ...

    def highest_entity_id(self) -> int:
        """The highest entity id of all fragments ever made here, also of deleted ones; else 0.

        Called by the writer.
        """
        ...

    def recorded(self, kinds: Sequence[int]) -> list[FragmentId]:
        """Those fragments that keep records of one of these kinds. A read."""
        ...

    def timed(self) -> list[FragmentId]:
        """Those of them that hold a message that is or will be due."""
        ...

    def create(self, fragments: Sequence[FragmentId]) -> None:
        """Make fragments with empty lines, all or none, durably; existing ones stay as they are."""
        ...

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        """Forget fragments, all or none, durably and quickly; unknown ones are passed over.

        Their data is removed by `sweep`.
        """
        ...

    def sweep(self) -> bool:
        """Remove a bounded piece of what deleted fragments left; True while more is left."""
        ...

    def load(self, fragment: FragmentId) -> FragmentImage:
        """What the fragment was after its last commit.

        StoreError when its counters or a record that it keeps are damaged: a promise hangs on
        each. Damaged message ids are left out and logged.
        """
        ...

    def last_counters(self, fragments: Sequence[FragmentId]) -> list[int]:
        """The counter of the highest number that each of these has ever had. A read.

        0 for one that is unknown, or whose counters are damaged.
        """
        ...

    def commit(self, commits: Sequence[FragmentCommit]) -> None:
        """Store everything or nothing; on return it survives a crash (D4).

        Within one FragmentCommit changes apply in order; its counters replace the stored ones.
        Entries with a `session_id` can be found by it, in any spelling, as long as they are on the
        main line; a session is forgotten with its last message there, unless it has a state.
        Payloads that are the same object in several fragments are the same for all of them: a
        store may keep them once, until the last of these messages is gone.
        One without changes is written too, even if its counters are the stored ones: that it
        returns says that the store can be written.
        StoreError means *unknown*: each fragment in it must be loaded again. NotStored means that
        nothing was stored, because of what one of the commits says: numbers that were used before,
        a fragment that is unknown, a piece of a stage that is none. The same commits without it can
        be stored then.
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

        `bytes_max` counts payloads all the same. A message is damaged where that shows without its
        payload. Cost depends on how many messages are returned, not on their size.
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
        """Like read_line from `start` on (inclusive), but in every state except set aside.

        With `session_id` only messages of that session, whatever their number among the others;
        then the line must be the main line.
        """
        ...

    def read_entries(
        self, fragment: FragmentId, sequence_numbers: Sequence[int], *, bytes_max: int
    ) -> list[Entry | None]:
        """Messages of any line and state, with payloads, in the order asked for.

        None for one that is gone, set aside or damaged. Payloads are left out (None) from the
        first one on with which they would be more than `bytes_max`, but never that of the first.
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

        Each is spelled as in its first active message there; without one, as in the first that is
        deferred, scheduled or delayed; without any, as when its state was set.

        With `updated_after_ms` < 0 those that have messages on the main line, in any state, or a
        state; otherwise those whose state was set after that moment.
        """
        ...

    def read_state(self, fragment: FragmentId, session_id: str) -> bytes | None:
        """The state of a session, None if it has none. StoreError when the record is damaged."""
        ...

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        """Payloads in the order asked for; None for one that is gone or damaged."""
        ...

    def read_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> dict[int, bytes | None]:
        """The pieces of a stage by their numbers, rising; None for one that is damaged.

        Those after one number, and until another. A stage that was never put, or was dropped, has
        none. Payloads that are kept beside pieces are not read.
        """
        ...

    def check_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> list[int]:
        """The pieces of a stage of whose payloads, kept beside them, some are damaged; rising.

        However many payloads there are, few are in memory at a time.
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
        """Messages whose `due_ms` has come, those that were due first at the front.

        Those are messages on the main line that expired by `now_ms`, in whatever state, scheduled
        ones whose moment has come and delayed ones whose delay is over. Messages that have not
        changed since they came are in order of commits, roughly. Stops at `count_max`, and when
        the payloads of scheduled ones reach `bytes_max` (at least one is returned).
        Locks are not the store's business: a message stays due until it is removed or changed. But
        those in `claimed` are passed over, damaged or not, at a cost that depends on the chunks
        they are in; they may be as many as there are messages.
        """
        ...

    def close(self) -> None:
        """Give back files and memory. Nothing else may be called afterwards."""
        ...
