"""Readers of an entity over all of its fragments: opening, claiming, reading, completing,
releasing.

Fragments are identified by their numbers, which sequence numbers contain too. A fragment that
cannot be asked is not waited for: it is listed in `missing`. Everything here raises Refused;
operations on one fragment also raise Unavailable, and every command may be repeated after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar, final

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.operations.asking import ask, ask_all, failure_of, to_port
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    READER_NOT_FOUND,
    SERVER_BUSY,
    Refused,
    Unavailable,
)
from shardbus.core.fragment.command import Command
from shardbus.core.limits import CLAIM_COUNT_MAX, CLAIMS_MAX, LEASE_MS_DEFAULT
from shardbus.core.message import Entry
from shardbus.core.messages.command import Done
from shardbus.core.readers.command import (
    ALL_LINES,
    Claim,
    Claimed,
    ClaimRead,
    ClaimRuns,
    CompleteClaim,
    Completed,
    DescribeClaim,
    DropReader,
    GoneOn,
    GoOn,
    KeepReader,
    ListReaders,
    OpenReader,
    ReadClaim,
    ReaderOpened,
    ReaderStatus,
    ReleaseClaims,
)
from shardbus.core.readers.command import Readers as KnownReaders

T = TypeVar("T")

# How much of a claim is read at once, unless a single message is larger.
PIECE_BYTES_MAX: Final = 1024 * 1024
CLAIM_BYTES_MAX: Final = 1 << 40
# How often a claim is tried again that found nothing as far as it looked.
LOOKS_MAX: Final = 256
# Claims of one fragment that one commit completes, unless the same commit makes a new one.
COMPLETED_TOGETHER_MAX: Final = 4


@final
class FragmentAnswers(Generic[T]):
    """The answers of an entity's fragments, and why others did not answer, both by number."""

    def __init__(self, found: dict[int, T], missing: dict[int, Unavailable]) -> None:
        self.found = found
        self.missing = missing


@final
class WantedClaim:
    """A claim to be made: its ordinal, and its maximum size."""

    def __init__(self, ordinal: int, count_max: int, bytes_max: int) -> None:
        self.ordinal = ordinal
        self.count_max = count_max
        self.bytes_max = bytes_max


@final
class Advanced:
    """The new claims of a fragment, in order, and the ordinal up to which all are completed.

    With a failure there may be more of either.
    """

    def __init__(
        self, claims: list[Claimed], completed: int, failure: Unavailable | None = None
    ) -> None:
        self.claims = claims
        self.completed = completed
        self.failure = failure


class Maps(Protocol):
    """The maps of an entity."""

    def earlier(self, number: int) -> list[int]:
        """The fragments of the maps before that of this one, the oldest first."""
        ...


@final
class OneMap:
    """The maps of an entity that was never repartitioned."""

    def earlier(self, number: int) -> list[int]:
        return []


@final
class Readers:
    """Available as `EntityHandle.readers`. Fragments are asked in parallel.

    After a repartition nothing is claimed in the fragments of a map before those of earlier maps
    let the reader go on (`GoOn`), so that no claim passes an older message of its key, and nobody
    else holds its session.
    """

    def __init__(
        self,
        ports: Sequence[FragmentPort],
        numbers: Sequence[int],
        maps: Maps | None = None,
    ) -> None:
        """`numbers[i]` is the fragment that `ports[i]` serves; another map adds to both."""
        self._every_port = ports
        self._numbers = numbers
        self._maps = OneMap() if maps is None else maps
        # The former fragments that need not be asked again, with the line.
        self._passed: set[tuple[int, int]] = set()

    @property
    def _ports(self) -> dict[int, FragmentPort]:
        return dict(zip(self._numbers, self._every_port, strict=True))

    def numbers(self) -> list[int]:
        """The fragments that there are to read."""
        return list(self._numbers)

    # Over all fragments.

    async def open(
        self,
        line: int,
        name: str,
        owner: bytes,
        new_id: bytes,
        *,
        lease_ms: int = LEASE_MS_DEFAULT,
    ) -> FragmentAnswers[ReaderOpened]:
        """Start or continue to read under a name; fragments in `missing` can be opened later.

        Where the reader does not exist yet it is created with `new_id`, which must be a fresh one.
        """
        return await self._all(OpenReader(line, name, owner, lease_ms, new_id), _opened)

    async def keep(self, line: int, name: str, owner: bytes) -> FragmentAnswers[Done]:
        """Renew the claims of a reader everywhere, so that none is lost."""
        return spread(await self._where_known(KeepReader(line, name, owner)), done)

    async def release(self, line: int, name: str, owner: bytes) -> FragmentAnswers[Done]:
        """Return everything that a reader has claimed; all of those claims are lost."""
        return spread(await self._where_known(ReleaseClaims(line, name, owner)), done)

    async def drop(self, line: int, name: str) -> FragmentAnswers[Done]:
        """Forget a reader and return what it has claimed, whoever owns it.

        Refused with READER_NOT_FOUND only if no reachable fragment has it.
        """
        answers: dict[int, Answer] = {}
        # Those of the newest map first: as long as it is in former fragments, no other reader goes
        # on from there to sessions that it still holds.
        for numbers in self._newest_first():
            away = failure_of([each for each in answers.values() if isinstance(each, Unavailable)])
            if away is not None:
                answers |= dict.fromkeys(numbers, away)
            else:
                ports = {number: self._ports[number] for number in numbers}
                answers |= await self._ask(DropReader(line, name), ports)
        refusals = [each for each in answers.values() if isinstance(each, Refused)]
        if len(refusals) == len(answers) and refusals:
            raise refusals[0]
        dropped = {
            number: answer
            for number, answer in answers.items()
            if not _is_of_kind(answer, READER_NOT_FOUND.name)
        }
        return spread(dropped, done)

    def _newest_first(self) -> list[list[int]]:
        """The fragments of each map, those of the newest one first."""
        maps: list[list[int]] = []
        left = list(self._numbers)
        while left:
            earlier = [each for each in self._maps.earlier(left[-1]) if each in left]
            maps.append([each for each in left if each not in earlier])
            left = earlier
        return maps

    async def known(self, line: int = ALL_LINES) -> FragmentAnswers[list[ReaderStatus]]:
        """All readers, and how far they are, by fragment."""
        return await self._all(ListReaders(line), _listed)

    async def complete(
        self, line: int, name: str, owner: bytes, ordinals: Mapping[int, int]
    ) -> FragmentAnswers[int]:
        """Remove, in each of these fragments, what was claimed up to an ordinal.

        Returns the ordinals up to which everything is removed. Refused, for example with
        CLAIM_LOST, when one fragment refuses; the others still continue to the end.
        """
        self._check(ordinals)
        answers = await asyncio.gather(
            *(
                self._complete(number, CompleteClaim(line, name, owner, ordinal))
                for number, ordinal in ordinals.items()
            )
        )
        return spread(dict(zip(ordinals, answers, strict=True)), _completed)

    async def _complete(self, number: int, command: CompleteClaim) -> Answer:
        """One claim for each command, until all are completed; several commands share one
        commit.
        """
        together = 1
        for _ in range(CLAIMS_MAX):
            answers = await ask_all([to_port(self._ports[number], command)] * together)
            failure = failure_of(answers)
            if failure is not None:
                return failure
            completed = _completed(answers[-1])
            if completed >= command.ordinal:
                return answers[-1]
            together = min(command.ordinal - completed, COMPLETED_TOGETHER_MAX)
        return Unavailable(
            "More claims were to be completed than a reader can have.", is_unknown=True
        )

    # In one fragment.

    async def claim(  # noqa: PLR0913 - where, who and how much
        self,
        number: int,
        line: int,
        name: str,
        owner: bytes,
        ordinal: int,
        *,
        count_max: int = CLAIM_COUNT_MAX,
        bytes_max: int = CLAIM_BYTES_MAX,
        done: int = 0,
    ) -> Claimed:
        """Claim the next messages of a fragment under an ordinal; repeating it gives the same
        answer.

        The same commit completes the oldest claim if its ordinal is at most `done`. After an
        Unavailable both may have happened: the same ordinal tells what the claim has.

        One command looks only so far: where receivers hold the sessions of many messages, it is
        repeated until it has found some, or seen all of them.
        """
        self._check([number])
        await self._check_turn(number, line, name, owner)
        command = Claim(line, name, owner, ordinal, count_max, bytes_max, done)
        claimed = Claimed(None, True, 0)
        for _ in range(LOOKS_MAX):
            answer = await ask(self._ports[number], command)
            assert isinstance(answer, Claimed)
            claimed = answer
            if claimed.claim is not None or not claimed.is_more:
                break
        return claimed

    async def advance(
        self,
        number: int,
        line: int,
        name: str,
        owner: bytes,
        wanted_claims: Sequence[WantedClaim],
        done: int = 0,
    ) -> Advanced:
        """Make the next claims of a fragment, until nothing waits, and complete those up to `done`.

        Each new claim completes one, so that both take one commit.
        """
        claims: list[Claimed] = []
        completed = 0
        try:
            for wanted in wanted_claims:
                try:
                    completing = CompleteClaim(line, name, owner, done)
                    claimed = await self._advance(number, completing, wanted)
                except Refused as refusal:
                    if refusal.kind is not SERVER_BUSY or not claims:
                        raise
                    # The fragment has no room for more: the claims that were made are enough.
                    break
                claims.append(claimed)
                completed = claimed.completed
                if claimed.claim is None or not claimed.is_more:
                    break
            if completed < done:
                command = CompleteClaim(line, name, owner, done)
                completed = await self._completed_to(number, command)
        except Unavailable as failure:
            return Advanced(claims, completed, failure)
        return Advanced(claims, completed)

    async def _advance(self, number: int, done: CompleteClaim, wanted: WantedClaim) -> Claimed:
        """Make one claim; when there is no room for it, first complete everything up to `done`."""
        for ordinal in (done.ordinal, 0):
            try:
                return await self.claim(
                    number,
                    done.line,
                    done.name,
                    done.owner,
                    wanted.ordinal,
                    count_max=wanted.count_max,
                    bytes_max=wanted.bytes_max,
                    done=ordinal,
                )
            except Refused as refusal:
                if refusal.kind is not SERVER_BUSY or not ordinal:
                    raise
                await self._completed_to(number, done)
        raise AssertionError("the last turn returns or raises")

    async def _completed_to(self, number: int, command: CompleteClaim) -> int:
        self._check([number])
        answer = await self._complete(number, command)
        if isinstance(answer, Refused | Unavailable):
            raise answer
        return _completed(answer)

    async def describe(
        self, number: int, line: int, name: str, ordinal: int, reader_id: bytes = b""
    ) -> ClaimRuns:
        """Exactly which messages a claim has; of the reader with this id, if one is given."""
        self._check([number])
        answer = await ask(self._ports[number], DescribeClaim(line, name, ordinal, reader_id))
        assert isinstance(answer, ClaimRuns)
        return answer

    async def read(self, number: int, line: int, name: str, ordinal: int) -> list[Entry]:
        """The messages of a claim, with their payloads, in order; always the same.

        A message that is found damaged is set aside and left out.
        """
        entries: list[Entry] = []
        async for piece in self.pieces(number, line, name, ordinal):
            entries += piece
        return entries

    async def pieces(
        self, number: int, line: int, name: str, ordinal: int, reader_id: bytes = b""
    ) -> AsyncIterator[list[Entry]]:
        """The result of `read`, in pieces of about PIECE_BYTES_MAX."""
        self._check([number])
        port = self._ports[number]
        after = 0
        for _ in range(CLAIM_COUNT_MAX + 1):
            command = ReadClaim(line, name, ordinal, after, PIECE_BYTES_MAX, reader_id)
            answer = await ask(port, command)
            assert isinstance(answer, ClaimRead)
            yield answer.entries
            if answer.is_end:
                return
            after = answer.after

    async def _all(self, command: Command, read: Callable[[Answer], T]) -> FragmentAnswers[T]:
        return spread(await self._ask(command, self._ports), read)

    async def _where_known(self, command: Command) -> dict[int, Answer]:
        """The answers of all fragments; after a repartition without those that do not know the
        reader, if others do: it has not come to them, or needs them no more.
        """
        answers = await self._ask(command, self._ports)
        known = {
            number: answer
            for number, answer in answers.items()
            if not _is_of_kind(answer, READER_NOT_FOUND.name)
        }
        return known if known and self._maps.earlier(self._numbers[-1]) else answers

    async def _check_turn(self, number: int, line: int, name: str, owner: bytes) -> None:
        """Unavailable while a fragment of an earlier map comes first.

        They are asked one after another, so that of two readers only one goes on from all of them.
        """
        for earlier in self._maps.earlier(number):
            if (line, earlier) in self._passed:
                continue
            gone = await self._gone_on(earlier, GoOn(line, name, owner))
            if gone.is_final and gone.is_free():
                self._passed.add((line, earlier))
            elif not gone.is_free():
                raise Unavailable(_why_not(earlier, name, gone))

    async def _gone_on(self, number: int, command: GoOn) -> GoneOn:
        try:
            answer = await ask(self._ports[number], command)
        except Unavailable as failure:
            raise Unavailable(
                f"former fragment {number} comes first, and is unavailable: {failure}"
            ) from failure
        except Refused as refusal:
            if refusal.kind is not READER_NOT_FOUND:
                raise
            raise Unavailable(
                f"former fragment {number} comes first: open the reader there"
            ) from refusal
        assert isinstance(answer, GoneOn)
        return answer

    async def _ask(self, command: Command, ports: Mapping[int, FragmentPort]) -> dict[int, Answer]:
        answers = await ask_all([to_port(port, command) for port in ports.values()])
        return dict(zip(ports, answers, strict=True))

    def _check(self, numbers: Sequence[int] | Mapping[int, int]) -> None:
        for number in numbers:
            if number not in self._ports:
                raise Refused(INVALID_ARGUMENT, f"The entity has no fragment {number}.")


def spread(answers: Mapping[int, Answer], read: Callable[[Answer], T]) -> FragmentAnswers[T]:
    """The answers by kind; the first refusal is raised."""
    found: dict[int, T] = {}
    missing: dict[int, Unavailable] = {}
    for number, answer in answers.items():
        if isinstance(answer, Refused):
            raise answer
        if isinstance(answer, Unavailable):
            missing[number] = answer
        else:
            found[number] = read(answer)
    return FragmentAnswers(found, missing)


def _why_not(number: int, name: str, gone: GoneOn) -> str:
    """Why a reader may not go on from a fragment of an earlier map."""
    if gone.left:
        return f"{gone.left} older messages are left in former fragment {number}, which comes first"
    if gone.held:
        return (
            f"in former fragment {number} receivers hold {gone.held} sessions since before the "
            f"repartition: reader '{name}' goes on when they release them"
        )
    return (
        f"reader '{gone.ahead}' is ahead of former fragment {number}, which may still get messages "
        f"of the same sessions: reader '{name}' goes on when it has none left, or when "
        f"'{gone.ahead}' is dropped"
    )


def _is_of_kind(answer: Answer, name: str) -> bool:
    return isinstance(answer, Refused) and answer.kind.name == name


def _opened(answer: Answer) -> ReaderOpened:
    assert isinstance(answer, ReaderOpened)
    return answer


def done(answer: Answer) -> Done:
    assert isinstance(answer, Done)
    return answer


def _completed(answer: Answer) -> int:
    assert isinstance(answer, Completed)
    return answer.completed


def _listed(answer: Answer) -> list[ReaderStatus]:
    assert isinstance(answer, KnownReaders)
    return answer.readers
