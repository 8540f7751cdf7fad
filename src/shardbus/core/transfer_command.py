"""Commands about the sources that a fragment remembers, because it took messages over from them."""

from __future__ import annotations

from typing import final


@final
class ListSources:
    """Which entities sent nothing for so long that, if they are deleted, they can be forgotten?

    Answered by `Sources`.
    """


@final
class ForgetSources:
    """These entities are deleted: forget those of them that sent nothing for long enough.

    Answered by `Done`. One that came again meanwhile is not forgotten.
    """

    def __init__(self, entity_ids: list[int]) -> None:
        self.entity_ids = entity_ids


@final
class Sources:
    """Entities, those that sent nothing for the longest time first; not all if they are many."""

    def __init__(self, entity_ids: list[int]) -> None:
        self.entity_ids = entity_ids


SourceCommand = ListSources | ForgetSources
