"""What a fragment must be told from its store before it can decide a command."""

from __future__ import annotations

from typing import final


@final
class NeedPage:
    """The next page of a line: `MessageStore.read_line` after this sequence number."""

    def __init__(self, line: int, after: int) -> None:
        self.line = line
        self.after = after


@final
class NeedPayloads:
    """The payloads of waiting messages of a line: `MessageStore.read_payloads`."""

    def __init__(self, line: int, sequence_numbers: list[int]) -> None:
        self.line = line
        self.sequence_numbers = sequence_numbers


@final
class NeedEntries:
    """Messages by their numbers, whatever their line and state: `MessageStore.read_entries`."""

    def __init__(self, sequence_numbers: list[int]) -> None:
        self.sequence_numbers = sequence_numbers


@final
class NeedSession:
    """The next active messages of a session: `MessageStore.read_session` after this number."""

    def __init__(self, session_id: str, after: int) -> None:
        self.session_id = session_id
        self.after = after


@final
class NeedSessions:
    """The next sessions with active messages: `MessageStore.read_sessions` after this rank."""

    def __init__(self, after: int) -> None:
        self.after = after


Need = NeedPage | NeedPayloads | NeedEntries | NeedSession | NeedSessions
