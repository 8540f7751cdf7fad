"""What a pipeline is to do: the members that every kind has, and what the bus asks of a kind.

A kind is a subclass of `Task` in a module of its own, and a row of `definition.KINDS`. Its members,
with their types, defaults, bounds and words, are all that the JSON API, the files of definitions,
the command line and the driver know of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Final, Self

from msgspec import Meta

from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import Body

ENTITY_CHARACTERS_MAX: Final = 400
PATH_CHARACTERS_MAX: Final = 512


def option(text: str, *, name: str = "", metavar: str = "", note: str = "") -> Meta:
    """How the command line calls a member, where that is not the member's own name, and explains
    it; `note` stands behind the text.
    """
    words = f"{text}  [{note}]" if note else text
    return Meta(extra={"help": words, "option": name, "metavar": metavar})


class Task(Body, kw_only=True, frozen=True):
    kind: str
    entity: Annotated[
        str,
        Meta(
            max_length=ENTITY_CHARACTERS_MAX,
            description="What is captured, or where rows of a replay are sent.",
            examples=["orders"],
        ),
        option(
            "What is captured: a queue, TOPIC/Subscriptions/NAME, or either with "
            "/$DeadLetterQueue. Of a replay: the queue or topic that rows are sent to.",
            metavar="ENTITY",
        ),
    ]
    path: Annotated[
        str,
        Meta(
            max_length=PATH_CHARACTERS_MAX,
            description="Below the directory of captured data of the bus. Of a capture, by "
            "default its name; of a replay, where the table is.",
        ),
        option(
            "Where to, or of a replay where from, below the server's --capture-dir.",
            metavar="PATH",
            note="default: a capture's name",
        ),
    ] = ""

    keeps_work: ClassVar[bool] = False
    """Whether the driver has a directory of its own for as long as the pipeline is."""
    for_people: ClassVar[tuple[str, ...]] = ()
    """Members that the driver is not told."""

    @property
    def is_once(self) -> bool:
        """Whether it ends by itself."""
        return True

    @property
    def opened_entity(self) -> str:
        """The entity that the driver needs access to."""
        return self.entity

    @property
    def written_path(self) -> str:
        """What no other pipeline may write to; empty when nothing is written."""
        return ""

    def reader(self, name: str) -> str:
        """The reader that the driver of the pipeline claims messages under; empty without one."""
        return ""

    def checked(self, name: str) -> Self:
        """The same in one spelling; Refused, with what is wrong, for what cannot be."""
        raise NotImplementedError

    def sourced(self, known: Task | None, find: Callable[[str], Task | None]) -> Self:
        """The same with what others say that it names; `known` is what the pipeline did so far."""
        return self

    def check_entity(self, places: EntityPlaces) -> None:
        """Refused when that cannot be done to the entity."""
        raise NotImplementedError
