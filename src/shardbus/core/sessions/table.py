"""Message sessions in memory: those that clients hold, and a bounded list of free ones (R26).

Sends to a session that nobody holds leave nothing in memory per message. Holds of receivers are
volatile, as locks are: a restart ends all of them. Their deadlines are readings of the steady
clock. Readers hold the sessions of their claims, which are stored.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Final, final

from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.line import Line
from shardbus.core.fragment.lock import LockBatch, LockTable
from shardbus.core.message import NEVER_MS, Entry
from shardbus.core.sequence import TOKEN_SEED_BYTES
from shardbus.core.sessions.key import session_key

STATE_UNREAD: Final = -2
NO_STATE: Final = -1


@final
class HeldSession:
    """A held session: a window of its messages, and the locks on those handed out.

    `session_id` is in the spelling of the client that asked for it. `shared` is the token by which
    another client can take the session over, b"" if it is held by one client alone. `is_joint` says
    that its holder knew the fragment as a former one, and holds the session at its present one too.
    """

    def __init__(
        self, session_id: str, token: bytes, line: Line, batch: LockBatch, shared: bytes = b""
    ) -> None:
        self.session_id = session_id
        self.key = session_key(session_id)
        self.token = token
        self.shared = shared
        self.is_joint = False
        self.line = line
        self.batch = batch
        # The size of the stored state, or STATE_UNREAD or NO_STATE.
        self.state_bytes = STATE_UNREAD

    def deadline_ms(self) -> int:
        return self.batch.deadline_ms

    def told_ms(self) -> int:
        return self.batch.told_ms()


@final
class ClaimedSession:
    """A session that a reader holds until its claim under this ordinal ends.

    `may_have_more`: messages of it may wait that are in no claim.
    """

    def __init__(self, reader: str, ordinal: int, may_have_more: bool) -> None:
        self.reader = reader
        self.ordinal = ordinal
        self.may_have_more = may_have_more


@final
class Scan:
    """How far a reader has looked through the main line for messages that it may claim.

    Every message up to `end` that waits belongs to a session that somebody else holds; `passed` has
    these sessions, each with the lowest number that was passed. Unless `has_tail`, no message waits
    after `end`.
    """

    def __init__(self) -> None:
        self.end = 0
        self.has_tail = True
        self.passed: dict[str, int] = {}

    def pass_over(self, key: str, number: int) -> None:
        """A message waits for somebody else, who holds its session."""
        known = self.passed.get(key)
        if known is None or number < known:
            self.passed[key] = number

    def rewind(self, number: int) -> None:
        """A message may wait at this number."""
        self.end = min(self.end, number - 1)
        self.has_tail = True

    def set_free(self, key: str) -> None:
        """Nobody holds a session any more: what was passed of it is to be seen again."""
        first = self.passed.pop(key, None)
        if first is not None:
            self.rewind(first)


@final
class SessionTable:
    """The sessions of one fragment, each by the key of its id.

    Every free session with active messages is in the list of known ones, or has a rank greater than
    `end` in the store while `has_tail` is set, or the list is to be read again from the start.

    The store also ranks by pinned messages. While there are any, a session that gets a message may
    have a rank that was passed already, so all such sessions are added to the list.
    """

    def __init__(self, bounds: Bounds, has_tail: bool, locks: LockTable) -> None:
        self.end = 0
        self.has_tail = has_tail
        self._bounds = bounds
        self._locks = locks
        self._must_restart = False
        self._known: OrderedDict[str, None] = OrderedDict()
        self._held: dict[str, HeldSession] = {}
        self._by_token: dict[bytes, HeldSession] = {}
        # What readers hold, and how far each of them has looked, by their names.
        self._claimed: dict[str, ClaimedSession] = {}
        self._scans: dict[str, Scan] = {}
        # Deadlines at the time they were pushed; a renewal is noticed when its old deadline comes
        # up.
        self._deadlines: list[tuple[int, int, HeldSession]] = []
        self._pushes = 0
        self._stirred: dict[bytes, None] = {}

    # Holds.

    def held_count(self) -> int:
        return len(self._held)

    def holds(self) -> list[HeldSession]:
        """In the order in which they began."""
        return list(self._held.values())

    def held_alone(self, steady_ms: int) -> int:
        """How many sessions are held by clients that need not hold them anywhere else."""
        held = self._held.values()
        return sum([not each.is_joint and each.deadline_ms() > steady_ms for each in held])

    def is_full(self) -> bool:
        return len(self._held) >= self._bounds.sessions_held_max

    def named(self, session_id: str) -> HeldSession | None:
        """The hold of a session, even if its deadline has come and it is not ended yet."""
        return self._held.get(session_key(session_id))

    def held(self, token: bytes, steady_ms: int) -> HeldSession | None:
        """The session of a token; None from the deadline on, even before the hold is ended."""
        held = self._by_token.get(token)
        return None if held is None or held.deadline_ms() <= steady_ms else held

    def by_token(self, token: bytes) -> HeldSession | None:
        """The session of a token, even if its deadline has come and it is not ended yet."""
        return self._by_token.get(token)

    def of_seed(self, token: bytes) -> HeldSession | None:
        """The session that is held with the seed of this token."""
        seed = token[-TOKEN_SEED_BYTES:]
        for each, held in self._by_token.items():
            if each.endswith(seed):
                return held
        return None

    def hold(self, held: HeldSession) -> None:
        assert held.key not in self._held
        self._held[held.key] = held
        self._by_token[held.token] = held
        self._known.pop(held.key, None)
        self._push(held)

    def renew(self, held: HeldSession, deadline_ms: int) -> None:
        held.batch.deadline_ms = deadline_ms

    def pass_on(self, held: HeldSession, session_id: str, token: bytes) -> None:
        """Another client takes a hold over, with all its locks, under a token of its own.

        Receivers that wait with the former token are told that the session is lost.
        """
        del self._by_token[held.token]
        self._stirred[held.token] = None
        held.session_id = session_id
        held.token = token
        self._by_token[token] = held

    def let_go(self, held: HeldSession) -> None:
        """End a hold whose messages have been put back. With messages the session queues behind the
        others.

        Receivers that wait for messages of the session are told that it is lost.
        """
        del self._held[held.key]
        del self._by_token[held.token]
        self._stirred[held.token] = None
        for scan in self._scans.values():
            scan.set_free(held.key)
        if len(held.line) > 0 or held.line.has_tail:
            self._know(held.key)
        if len(self._deadlines) > 2 * len(self._held) + 64:
            self._deadlines = [item for item in self._deadlines if self._is_held(item[2])]
            heapq.heapify(self._deadlines)

    def overdue(self, steady_ms: int) -> HeldSession | None:
        """A hold whose deadline has come."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms == NEVER_MS or deadline_ms > steady_ms:
            return None
        return self._deadlines[0][2]

    def next_deadline_ms(self) -> int:
        while self._deadlines:
            deadline_ms, _, held = self._deadlines[0]
            if self._is_held(held) and held.deadline_ms() == deadline_ms:
                return deadline_ms
            heapq.heappop(self._deadlines)
            if self._is_held(held):
                self._push(held)
        return NEVER_MS

    # What readers hold.

    def claimer(self, session_id: str) -> str | None:
        """The name of the reader that holds a session."""
        claimed = self._claimed.get(session_key(session_id))
        return None if claimed is None else claimed.reader

    def scan(self, reader: str) -> Scan:
        """How far a reader has looked."""
        return self._scans.setdefault(reader, Scan())

    def forget_scan(self, reader: str) -> None:
        self._scans.pop(reader, None)

    def may_claim(self, key: str, reader: str) -> bool:
        """Whether a reader may claim messages of a session."""
        claimed = self._claimed.get(key)
        return key not in self._held and (claimed is None or claimed.reader == reader)

    def claim(self, keys: list[str], reader: str, ordinal: int, may_have_more: bool) -> None:
        """Let a reader hold sessions until its claim under an ordinal, the highest so far, ends."""
        for key in keys:
            self._claimed[key] = ClaimedSession(reader, ordinal, may_have_more)
            self._known.pop(key, None)

    def complete(self, keys: list[str], ordinal: int) -> None:
        """A claim is completed: sessions that are in no later claim are free."""
        for key in keys:
            claimed = self._claimed[key]
            if claimed.ordinal == ordinal:
                self._set_free(key, claimed.may_have_more)

    def lose(self, keys: list[str]) -> None:
        """All claims of a reader are lost: their sessions are free, and have messages."""
        for key in keys:
            if key in self._claimed:
                self._set_free(key, True)

    def rewind(self, number: int) -> None:
        """Messages wait again from this number on."""
        for scan in self._scans.values():
            scan.rewind(number)

    def _set_free(self, key: str, may_have_messages: bool) -> None:
        del self._claimed[key]
        for scan in self._scans.values():
            scan.set_free(key)
        if may_have_messages:
            self._know(key)

    # New and returning messages.

    def new_line(self, has_tail: bool) -> Line:
        """An empty window for a session's messages; the more sessions are held, the smaller it
        is.
        """
        bounds = self._bounds
        share_bytes = bounds.session_windows_bytes_max // (len(self._held) + 1)
        return Line(
            has_tail,
            count_max=bounds.session_window_count_max,
            bytes_max=min(bounds.session_window_bytes_max, share_bytes),
        )

    def append(self, entry: Entry) -> None:
        """Add a new message, whose number is greater than all others."""
        key = session_of(entry)
        for scan in self._scans.values():
            scan.has_tail = True
        held = self._held.get(key)
        claimed = self._claimed.get(key)
        if held is not None:
            held.line.append(entry)
            self._stirred[held.token] = None
        elif claimed is not None:
            claimed.may_have_more = True
        elif self.has_tail:
            if self._locks.has_pinned:
                self._know(key)
        elif key not in self._known:
            if len(self._known) < self._bounds.sessions_known_max:
                self._known[key] = None
                self.end = entry.sequence_number
            else:
                self.has_tail = True

    def put_back(self, entry: Entry) -> None:
        """Let a message wait again at its own place; its session may then rank before `end`."""
        key = session_of(entry)
        self._look_again(key, entry.sequence_number)
        held = self._held.get(key)
        claimed = self._claimed.get(key)
        if held is not None:
            held.line.put_back(entry)
            self._stirred[held.token] = None
        elif claimed is not None:
            claimed.may_have_more = True
        elif not self.has_tail or entry.sequence_number <= self.end or self._locks.has_pinned:
            self._know(key)

    def _look_again(self, key: str, number: int) -> None:
        """Readers may claim a message that waits again; the others look when its session is
        free.
        """
        for reader, scan in self._scans.items():
            if self.may_claim(key, reader):
                scan.rewind(number)
            elif number <= scan.end:
                scan.pass_over(key, number)

    def drop(self, numbers: dict[str, set[int]]) -> list[Entry]:
        """Stop messages from waiting, by session key; returns those that were in memory."""
        dropped: list[Entry] = []
        for key, dropping in numbers.items():
            held = self._held.get(key)
            if held is not None:
                dropped += held.line.drop(dropping)
        return dropped

    def drop_anywhere(self, numbers: set[int]) -> list[Entry]:
        """Like `drop`, when the sessions of the messages are not known."""
        return self.drop(dict.fromkeys(self._held, numbers))

    def stir(self, token: bytes) -> None:
        self._stirred[token] = None

    def stirred(self) -> list[bytes]:
        """The tokens of sessions that changed since the last call."""
        tokens = list(self._stirred)
        self._stirred.clear()
        return tokens

    # Free sessions.

    def is_free_one(self) -> bool:
        """Whether some free session has, or may have, active messages."""
        return len(self._known) > 0 or self.has_tail

    def first_known(self) -> str | None:
        for key in self._known:
            return key
        return None

    def forget(self, key: str) -> None:
        """Forget a session that was read and has no message to hand out."""
        self._known.pop(key, None)

    def page_in(self, ranks: list[int], keys: list[str], is_end: bool) -> None:
        """Add the sessions that the store ranks after `end`."""
        for key in keys:
            if key not in self._held and key not in self._claimed:
                self._known[key] = None
        if ranks:
            self.end = ranks[-1]
        if is_end:
            self.has_tail = self._must_restart
            if self._must_restart:
                self._must_restart = False
                self.end = 0

    def _know(self, key: str) -> None:
        if key in self._known or len(self._known) < self._bounds.sessions_known_max:
            self._known[key] = None
        else:
            self.has_tail = True
            self._must_restart = True

    def _is_held(self, held: HeldSession) -> bool:
        return self._by_token.get(held.token) is held

    def _push(self, held: HeldSession) -> None:
        self._pushes += 1
        heapq.heappush(self._deadlines, (held.deadline_ms(), self._pushes, held))


def session_of(entry: Entry) -> str:
    """The key of the session of a message."""
    session_id = entry.session_id
    assert session_id is not None
    return session_key(session_id)
