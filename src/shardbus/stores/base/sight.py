"""A database with leased slots as gateways and operators see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final


@final
@dataclass(frozen=True, slots=True)
class SeenMember:
    """A broker; `about` is the document that it wrote when it joined."""

    name: str
    incarnation: int
    is_leaving: bool
    beat_age_ms: int
    about: str


@final
@dataclass(frozen=True, slots=True)
class SeenSlot:
    """A slot, with the name of its present, last or next owner."""

    slot: int
    epoch: int
    commits: int
    owner: str
    incarnation: int
    taken_at_ms: int
    taken_from: str


@final
@dataclass(frozen=True, slots=True)
class SeenGateway:
    name: str
    about: str
    age_ms: int


@final
@dataclass(frozen=True, slots=True)
class Sight:
    """A database at one moment. `version` is that of the namespace, if its catalogue is here.

    `oldest_snapshot_ms` is for how long the oldest snapshot of anybody keeps rows from being
    vacuumed; `time_ms` is what the clock of the database says. `lag_bytes` is what the standby that
    is furthest behind has not stored yet; None without one, or if the user may not see it.
    """

    version: int
    timeline: int
    members: list[SeenMember]
    slots: list[SeenSlot]
    gateways: list[SeenGateway]
    size_bytes: int
    oldest_snapshot_ms: int
    time_ms: int
    standbys: int = 0
    lag_bytes: int | None = None


class Lookout(Protocol):
    """Blocking; may raise StoreError."""

    def look(self) -> Sight: ...

    def report(self, name: str, about: str) -> None:
        """Record that a gateway exists, for operators and brokers."""
        ...

    def close(self) -> None: ...
