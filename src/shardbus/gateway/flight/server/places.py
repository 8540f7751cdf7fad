"""Places for streams, and time limits for silent clients."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, final

from shardbus.gateway.flight.server.bus import BusError
from shardbus.gateway.flight.server.peers import LaneConnection

log = logging.getLogger(__name__)

STREAMS_MAX: Final = 64
"""Streams that are read, and as many that are put: they do not compete."""
WAITS_S_MAX: Final = 60
"""How long a stream waits for a place, in order of arrival."""
FIRST_S_MAX: Final = 60
"""When a stream that is put must have its first batch."""
SILENT_S_MAX: Final = 600
"""A stream that waits longer for its client, to send or to take a batch, is ended."""
YIELDS_AFTER_S: Final = 30
"""A stream that has waited this long gives up its place when another stream needs it."""
LEAVES_S_MAX: Final = 5
"""How long to wait for a place that a stream was told to give up."""
CONNECTIONS_MAX: Final = 1_000
"""Beyond this number the connections that were silent longest are ended."""
LOOK_EACH_S: Final = 5

HangUp = Callable[[str], bool]


@final
class Stream:
    """A stream under way. `waits_since_s` is when it began to wait for its client; None: it does
    not.
    """

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.has_place = False
        self.is_ended = False
        self.waits_since_s: float | None = None
        self.waits_s_max: float = SILENT_S_MAX

    def silent_s(self, now_s: float) -> float:
        return 0.0 if self.waits_since_s is None else now_s - self.waits_since_s


@final
class LanePlaces:
    """Bounds what streams hold, and ends those whose clients are silent.

    A stream takes a place when there is work for it, so a silent client keeps none. Ending a stream
    ends its client's connection, since gRPC offers nothing less. `taken` is the number of taken
    places.
    """

    def __init__(
        self,
        hang_up: HangUp,
        *,
        streams_max: int = STREAMS_MAX,
        waits_s_max: float = WAITS_S_MAX,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hang_up = hang_up
        self._streams_max = streams_max
        self._waits_s_max = waits_s_max
        self._line: deque[Stream] = deque()
        self._monotonic_s = monotonic_s
        self._changed = threading.Condition()
        self._streams: set[Stream] = set()
        self.taken = 0

    @contextmanager
    def stream(self, peer: str) -> Iterator[Stream]:
        """Watch a stream from here to its end; then it returns its place."""
        stream = Stream(peer)
        with self._changed:
            self._streams.add(stream)
        try:
            yield stream
        finally:
            with self._changed:
                self._streams.discard(stream)
                self.taken -= stream.has_place
                stream.has_place = False
                self._changed.notify_all()

    @contextmanager
    def client_turn(self, stream: Stream, s_max: float = SILENT_S_MAX) -> Iterator[None]:
        """While this lasts the stream waits for its client, for a limited time."""
        stream.waits_s_max = s_max
        stream.waits_since_s = self._monotonic_s()
        try:
            yield
        finally:
            stream.waits_since_s = None

    def take(self, stream: Stream) -> None:
        """Give a stream a place, if it has none, in the order of arrival; BusError when all are
        taken for too long.
        """
        if stream.has_place:
            return
        deadline_s = self._monotonic_s() + self._waits_s_max
        with self._changed:
            self._line.append(stream)
            try:
                while self.taken >= self._streams_max or self._line[0] is not stream:
                    left_s = deadline_s - self._monotonic_s()
                    left_s += LEAVES_S_MAX if self._told_to_leave() else 0
                    if left_s <= 0:
                        raise BusError(
                            503,
                            "server-busy",
                            f"All {self._streams_max} places for streams are taken; try again "
                            "later.",
                        )
                    self._changed.wait(min(left_s, 1.0))
                self.taken += 1
                stream.has_place = True
            finally:
                self._line.remove(stream)
                self._changed.notify_all()

    def end_silent(self) -> None:
        """End the streams whose clients were silent for too long."""
        now_s = self._monotonic_s()
        with self._changed:
            late = [
                stream
                for stream in self._streams
                if not stream.is_ended and stream.silent_s(now_s) > stream.waits_s_max
            ]
            for stream in late:
                self._end(stream)

    def count(self) -> int:
        """The number of streams, with a place or without."""
        with self._changed:
            return len(self._streams)

    def busy_peers(self) -> set[str]:
        """The peers that wait for the server, and are silent for that reason."""
        with self._changed:
            return {stream.peer for stream in self._streams if stream.waits_since_s is None}

    def _told_to_leave(self) -> bool:
        """Whether a place will be free: a silent stream was told to end, now or before."""
        now_s = self._monotonic_s()
        holders = [stream for stream in self._streams if stream.has_place]
        if any(stream.is_ended for stream in holders):
            return True
        longest = max(holders, key=lambda stream: stream.silent_s(now_s), default=None)
        if longest is None or longest.silent_s(now_s) <= YIELDS_AFTER_S:
            return False
        return self._end(longest)

    def _end(self, stream: Stream) -> bool:
        stream.is_ended = True
        log.warning("a stream of %s waited too long for its client and is ended", stream.peer)
        return self._hang_up(stream.peer)


@final
class StreamWatch:
    """A thread that ends silent streams and connections, until it is closed.

    `look` is called each time, too.
    """

    def __init__(
        self,
        places: Sequence[LanePlaces],
        connections: Callable[[], list[LaneConnection]],
        hang_up: HangUp,
        look: Callable[[], None],
    ) -> None:
        self._look = look
        self._places = places
        self._connections = connections
        self._hang_up = hang_up
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flight-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_EACH_S):
            self._look()
            busy: set[str] = set()
            for places in self._places:
                places.end_silent()
                busy |= places.busy_peers()
            idle = [one for one in self._connections() if one.peer not in busy]
            for peer in overlong(idle):
                self._hang_up(peer)


def overlong(
    connections: list[LaneConnection],
    *,
    silent_ms_max: int = SILENT_S_MAX * 1000,
    connections_max: int = CONNECTIONS_MAX,
) -> list[str]:
    """The peers whose connections must end: the silent ones, then the longest silent of too
    many.
    """
    by_silence = sorted(connections, key=lambda one: -one.silent_ms)
    surplus = max(0, len(connections) - connections_max)
    return [
        one.peer
        for at, one in enumerate(by_silence)
        if (at < surplus and one.silent_ms) or one.silent_ms > silent_ms_max
    ]
