"""Those who drive readers: they claim, read, complete, fall asleep, die and fight for names."""

from __future__ import annotations

import asyncio

from shardbus.broker.operations.readers import Readers
from shardbus.core.errors import (
    CLAIM_COMPLETED,
    CLAIM_LOST,
    READER_LOST,
    READER_NOT_FOUND,
    Refused,
    Unavailable,
)
from shardbus.core.limits import LEASE_MS_MIN
from shardbus.core.message import MAIN_LINE
from shardbus.core.readers.command import ReaderOpened
from shardbus.stores.base.store import FragmentId
from tests.simulation.reader_book import COMPLETED, LOST, ClaimPlace, ReaderBook, ReaderPlace
from tests.simulation.sending import Violation
from tests.simulation.town import Gateway, Town

LEASES_MS = (LEASE_MS_MIN, 40_000)


class Task:
    """What a driver is for: a name on a line of an entity."""

    def __init__(self, entity: str, line: int, name: str) -> None:
        self.entity = entity
        self.line = line
        self.name = name


class Driver:
    """One life of a driver: an owner of its own, and what it knows of each fragment."""

    def __init__(self, town: Town, book: ReaderBook, task: Task) -> None:
        self._town = town
        self._book = book
        self._task = task
        self._owner = b"owner %d" % town.new_mark()
        self._lease_ms = town.chance.choice(LEASES_MS)
        # By fragment: the last ordinal that was used, those that are open, and how often the
        # reader had been dropped when this was learned.
        self._last: dict[int, int] = {}
        self._open: dict[int, list[int]] = {}
        self._drops: dict[int, int] = {}
        # When it was last heard, at the earliest, and what it may have lost by silence before.
        self._heard_s: dict[int, float] = {}
        self._doubtful: dict[int, set[int]] = {}
        self._has_released = False

    async def live(self) -> None:
        """Until it dies, loses its reader, or the world is calm."""
        town, chance = self._town, self._town.chance
        while not town.is_over and chance.random() > 0.01:
            if chance.random() < 0.04:
                # Long enough to lose the claims, or the reader.
                await asyncio.sleep(chance.uniform(8.0, 30.0))
            await asyncio.sleep(chance.expovariate(4.0))
            gateway = await town.open_gateway()
            if not await self._turn(gateway):
                return

    async def finish(self, gateway: Gateway, *, is_completing: bool) -> bool:
        """Take over what others left, perhaps to complete it; False while that is not possible."""
        self._lease_ms = LEASE_MS_MIN
        if not await self._open_reader(gateway) or not self._last:
            return False
        for number in sorted(self._last) if is_completing else ():
            if self._open[number] and not await self._complete(gateway, number, is_all=True):
                return False
        return True

    async def _turn(self, gateway: Gateway) -> bool:
        """One thing that drivers do; False when the reader is lost."""
        chance = self._town.chance
        if not self._last or chance.random() < 0.1:
            return await self._open_reader(gateway)
        number = chance.choice(sorted(self._last))
        choice = chance.random()
        if choice < 0.45:
            return await self._claim(gateway, number)
        if choice < 0.65:
            return await self._read_some(gateway, number)
        if choice < 0.9:
            return await self._complete(gateway, number)
        return await self._speak_to_all(gateway, is_release=choice > 0.97)

    async def _open_reader(self, gateway: Gateway) -> bool:
        task = self._task
        readers = self._readers(gateway)
        new_id = b"%d" % self._town.new_mark()
        work = readers.open(task.line, task.name, self._owner, new_id, lease_ms=self._lease_ms)
        asked_s = self._town.loop.time()
        drops = {number: self._drop_count(gateway, number) for number in readers.numbers()}
        answer = await self._town.attempt(gateway, work)
        if isinstance(answer, Refused):
            self._book.events["in use"] += 1
            return False
        if not isinstance(answer, Unavailable):
            for number, opened in answer.found.items():
                if drops[number] == self._drop_count(gateway, number):
                    self._book.named(self._place(gateway, number), opened.reader_id)
                self._learn(gateway, number, opened)
                self._heard_s[number], self._doubtful[number] = asked_s, set()
        return True

    def _drop_count(self, gateway: Gateway, number: int) -> int:
        """Another one each time that somebody begins or ends to drop the reader."""
        place = self._place(gateway, number)
        return 2 * self._book.drops[place] + self._book.drops_begun(place)

    def _learn(self, gateway: Gateway, number: int, opened: ReaderOpened) -> None:
        place = self._place(gateway, number)
        self._book.opened(place, self._owner, opened.completed)
        self._last[number] = opened.last
        self._open[number] = [claim.ordinal for claim in opened.claims]
        self._drops[number] = self._book.drops[place]

    async def _claim(self, gateway: Gateway, number: int) -> bool:
        chance, task = self._town.chance, self._task
        place, ordinal = self._place(gateway, number), self._last[number] + 1
        was_owner = self._book.owns(place, self._owner)
        done = self._done(place, number) if chance.random() < 0.5 else 0
        work = self._readers(gateway).claim(
            number,
            task.line,
            task.name,
            self._owner,
            ordinal,
            count_max=chance.choice([1, 5, 50]),
            bytes_max=chance.choice([100, 10_000]),
            done=done,
        )
        asked_s = self._town.loop.time()
        claimed = await self._town.attempt(gateway, work)
        if isinstance(claimed, Refused):
            return self._forget(claimed)
        if isinstance(claimed, Unavailable):
            return True
        self._heard(number, asked_s)
        self._book.obeyed(place, self._owner, was_owner=was_owner)
        if done:
            if not self._is_dropped(number, place):
                self._book.completed(ClaimPlace(place, claimed.completed))
            self._book.events["completed by the next"] += 1
            self._open[number] = [each for each in self._open[number] if each > claimed.completed]
        if claimed.claim is None:
            return True
        self._book.events["claimed"] += 1
        if task.line == MAIN_LINE:
            self._check_order(gateway, number)
        self._last[number] = ordinal
        self._open[number].append(ordinal)
        return await self._read(gateway, number, ordinal)

    def _check_order(self, gateway: Gateway, number: int) -> None:
        """Nothing is claimed of a present fragment while a former one has an older message."""
        handle = gateway.bus.find(self._task.entity)
        assert handle is not None
        entity = handle.entity
        former = [] if entity.is_former(number) else entity.former()
        for home in former:
            fragment = FragmentId(entity.entity_id, home.number)
            disk = self._town.sites[home.broker_index].disk
            if disk.kept.load(fragment).counters.lines[MAIN_LINE].count:
                raise Violation(f"a claim of {number} came before what {fragment} has")
            self._book.events["claimed after a former map"] += 1

    def _done(self, place: ReaderPlace, number: int) -> int:
        """Up to where all that is open was read."""
        done = 0
        for ordinal in self._open[number]:
            if not self._book.has_read(ClaimPlace(place, ordinal)):
                break
            done = ordinal
        return done

    async def _read_some(self, gateway: Gateway, number: int) -> bool:
        if not self._open[number]:
            return True
        return await self._read(gateway, number, self._town.chance.choice(self._open[number]))

    async def _read(self, gateway: Gateway, number: int, ordinal: int) -> bool:
        task, claim = self._task, ClaimPlace(self._place(gateway, number), ordinal)
        work = self._readers(gateway).read(number, task.line, task.name, ordinal)
        entries = await self._town.attempt(gateway, work)
        if isinstance(entries, Refused):
            self._check_refusal(number, claim, entries)
            return self._forget(entries)
        if not isinstance(entries, Unavailable):
            self._book.was_read(claim, [entry.payload for entry in entries])
        return True

    def _check_refusal(self, number: int, claim: ClaimPlace, refusal: Refused) -> None:
        """A claim that was there is completed or lost, or its reader was dropped."""
        if self._is_dropped(number, claim.reader):
            return
        if refusal.kind is CLAIM_LOST:
            self._check_silence(number, claim)
            self._book.refused(claim, LOST)
        elif refusal.kind is CLAIM_COMPLETED:
            self._book.refused(claim, COMPLETED)
        else:
            raise Violation(f"{claim} cannot be read: {refusal.message}")

    def _heard(self, number: int, asked_s: float) -> None:
        """A fragment has heard of this owner, not before it was asked."""
        if self._town.loop.time() - self._heard_s[number] >= self._lease_ms / 1000:
            self._doubtful[number] = set(self._open[number])
        self._heard_s[number] = asked_s

    def _check_silence(self, number: int, claim: ClaimPlace) -> None:
        """Claims are lost by silence for a lease, whatever a clock on the wall says."""
        silent_s = self._town.loop.time() - self._heard_s[number]
        is_excused = self._has_released or claim.ordinal in self._doubtful[number]
        is_ours = self._book.owns(claim.reader, self._owner)
        if is_ours and not is_excused and silent_s < self._lease_ms / 1000:
            raise Violation(f"{claim} was lost {silent_s:.3f} s after its owner was heard")

    async def _complete(self, gateway: Gateway, number: int, *, is_all: bool = False) -> bool:
        """Read whatever of it nobody has read yet, then complete up to some claim."""
        if not self._open[number]:
            return True
        place, task = self._place(gateway, number), self._task
        ordinal = self._open[number][-1] if is_all else self._town.chance.choice(self._open[number])
        for each in [each for each in self._open[number] if each <= ordinal]:
            if not self._book.has_read(ClaimPlace(place, each)):
                return await self._read(gateway, number, each) and not is_all
        was_owner = self._book.owns(place, self._owner)
        work = self._readers(gateway).complete(task.line, task.name, self._owner, {number: ordinal})
        asked_s = self._town.loop.time()
        answer = await self._town.attempt(gateway, work)
        if isinstance(answer, Refused):
            return self._forget(answer)
        if isinstance(answer, Unavailable) or number in answer.missing:
            return not is_all
        self._heard(number, asked_s)
        self._book.obeyed(place, self._owner, was_owner=was_owner)
        if not self._is_dropped(number, place):
            self._book.completed(ClaimPlace(place, ordinal))
        self._open[number] = [each for each in self._open[number] if each > ordinal]
        return True

    async def _speak_to_all(self, gateway: Gateway, *, is_release: bool) -> bool:
        readers, task = self._readers(gateway), self._task
        verb = readers.release if is_release else readers.keep
        self._has_released |= is_release
        answer = await self._town.attempt(gateway, verb(task.line, task.name, self._owner))
        if is_release:
            self._book.events["released"] += 1
            self._last = {}
        return self._forget(answer) if isinstance(answer, Refused) else True

    def _forget(self, refusal: Refused) -> bool:
        """What is known is wrong: open again, unless somebody else has the reader now."""
        self._last = {}
        if refusal.kind is READER_LOST:
            self._book.events["shut out"] += 1
        return refusal.kind not in (READER_LOST, READER_NOT_FOUND)

    def _is_dropped(self, number: int, place: ReaderPlace) -> bool:
        """Whether the reader may have been dropped since it was opened."""
        return self._book.is_dropping(place) or self._book.drops[place] != self._drops[number]

    def _readers(self, gateway: Gateway) -> Readers:
        handle = gateway.bus.find(self._task.entity)
        assert handle is not None
        return handle.readers

    def _place(self, gateway: Gateway, number: int) -> ReaderPlace:
        handle = gateway.bus.find(self._task.entity)
        assert handle is not None
        fragment = FragmentId(handle.entity.entity_id, number)
        return ReaderPlace(fragment, self._task.line, self._task.name)
