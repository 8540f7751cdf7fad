"""What a fragment must read from its store before it can decide a command."""

from __future__ import annotations

from typing import final

from shardbus.core.messages.command import NO_SESSION


@final
class NeedPage:
    """The next page of a line: `MessageStore.read_line` after this sequence number."""

    def __init__(self, line: int, after: int, *, count_max: int, bytes_max: int) -> None:
        self.line = line
        self.after = after
        self.count_max = count_max
        self.bytes_max = bytes_max


@final
class NeedHeads:
    """The next page of a line without payloads: `MessageStore.read_heads` after this number."""

    def __init__(self, line: int, after: int, *, count_max: int, bytes_max: int) -> None:
        self.line = line
        self.after = after
        self.count_max = count_max
        self.bytes_max = bytes_max


@final
class NeedPayloads:
    """The payloads of waiting messages of a line, or of a held session:
    `MessageStore.read_payloads`.
    """

    def __init__(self, line: int, sequence_numbers: list[int], session: bytes = NO_SESSION) -> None:
        self.line = line
        self.sequence_numbers = sequence_numbers
        self.session = session


@final
class NeedEntries:
    """Messages by their numbers, whatever their line and state: `MessageStore.read_entries`."""

    def __init__(self, sequence_numbers: list[int], *, bytes_max: int) -> None:
        self.sequence_numbers = sequence_numbers
        self.bytes_max = bytes_max


@final
class NeedSession:
    """The next active messages of a session: `MessageStore.read_session` after this number.

    `session` is the token of a held session; it is empty for a free session that is to be held.
    """

    def __init__(
        self, session_id: str, after: int, session: bytes, *, count_max: int, bytes_max: int
    ) -> None:
        self.session_id = session_id
        self.after = after
        self.session = session
        self.count_max = count_max
        self.bytes_max = bytes_max


@final
class NeedSessions:
    """The next sessions with active messages: `MessageStore.read_sessions` after this rank."""

    def __init__(self, after: int, *, count_max: int) -> None:
        self.after = after
        self.count_max = count_max


@final
class NeedState:
    """How large the state of a held session is: `MessageStore.read_state`."""

    def __init__(self, session_id: str, session: bytes) -> None:
        self.session_id = session_id
        self.session = session


@final
class NeedStages:
    """These pieces of stages: `MessageStore.read_stage`.

    Without `is_unpacked`, the read only tells whether the pieces exist and are whole. Without
    `is_checked`, it brings their contents but does not check the payloads stored beside them
    (`MessageStore.check_stage`). With a bound, it stops after that many messages or bytes, but
    brings at least one piece.
    """

    def __init__(
        self,
        stages: list[bytes],
        pieces: list[list[int]],
        *,
        is_unpacked: bool,
        is_checked: bool,
        count_max: int = 0,
        bytes_max: int = 0,
    ) -> None:
        self.stages = stages
        self.pieces = pieces
        self.is_unpacked = is_unpacked
        self.is_checked = is_checked
        self.count_max = count_max
        self.bytes_max = bytes_max


@final
class NeedBlocks:
    """What is stored under a name between two numbers, as it is: `MessageStore.read_stage`."""

    def __init__(self, stage: bytes, after: int, until: int) -> None:
        self.stage = stage
        self.after = after
        self.until = until


Need = (
    NeedPage
    | NeedHeads
    | NeedPayloads
    | NeedEntries
    | NeedSession
    | NeedSessions
    | NeedState
    | NeedStages
    | NeedBlocks
)
