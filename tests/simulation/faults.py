"""Stores that fail in every way their contract allows, and in no other."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from shardbus.core.fragment.change import Append, RecordChange, Remove
from shardbus.core.fragment.records import PREPARED
from shardbus.core.limits import BATCH_MAX
from shardbus.core.message import Entry
from shardbus.core.runs import Runs
from shardbus.stores.base.store import (
    Due,
    FragmentCommit,
    FragmentId,
    FragmentImage,
    NotStored,
    Page,
    SessionPage,
    StoreError,
)
from shardbus.stores.memory.store import MemoryStore
from tests.simulation.census import check_conservation
from tests.simulation.journal import Journal
from tests.simulation.sending import Violation
from tests.simulation.tally import befell
from tests.simulation.world import EPOCH_MS, Crash

T = TypeVar("T")

# How often a state is damaged where a record is.
STATE_DAMAGE = 0.3
# In how many worlds disks fill up, and how many commits with new messages a reserve then takes.
FILLING = 0.3
RESERVE_COMMITS = 2


class Faults:
    """How often what goes wrong, for the whole world; `stop` ends all of it."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._is_over = False
        severity = self.severity = chance.choice([0.0, 0.3, 1.0, 3.0])
        self.commit_fails_before = 0.004 * severity
        self.commit_fails_after = 0.004 * severity
        self.crash_before = 0.002 * severity
        self.crash_after = 0.002 * severity
        self.reads_fail = 0.003 * severity
        self.stall = 0.002 * severity
        self.damage = 0.01 * severity
        self.unfit = 0.003 * severity
        # Dice of its own, so that the histories of worlds where no disk fills up stay as they were.
        aside = Random()
        aside.setstate(chance.getstate())
        self._room = Random(aside.getrandbits(64))
        self._fills = 0.01 * severity if self._room.random() < FILLING else 0.0

    def stop(self) -> None:
        self._is_over = True

    def happens(self, rate: float) -> bool:
        return not self._is_over and rate > 0 and self._chance.random() < rate

    def full_s(self) -> float:
        """For how long a disk is full from now on; mostly it is not."""
        if self._is_over or not self._fills or self._room.random() >= self._fills:
            return 0.0
        return self._room.uniform(0.5, 12.0)

    @property
    def is_over(self) -> bool:
        return self._is_over

    def latency_s(self) -> float:
        if self.happens(self.stall):
            befell("disk stall")
            return self._chance.uniform(1.0, 8.0)
        return self._chance.uniform(0.0002, 0.004)

    def chosen(self, ones: list[T]) -> T:
        return self._chance.choice(ones)

    def outage_s(self) -> float:
        return self._chance.uniform(0.05, 4.0)


class UnfitCommits:
    """Commits that cannot be stored, however often they come, and others that must not suffer."""

    def __init__(self, faults: Faults, *, are_alone: bool) -> None:
        self._faults = faults
        # Whether every commit is a group of its own: then it is known who may suffer.
        self._are_alone = are_alone
        self._unfit: list[FragmentCommit] = []
        self._owed: dict[FragmentId, FragmentCommit] = {}

    def begin(self) -> None:
        """A process starts: the last one owes nobody anything."""
        self._unfit = []
        self._owed = {}

    def meet(self, commits: Sequence[FragmentCommit]) -> None:
        """Raises NotStored when one of these cannot be stored."""
        for commit in commits:
            if self._owed.pop(commit.fragment, commit) is not commit:
                raise Violation(f"{commit.fragment} was failed for what another wanted to store")
        if self._faults.happens(self._faults.unfit):
            self._unfit.append(self._faults.chosen(list(commits)))
            befell("unfit commit")
        fit = [commit for commit in commits if not any(commit is bad for bad in self._unfit)]
        if len(fit) < len(commits):
            if self._are_alone:
                self._owed.update({commit.fragment: commit for commit in fit})
            raise NotStored("planted: this cannot be stored")


class Filling:
    """A disk that fills up now and then: what gives back is stored, what brings more is not."""

    def __init__(
        self,
        faults: Faults,
        kept: MemoryStore,
        now_s: Callable[[], float],
        *,
        are_sent: bool,
    ) -> None:
        """`are_sent` says that messages come by being sent, and in no other way."""
        self._faults = faults
        self._kept = kept
        self._are_sent = are_sent
        self._now_s = now_s
        self._until_s = 0.0
        self._reserve = 0
        # Who brought something since: what was under way when the disk was full, and no more.
        self._late: set[FragmentId] = set()

    def look(self) -> None:
        if self._faults.is_over or self._now_s() >= self._until_s:
            self._kept.shortage = ""

    def meet(self, commits: Sequence[FragmentCommit]) -> None:
        """Raises NotStored when there is no room for these, and fills up when it is time."""
        full_s = self._faults.full_s()
        if full_s and not self._kept.shortage:
            befell("full disk")
            self._kept.shortage = "planted: the disk is full"
            self._until_s = self._now_s() + full_s
            self._reserve = RESERVE_COMMITS
            self._late = set()
        bringing = {commit.fragment for commit in commits if _brings(commit)}
        if not self._kept.shortage or not bringing or not self._are_sent:
            return
        if bringing & self._late:
            raise Violation(f"{bringing & self._late} take messages in although the disk is full")
        if not self._reserve:
            raise NotStored("planted: there is no room for it")
        self._reserve -= 1
        self._late |= bringing


def _brings(commit: FragmentCommit) -> bool:
    """Whether there is more than before; a message whose moment has come is only moved.

    Messages that are promised to a transaction come with the promise, which may be refused, and
    not when it is kept.
    """
    new = gone = 0
    is_kept = False
    for change in commit.changes:
        if isinstance(change, RecordChange) and change.kind == PREPARED:
            is_kept = change.data is None
            new += not is_kept
        elif isinstance(change, Append):
            new += 0 if is_kept else len(change.entries)
            is_kept = False
        elif isinstance(change, Remove):
            gone += len(change.sequence_numbers)
    return new > gone


class Disk:
    """A MessageStore that outlives the processes that use it; subclasses let it fail."""

    def __init__(self) -> None:
        self.kept = MemoryStore()

    @property
    def shortage(self) -> str:
        return self.kept.shortage

    @property
    def loss(self) -> str:
        return self.kept.loss

    @property
    def is_read_only(self) -> bool:
        return False

    def look(self) -> None:
        """Subclasses end what they began."""

    def before_commit(self, commits: Sequence[FragmentCommit]) -> None:
        """Raise StoreError here, and nothing was stored."""

    def after_commit(self, commits: Sequence[FragmentCommit]) -> None:
        """Raise StoreError here, and everything was."""

    def before_read(self, fragment: FragmentId, what: str) -> None:
        """Raise StoreError here, and the read has failed."""

    def timed(self) -> list[FragmentId]:
        self.before_read(FragmentId(0, 0), "timed")
        return self.kept.timed()

    def fragments(self) -> list[FragmentId]:
        return self.kept.fragments()

    def highest_entity_id(self) -> int:
        return self.kept.highest_entity_id()

    def recorded(self, kinds: Sequence[int]) -> list[FragmentId]:
        return self.kept.recorded(kinds)

    def create(self, fragments: Sequence[FragmentId]) -> None:
        self.kept.create(fragments)

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        self.kept.delete(fragments)

    def sweep(self) -> bool:
        return self.kept.sweep()

    def last_counters(self, fragments: Sequence[FragmentId]) -> list[int]:
        return self.kept.last_counters(fragments)

    def commit(self, commits: Sequence[FragmentCommit]) -> None:
        self.before_commit(commits)
        self.kept.commit(commits)
        self.after_commit(commits)

    def load(self, fragment: FragmentId) -> FragmentImage:
        self.before_read(fragment, "load")
        return self.kept.load(fragment)

    def read_line(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        self.before_read(fragment, "line")
        return self.kept.read_line(
            fragment, line, after=after, count_max=count_max, bytes_max=bytes_max
        )

    def read_heads(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        self.before_read(fragment, "heads")
        return self.kept.read_heads(
            fragment, line, after=after, count_max=count_max, bytes_max=bytes_max
        )

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
        self.before_read(fragment, "browse")
        return self.kept.browse(
            fragment,
            line,
            start=start,
            count_max=count_max,
            bytes_max=bytes_max,
            session_id=session_id,
        )

    def read_entries(
        self, fragment: FragmentId, sequence_numbers: Sequence[int], *, bytes_max: int
    ) -> list[Entry | None]:
        self.before_read(fragment, "entries")
        return self.kept.read_entries(fragment, sequence_numbers, bytes_max=bytes_max)

    def read_session(
        self, fragment: FragmentId, session_id: str, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        self.before_read(fragment, "session")
        return self.kept.read_session(
            fragment, session_id, after=after, count_max=count_max, bytes_max=bytes_max
        )

    def read_sessions(self, fragment: FragmentId, *, after: int, count_max: int) -> SessionPage:
        self.before_read(fragment, "sessions")
        return self.kept.read_sessions(fragment, after=after, count_max=count_max)

    def list_sessions(
        self, fragment: FragmentId, *, updated_after_ms: int, skip: int, count_max: int
    ) -> list[str]:
        self.before_read(fragment, "session list")
        return self.kept.list_sessions(
            fragment, updated_after_ms=updated_after_ms, skip=skip, count_max=count_max
        )

    def read_state(self, fragment: FragmentId, session_id: str) -> bytes | None:
        self.before_read(fragment, "state")
        return self.kept.read_state(fragment, session_id)

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        self.before_read(fragment, "payloads")
        return self.kept.read_payloads(fragment, sequence_numbers)

    def read_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> dict[int, bytes | None]:
        self.before_read(fragment, "stage")
        return self.kept.read_stage(fragment, stage, after=after, until=until)

    def check_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> list[int]:
        self.before_read(fragment, "stage")
        return self.kept.check_stage(fragment, stage, after=after, until=until)

    def read_due(
        self,
        fragment: FragmentId,
        *,
        now_ms: int,
        count_max: int,
        bytes_max: int,
        claimed: Runs | None = None,
    ) -> Due:
        self.before_read(fragment, "due")
        return self.kept.read_due(
            fragment, now_ms=now_ms, count_max=count_max, bytes_max=bytes_max, claimed=claimed
        )

    def close(self) -> None:
        """A disk stays when a process ends."""


class FaultyStore(Disk):
    """A disk with bad luck."""

    def __init__(
        self,
        faults: Faults,
        journal: Journal,
        now_s: Callable[[], float],
        loaded: Callable[[FragmentId], None],
    ) -> None:
        super().__init__()
        self.latency_s = faults.latency_s
        self._faults = faults
        self._journal = journal
        self._now_s = now_s
        self._loaded = loaded
        self._reads_fail_until_s = 0.0
        self._commits = 0
        self.unfit = UnfitCommits(faults, are_alone=True)
        self._filling = Filling(faults, self.kept, now_s, are_sent=True)

    def look(self) -> None:
        self._filling.look()

    def before_commit(self, commits: Sequence[FragmentCommit]) -> None:
        faults = self._faults
        self.unfit.meet(commits)
        self._filling.meet(commits)
        if faults.happens(faults.crash_before):
            raise Crash
        if faults.happens(faults.commit_fails_before):
            befell("failed commit")
            raise StoreError("planted: the commit did not happen")

    def after_commit(self, commits: Sequence[FragmentCommit]) -> None:
        faults = self._faults
        self._journal.applied(commits, EPOCH_MS + int(self._now_s() * 1000 + 1e-6))
        self._commits += 1
        if self._commits % 24 == 0:
            for commit in commits:
                check_conservation(self.kept, commit.fragment, self._journal)
        if faults.happens(faults.crash_after):
            raise Crash
        if faults.happens(faults.commit_fails_after):
            befell("lost commit")
            raise StoreError("planted: the commit happened, but who knows")

    def before_read(self, fragment: FragmentId, what: str) -> None:
        if self._faults.happens(self._faults.reads_fail):
            befell("failed read")
            self._reads_fail_until_s = self._now_s() + self._faults.outage_s()
        if self._now_s() < self._reads_fail_until_s:
            raise StoreError("planted: the disk does not answer")
        if what == "load":
            self._loaded(fragment)
        if self._faults.happens(self._faults.damage):
            self._damage(fragment)

    def _damage(self, fragment: FragmentId) -> None:
        """Make a record or a state fail its checksum."""
        journal, faults = self._journal, self._faults
        if kept := journal.kept_in(fragment):
            place = faults.chosen(kept).place
            befell("damaged record")
            journal.damaged.add(place)
            self.kept.damage(fragment, place.sequence_number)
        if (states := journal.states_in(fragment)) and faults.happens(STATE_DAMAGE):
            befell("damaged record")
            journal.with_damaged_states.add(fragment)
            self.kept.damage_state(fragment, faults.chosen(list(states)).session)
