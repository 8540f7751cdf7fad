"""What became of each message, a few bytes for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

ATTEMPTED: Final = 1
ACCEPTED: Final = 2
SETTLING: Final = 4
DIGITS: Final = 10
_COUNT_MAX: Final = 255
_EXAMPLES: Final = 10


def body_of(number: int, size_bytes: int) -> bytes:
    """The number at both ends, so that a body which was cut or mixed up is seen."""
    name = b"%0*d" % (DIGITS, number)
    return name + b"." * (size_bytes - 2 * DIGITS) + name


@final
@dataclass(frozen=True)
class Verdict:
    """Counts; `examples` are numbers of messages that are missing, twice, or strangers.

    What nobody answered for may have happened: a send that is `unsure_sent` may be found or not,
    and so may a message whose completion is `unsure_completed`; neither may be found twice.
    """

    sent: int
    unsure_sent: int
    found: int
    completed: int
    unsure_completed: int
    missing: int
    twice: int
    strangers: int
    damaged: int
    disordered: int
    examples: list[int]

    @property
    def is_good(self) -> bool:
        wrong = self.missing or self.twice or self.strangers or self.damaged or self.disordered
        return self.sent > 0 and not wrong


@final
class Books:
    """What senders and receivers were told of messages 0 to `size` - 1, and what was found."""

    def __init__(self, size: int, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._state = bytearray(size)
        self._completed = bytearray(size)
        self._found = bytearray(size)
        self._next = 0
        self._damaged = 0
        self._disordered = 0
        self._last: dict[str, int] = {}
        self.accepted = 0
        self.completed = 0

    def attempt(self, count: int) -> range:
        """The next numbers to send; fewer when there are no more."""
        numbers = range(self._next, min(self._next + count, len(self._state)))
        self._next = numbers.stop
        for number in numbers:
            self._state[number] |= ATTEMPTED
        return numbers

    def accept(self, number: int) -> None:
        self._state[number] |= ACCEPTED
        self.accepted += 1

    def settle(self, number: int) -> None:
        """Its completion was asked for."""
        self._state[number] |= SETTLING

    def complete(self, number: int) -> None:
        """Its completion was confirmed."""
        _increase(self._completed, number)
        self.completed += 1

    def find(self, body: bytes, key: str | None = None) -> None:
        """A body in what Spark has written; those of a `key` are found in their order."""
        number = self.number_in(body)
        if number is None:
            return
        _increase(self._found, number)
        # A send that nobody answered may arrive after later ones.
        if key is not None and self._state[number] & ACCEPTED:
            self._disordered += number < self._last.get(key, -1)
            self._last[key] = number

    def number_in(self, body: bytes) -> int | None:
        """Whose body this is; None, and noted as damaged, if nobody's."""
        name = body[:DIGITS]
        number = int(name) if name.isdigit() else len(self._state)
        if number >= len(self._state) or body != body_of(number, self.size_bytes):
            self._damaged += 1
            return None
        return number

    def verdict(self) -> Verdict:
        missing: list[int] = []
        twice: list[int] = []
        strangers: list[int] = []
        unsure = unsure_completed = 0
        for number, state in enumerate(self._state):
            times = self._found[number] + self._completed[number]
            is_unsure = bool(state & SETTLING) and not self._completed[number]
            unsure += state == ATTEMPTED
            unsure_completed += is_unsure
            if times > 1:
                twice.append(number)
            elif times and not state & ATTEMPTED:
                strangers.append(number)
            elif not times and state & ACCEPTED and not is_unsure:
                missing.append(number)
        return Verdict(
            sent=self.accepted,
            unsure_sent=unsure,
            found=sum(self._found),
            completed=self.completed,
            unsure_completed=unsure_completed,
            missing=len(missing),
            twice=len(twice),
            strangers=len(strangers),
            damaged=self._damaged,
            disordered=self._disordered,
            examples=[*missing[:_EXAMPLES], *twice[:_EXAMPLES], *strangers[:_EXAMPLES]],
        )


def _increase(counts: bytearray, number: int) -> None:
    counts[number] = min(counts[number] + 1, _COUNT_MAX)
