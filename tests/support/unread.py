"""Fragments whose messages nobody reads."""

from __future__ import annotations

from collections.abc import Callable

from shardbus.core.errors import Unavailable
from shardbus.stores.base.store import Page


class Unread:
    """The part of a fragment that reads: it refuses everything."""

    def browse(
        self,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        then: Callable[[Page | Unavailable], None],
        session_id: str | None = None,
    ) -> None:
        then(Unavailable("nobody browses here"))

    def list_sessions(
        self,
        *,
        updated_after_ms: int,
        skip: int,
        count_max: int,
        then: Callable[[list[str] | Unavailable], None],
    ) -> None:
        then(Unavailable("nobody lists sessions here"))
