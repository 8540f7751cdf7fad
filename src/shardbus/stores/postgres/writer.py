"""How a slot is written: one call, one transaction, one round trip for each commit.

Every transaction begins with the fence (`fence_v1`, which `commit_v1`, `commit_v2` and `fence_v2`
call). It fails unless the slot still has our epoch, and gives the transaction its number. When a
connection is lost, the outcome of the last transaction is unknown; `settle` raises the epoch, after
which that transaction can no longer take effect, and compares the numbers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast, final

from shardbus.core.cluster.statement import Commit
from shardbus.core.fragment.change import new_counters
from shardbus.stores.base.lease import SlotLease
from shardbus.stores.base.store import Fenced, FragmentCommit, FragmentId, NotStored, StoreError
from shardbus.stores.chunked.batch import planned
from shardbus.stores.chunked.chunk import (
    COUNTER_MAX,
    LOCALS_MAX,
    pack_counters,
    unpack_counters,
)
from shardbus.stores.chunked.directory import Known, StoreDirectory
from shardbus.stores.chunked.stages import StageWriter, drop_pieces
from shardbus.stores.postgres.encoding import Arrays, divided
from shardbus.stores.postgres.group import MEMBER_BYTES_MAX, Answer, GroupCommit
from shardbus.stores.postgres.link import (
    FENCED_STATE,
    Argument,
    Link,
    LinkLost,
    Row,
    ServerRefused,
)
from shardbus.stores.postgres.lookup import PostgresLookup, keys_of
from shardbus.stores.postgres.serving import keep_served
from shardbus.stores.postgres.stages import PostgresStages

log = logging.getLogger(__name__)

# New chunks that the writer keeps in memory before it drops all of them; they can be looked up.
RECENT_MAX: Final = 4096
# Maximum size of one call: a value of PostgreSQL has at most a gigabyte, and the server copies
# values.
SEND_BYTES_MAX: Final = 32 * 1024 * 1024
# How long a commit waits for a server that restarts or fails over before it is *unknown*.
SETTLE_S: Final = 10.0
RETRY_S: Final = 0.1
# A resent commit may lose its connection again.
ATTEMPTS_MAX: Final = 8
# "SBlo": one process at a time assigns local numbers to fragments.
_LOCALS_LOCK: Final = 0x53426C6F
# Maximum number of rows that one call of `sweep` removes.
SWEEP_CHUNKS_MAX: Final = 256
SWEEP_ENTRIES_MAX: Final = 1024
SWEEP_SESSIONS_MAX: Final = 64
SWEEP_RECORDS_MAX: Final = 16
SWEEP_PIECES_MAX: Final = 16

Tid = tuple[int, int]
"""The location of a version of a row: its block and the position in it."""
NOWHERE: Final = (0, 0)
# The location of the slot; fragments, and their locations.
_Places = tuple[Tid, list[int] | None, list[Tid] | None]

_TAKE: Final = """
UPDATE slot SET epoch = epoch + 1, owner = $2 WHERE slot = $1 RETURNING epoch, commits, ctid
"""
# The condition is the unique name of the owner, not the epoch, because this answer may be lost too.
_RAISE: Final = """
UPDATE slot SET epoch = epoch + 1 WHERE slot = $1 AND owner = $2 RETURNING epoch, commits, ctid
"""
_OWNER: Final = "SELECT owner, epoch FROM slot WHERE slot = $1"
# Slot, epoch, number, where the slot is, fragments, where they are, counters, and the rows.
_COMMIT: Final = "commit_v1"
_FENCE: Final = "SELECT fence_v1($1, $2, $3, $4)"
# With the incarnation that leases the slot.
_LEASED_COMMIT: Final = "commit_v2"
_CALLS: Final = {
    name: f"SELECT * FROM {name}({', '.join(f'${n}' for n in range(1, count + 1))})"
    for name, count in ((_COMMIT, 24), (_LEASED_COMMIT, 25))
}
_LEASED_FENCE: Final = "SELECT fence_v2($1, $2, $3, $4, $5)"
_NEXT_PART: Final = "SELECT max(id) FROM part WHERE id BETWEEN $1 AND $2"
_FRAGMENTS: Final = """
SELECT entity_id, number, local FROM fragment WHERE slot = $1 AND NOT is_deleted
"""
_KNOWN: Final = "SELECT local, counters, has_parts, ctid, journal FROM fragment WHERE slot = $1"
_NEXT_LOCAL: Final = "SELECT coalesce(max(local) + 1, 0) FROM fragment"
_FREE_LOCALS: Final = """
SELECT free FROM generate_series(0, $1 - 1) AS free
WHERE NOT EXISTS (SELECT FROM fragment WHERE local = free) LIMIT $2
"""
_CREATE: Final = """
INSERT INTO fragment (local, slot, entity_id, number, counters) VALUES ($1, $2, $3, $4, $5)
"""
_NOTE_ID: Final = """
UPDATE slot SET highest_entity_id = $2 WHERE slot = $1 AND highest_entity_id < $2
"""
_HIGHEST: Final = "SELECT highest_entity_id FROM slot WHERE slot = $1"
_DELETE: Final = "UPDATE fragment SET is_deleted = true WHERE local = ANY ($1::bigint[])"
_SWEPT: Final = """
SELECT local, has_parts FROM fragment WHERE slot = $1 AND is_deleted ORDER BY local LIMIT 1
"""
_SWEPT_CHUNKS: Final = (
    "SELECT first FROM chunk WHERE first BETWEEN $1 AND $2 ORDER BY first LIMIT $3"
)
_SWEPT_ENTRIES: Final = "SELECT key FROM entry WHERE key BETWEEN $1 AND $2 ORDER BY key LIMIT $3"
# The effect of rows of the kind RELEASE, for all rows that are removed next; $1 are chunks or
# entries.
_RELEASE: Final = """
WITH going AS (
    SELECT x.id, count(*) AS users FROM {} AS c CROSS JOIN unnest(c.parts) AS x(id)
    WHERE c.{} = ANY ($1::bigint[]) GROUP BY x.id
), stays AS (
    UPDATE part p SET users = p.users - g.users FROM going g
    WHERE p.id = g.id AND p.users > g.users
)
DELETE FROM part p USING going g WHERE p.id = g.id AND p.users <= g.users
"""
_SWEEP: Final = (
    (
        "chunk", "first", _SWEPT_CHUNKS, SWEEP_CHUNKS_MAX,
        (
            "DELETE FROM gap WHERE first = ANY ($1::bigint[])",
            "DELETE FROM chunk WHERE first = ANY ($1::bigint[])",
        ),
    ),
    (
        "entry", "key", _SWEPT_ENTRIES, SWEEP_ENTRIES_MAX,
        ("DELETE FROM entry WHERE key = ANY ($1::bigint[])",),
    ),
)  # fmt: skip
_SWEEP_KEYED: Final = tuple(
    f"""
    DELETE FROM {table} WHERE key = ANY (ARRAY(
        SELECT key FROM {table} WHERE key BETWEEN $1 AND $2 ORDER BY key LIMIT $3)) RETURNING 1
    """
    for table in ("evidence", "remembered")
)
_SWEEP_RECORDS: Final = """
DELETE FROM record r USING (
    SELECT kind, key FROM record WHERE local = $1 ORDER BY kind, key LIMIT $2) AS s
WHERE r.local = $1 AND r.kind = s.kind AND r.key = s.key RETURNING 1
"""
_SWEPT_PIECES: Final = "SELECT id, parts FROM stage WHERE local = $1 ORDER BY stage, piece LIMIT $2"
# Only when no entry names them any more.
_SWEPT_SESSIONS: Final = "SELECT id FROM session WHERE local = $1 ORDER BY name LIMIT $2"
_SWEEP_SESSIONS: Final = (
    "DELETE FROM session_state WHERE session = ANY ($1::bigint[])",
    "DELETE FROM session WHERE id = ANY ($1::bigint[])",
)


@final
class SlotWriter:
    """The only owner of a slot after `take`. It drops its memory when a transaction fails.

    The thread that uses the connection holds `turn`: the writer, or a reader that must first know
    the outcome of the last commit.
    """

    def __init__(
        self,
        link: Link,
        slot: int,
        owner: str,
        lease: SlotLease | None = None,
        group: GroupCommit | None = None,
    ) -> None:
        """Without a lease, the process that took the slot last owns it. `group` sends small
        commits together with those of other slots.
        """
        self.turn = threading.Lock()
        # Whether the outcome of the last transaction is unknown.
        self.is_unsettled = False
        # Fragments that were loaded before the database lost some of their commits.
        self.stale: set[int] = set()
        self._link = link
        self._lookup = PostgresLookup(link, slot)
        self._stages = PostgresStages(link)
        self._slot = slot
        self._owner = owner
        self._lease = lease
        self._group = group
        # The last commit that was sent under the lease.
        self._sent: Commit | None = None
        self._epoch = 0
        self._commits = 0
        self._at: Tid = NOWHERE
        self._fenced = ""
        # All chunks since this object was created, and some older ones.
        self._directory: StoreDirectory | None = None
        self._known = Known(by_key=True)
        self._ats: dict[int, Tid] = {}

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def fenced(self) -> str:
        """Why nothing can be written or read here any more; empty while it can."""
        return self._fenced

    def take(self) -> None:
        """Own the slot from now on: its former owner cannot write any more."""
        keep_served(self._link)
        if self._lease is not None:
            self._epoch, self._commits = self._lease.held()
            return
        row = self._link.row(_TAKE, self._slot, self._owner)
        if row is None:
            raise StoreError(f"{self._link.address.shown} has no slot {self._slot}")
        self._epoch, self._commits, self._at = row

    def fragments(self) -> dict[FragmentId, int]:
        """The local numbers of all fragments that exist."""
        rows = self._link.fetch(_FRAGMENTS, self._slot)
        return {FragmentId(entity_id, number): local for entity_id, number, local in rows}

    def highest_entity_id(self) -> int:
        self._check_own()
        row = self._link.row(_HIGHEST, self._slot)
        return 0 if row is None else int(row[0])

    def namespace_id(self) -> str:
        row = self._link.row("SELECT namespace_id FROM slot WHERE slot = $1", self._slot)
        return "" if row is None else str(row[0])

    def join(self, namespace_id: str) -> None:
        sql = "UPDATE slot SET namespace_id = $2 WHERE slot = $1"
        self._fenced_work(lambda: self._link.fetch(sql, self._slot, namespace_id))

    def create(self, fragments: Sequence[FragmentId]) -> dict[FragmentId, int]:
        """Create fragments, unless they exist; returns all fragments that exist then."""
        found: dict[FragmentId, int] = {}

        def work() -> None:
            self._create(fragments)
            found.clear()
            found.update(self.fragments())

        self._fenced_work(work)
        self._forget()
        return found

    def delete(self, locals_: Sequence[int]) -> None:
        self._fenced_work(lambda: self._link.fetch(_DELETE, list(locals_)))
        self._forget()

    def sweep(self) -> bool:
        self._check_own()
        found = self._link.row(_SWEPT, self._slot)
        if found is None:
            return False
        local, has_parts = found
        self._fenced_work(lambda: self._sweep(local, has_parts))
        return True

    def commit(self, commits: Sequence[tuple[int, FragmentCommit]]) -> None:
        self._write(lambda: self._commit(commits))

    def _check_loaded(self, commits: Sequence[tuple[int, FragmentCommit]]) -> None:
        """Refuse commits of fragments that were loaded before the database lost commits."""
        if self.stale and any(local in self.stale for local, _ in commits):
            raise ServerRefused(
                f"{self._link.address.shown} has lost commits of a fragment: it must be loaded "
                "again",
                "",
            )

    def settle(self) -> None:
        """Determine whether the last transaction is stored; if not, it never will be.

        LinkLost if that takes too long; then the next transaction determines it.
        """
        if self._lease is not None:
            self._settle_leased(self._lease)
            return
        deadline = time.monotonic() + SETTLE_S
        row: Row | None = None
        while True:
            try:
                row = self._link.row(_RAISE, self._slot, self._owner)
                break
            except LinkLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)
        self._forget()
        if row is None:
            self._fall_behind()
            raise Fenced(self._fenced)
        epoch, commits, self._at = row
        if commits < self._commits:
            log.critical(
                "%s: PostgreSQL has lost %d transactions that it had said were stored: the last "
                "was number %d, and now it is %d. Did a server become the primary that had not "
                "received them? `synchronous_standby_names` on the primary must name it",
                self._owner,
                self._commits - commits,
                self._commits,
                commits,
            )
            self.stale = {row[2] for row in self._link.fetch(_FRAGMENTS, self._slot)}
        self._epoch, self._commits = epoch, commits
        self.is_unsettled = False
        # Only keeps others from examining a served database; the fence does not depend on it.
        with suppress(StoreError):
            keep_served(self._link)

    def _settle_leased(self, lease: SlotLease) -> None:
        self._forget()
        sent = self._sent
        try:
            if sent is not None and lease.outcome(sent):
                self._commits = sent.number
        except Fenced as error:
            self._fenced = str(error)
            raise
        self.is_unsettled = False

    def _check_own(self) -> None:
        if self._fenced:
            raise Fenced(self._fenced)
        if self.is_unsettled:
            self.settle()

    def _fenced_work(self, work: Callable[[], object]) -> None:
        """Statements in one transaction, which begins with the fence."""

        def transaction() -> None:
            self._link.begin()
            at = self._fence()
            work()
            self._link.commit()
            self._at = at

        self._write(transaction)

    def _fence(self) -> Tid:
        fence = (self._slot, self._epoch, self._commits + 1, self._at)
        if self._sent is None:
            at: Tid = self._link.fetch(_FENCE, *fence)[0][0]
        else:
            at = self._link.fetch(_LEASED_FENCE, *fence, self._sent.incarnation)[0][0]
        return at

    def _write(self, work: Callable[[], None]) -> None:
        """Execute one transaction with the fence, and determine its outcome.

        StoreError if the outcome could not be determined in time, or if another process owns the
        slot.
        """
        for _ in range(ATTEMPTS_MAX):
            self._check_own()
            number = self._commits + 1
            self._begin(number)
            try:
                self._attempt(work)
            except LinkLost as error:
                log.warning("%s: transaction %d may be lost: %s", self._owner, number, error)
                self._doubt()
                self.settle()
                if self._commits < number:
                    continue
            self._commits = number
            return
        raise StoreError(
            f"{self._link.address.shown}: the connection was lost {ATTEMPTS_MAX} times in a row, "
            "each time in the same transaction. Nothing of it was stored"
        )

    def _begin(self, number: int) -> None:
        """Under a lease, wait until the ownership of the slot is certain."""
        if self._lease is None:
            return
        try:
            sent = self._lease.begin()
        except Fenced as error:
            self._fenced = str(error)
            raise
        if sent.number != number:
            # Another process has written meanwhile, which cannot happen to the owner of a slot.
            self._lease.withdrawn(sent)
            self._fenced = f"slot {self._slot} has {sent.number - 1} commits, not {number - 1}"
            raise Fenced(self._fenced)
        self._sent, self._epoch = sent, sent.epoch

    def _doubt(self) -> None:
        self.is_unsettled = True
        if self._lease is not None and self._sent is not None:
            self._lease.lost(self._sent)

    def _attempt(self, work: Callable[[], None]) -> None:
        self._link.warnings.clear()
        try:
            work()
        except (ServerRefused, NotStored) as error:
            self._roll_back()
            is_fenced = isinstance(error, ServerRefused) and error.state == FENCED_STATE
            self._tell_refused(is_fenced=is_fenced)
            if is_fenced:
                self._fall_behind()
                raise Fenced(self._fenced) from error
            raise
        except LinkLost:
            raise
        except BaseException:
            self._link.drop()
            self._doubt()
            raise
        if self._link.warnings:
            # The primary has stored it, but perhaps not the standby, because the wait was
            # cancelled. The statement that raises the epoch waits for the standby too, for all
            # earlier ones.
            raise LinkLost("; ".join(self._link.warnings))
        lease, sent = self._lease, self._sent
        if lease is not None and sent is not None and not lease.committed(sent):
            raise LinkLost("a connection of the broker was lost meanwhile")

    def _tell_refused(self, *, is_fenced: bool) -> None:
        """LinkLost if this broker's own lease has raised the epoch meanwhile."""
        lease, sent = self._lease, self._sent
        if lease is None or sent is None:
            return
        if not is_fenced:
            lease.withdrawn(sent)
        elif not lease.refused(sent):
            raise LinkLost("a connection of the broker was lost meanwhile")

    def _roll_back(self) -> None:
        """PostgreSQL refused the transaction and stored nothing; memory must be loaded again."""
        self._forget()
        try:
            self._link.roll_back()
        except StoreError:
            self._link.drop()
        # PostgreSQL warns that there is no transaction, which is expected here.
        self._link.warnings.clear()

    def _forget(self) -> None:
        self._directory = None

    def _fall_behind(self) -> None:
        """Note that another process owns the slot."""
        self._forget()
        who = "another process"
        with suppress(StoreError):
            row = self._link.row(_OWNER, self._slot)
            if row is not None:
                who = f"{row[0]}, with epoch {row[1]} where ours was {self._epoch}"
        self._fenced = (
            f"{self._owner} does not own slot {self._slot} of {self._link.address.shown} any more, "
            f"but {who}. Nothing was stored"
        )
        if self._lease is not None:
            # The node was suspended or cut off, and others have taken over, as intended.
            log.warning("%s", self._fenced)
            return
        self._fenced += ". Stop one of the two processes; to keep this one, restart it"
        log.critical("%s", self._fenced)

    def _create(self, fragments: Sequence[FragmentId]) -> None:
        self._link.fetch("SELECT pg_advisory_xact_lock($1)", _LOCALS_LOCK)
        # An earlier call may have created them without learning so.
        known = self.fragments()
        new = [fragment for fragment in fragments if fragment not in known]
        for local, fragment in zip(self._free(len(new)), new, strict=True):
            counters = pack_counters(local, new_counters())
            self._link.fetch(_CREATE, local, self._slot, *fragment, counters)
        highest = max(fragment.entity_id for fragment in fragments)
        self._link.fetch(_NOTE_ID, self._slot, highest)

    def _free(self, count: int) -> list[int]:
        """Local numbers that no fragment has."""
        first = int(self._link.fetch(_NEXT_LOCAL)[0][0])
        if first + count <= LOCALS_MAX:
            return list(range(first, first + count))
        found = [int(row[0]) for row in self._link.fetch(_FREE_LOCALS, LOCALS_MAX, count)]
        if len(found) < count:
            raise NotStored(f"a database holds at most {LOCALS_MAX} fragments; delete entities")
        return found

    def _sweep(self, local: int, has_parts: bool) -> None:
        low, high = keys_of(local)
        removed = 0
        for table, key, going, limit, statements in _SWEEP:
            keys = [row[0] for row in self._link.fetch(going, low, high, limit)]
            removed += len(keys)
            if keys and has_parts:
                self._link.fetch(_RELEASE.format(table, key), keys)
            for sql in statements if keys else ():
                self._link.fetch(sql, keys)
        for sql in _SWEEP_KEYED:
            removed += len(self._link.fetch(sql, low, high, SWEEP_ENTRIES_MAX))
        removed += len(self._link.fetch(_SWEEP_RECORDS, local, SWEEP_RECORDS_MAX))
        found = self._link.fetch(_SWEPT_PIECES, local, SWEEP_PIECES_MAX)
        drop_pieces(self._stages, [(row[0], row[1]) for row in found])
        removed += len(found)
        if removed == 0:
            found = self._link.fetch(_SWEPT_SESSIONS, local, SWEEP_SESSIONS_MAX)
            removed += len(found)
            for sql in _SWEEP_SESSIONS if found else ():
                self._link.fetch(sql, [row[0] for row in found])
        if removed == 0:
            self._link.fetch("DELETE FROM fragment WHERE local = $1", local)

    def _commit(self, commits: Sequence[tuple[int, FragmentCommit]]) -> None:
        self._check_loaded(commits)
        try:
            directory = self._loaded()
            batch = planned(self._lookup, directory, self._known, commits)
            first, *others = divided(batch.rows.cells, SEND_BYTES_MAX)
        except StoreError:
            raise
        except Exception as bug:
            # The commit is invalid; nothing is written before everything is planned.
            raise NotStored(f"internal error: {bug!r}") from bug
        if batch.has_stages() or others:
            self._link.begin()
            self._send(first)
            for arrays in others:
                self._stages.apply(arrays)
            StageWriter(self._stages, batch).store()
            self._link.commit()
        else:
            is_small = first.size_bytes() <= MEMBER_BYTES_MAX
            self._send(first, self._group if is_small else None)
        if directory.recent_count > RECENT_MAX:
            directory.age()

    def _send(self, arrays: Arrays, group: GroupCommit | None = None) -> None:
        locals_ = list(arrays.counters)
        ats = [self._ats.get(local, NOWHERE) for local in locals_]
        name = _COMMIT
        leased_by: tuple[int, ...] = ()
        if self._sent is not None:
            name, leased_by = _LEASED_COMMIT, (self._sent.incarnation,)
        arguments: tuple[Argument, ...] = (
            self._slot,
            self._epoch,
            self._commits + 1,
            self._at,
            locals_,
            ats,
            list(arrays.counters.values()),
            arrays.mask,
            *arrays.columns,
            *leased_by,
        )

        def alone() -> Answer:
            return tuple(self._link.fetch(_CALLS[name], *arguments)[0])

        answer = alone() if group is None else group.call(name, arguments, alone)
        self._at, found, where = cast("_Places", answer)
        self._ats.update(zip(found or (), where or (), strict=True))

    def _loaded(self) -> StoreDirectory:
        if self._directory is not None:
            return self._directory
        known = Known(by_key=True)
        first, last = keys_of(self._slot)
        highest = self._link.fetch(_NEXT_PART, first, last)[0][0]
        known.next_part = max(highest or 0, first) + 1
        ats: dict[int, Tid] = {}
        for local, data, has_parts, at, journal in self._link.fetch(_KNOWN, self._slot):
            counters = unpack_counters(local, data)
            known.last_counters[local] = COUNTER_MAX if counters is None else counters.last_counter
            if has_parts:
                known.has_parts.add(local)
            known.load_open(local, journal)
            ats[local] = at
        self._directory, self._known, self._ats = StoreDirectory(), known, ats
        return self._directory
