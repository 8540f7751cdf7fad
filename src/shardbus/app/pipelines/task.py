"""The common members of all kinds of pipelines, and the interface of a kind.

A kind is a subclass of `Task` in its own module, and a row of `definition.KINDS`. The JSON API, the
definition files, the command line and the driver are derived from its members, with their types,
defaults, bounds and texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, Self

from msgspec import Meta

from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import Body

ENTITY_CHARACTERS_MAX: Final = 400
PATH_CHARACTERS_MAX: Final = 512


def option(text: str, *, name: str = "", metavar: str = "", note: str = "") -> Meta:
    """The command-line option of a member: its text, its name if it differs from the member's, and
    a `note` after the text.
    """
    words = f"{text}  [{note}]" if note else text
    return Meta(extra={"help": words, "option": name, "metavar": metavar})


class Task(Body, kw_only=True, frozen=True):
    kind: str
    entity: Annotated[
        str,
        Meta(
            max_length=ENTITY_CHARACTERS_MAX,
            description="The entity that is read, or to which a replay sends rows.",
            examples=["orders"],
        ),
        option(
            "Entity to read: a queue, TOPIC/Subscriptions/NAME, or either with "
            "/$DeadLetterQueue. For a replay: the queue or topic to send rows to.",
            metavar="ENTITY",
        ),
    ]
    path: Annotated[
        str,
        Meta(
            max_length=PATH_CHARACTERS_MAX,
            description="Path of the table below the directory of captured data of the bus; for a "
            "capture, by default its name.",
        ),
        option(
            "Target path, or source path of a replay, below the server's --capture-dir.",
            metavar="PATH",
            note="default: a capture's name",
        ),
    ] = ""

    keeps_work: ClassVar[bool] = False
    """Whether the driver has its own directory for the lifetime of the pipeline."""
    needs_path: ClassVar[bool] = True
    """Whether the driver needs a path."""
    for_people: ClassVar[tuple[str, ...]] = ()
    """Members that the driver does not get."""
    computed: ClassVar[Mapping[str, str]] = {}
    """Text members that only the driver gets, with their descriptions."""

    @property
    def is_follower(self) -> bool:
        """Whether it reads an entity without removing anything."""
        return False

    @property
    def is_once(self) -> bool:
        """Whether it ends without being stopped."""
        return True

    @property
    def opened_entity(self) -> str:
        """The entity that the driver needs access to."""
        return self.entity

    @property
    def target_entity(self) -> str:
        """Another entity that the driver sends to; empty without one."""
        return ""

    @property
    def more_entities(self) -> tuple[str, ...]:
        """Further entities that the driver reads."""
        return ()

    @property
    def written_path(self) -> str:
        """The path that no other pipeline may write to; empty when nothing is written."""
        return ""

    @property
    def filled_entity(self) -> str:
        """The subscription that no other pipeline may fill at the same time; empty without one."""
        return ""

    @property
    def has_texts(self) -> bool:
        """Whether it has texts that only the driver can read."""
        return False

    @property
    def figures_path(self) -> str:
        """The path where figures of hours are kept; empty when there are none."""
        return ""

    @property
    def reports_path(self) -> str:
        """The path where reports on dead letters are kept; empty when there are none."""
        return ""

    def reader(self, name: str) -> str:
        """The reader under which the driver claims messages; empty without one."""
        return ""

    def checked(self, name: str) -> Self:
        """The task in its canonical form; Refused, with the reason, if it is invalid."""
        raise NotImplementedError

    def sourced(self, known: Task | None, find: Callable[[str], Task | None]) -> Self:
        """The task, completed from other pipelines that it names; `known` is the pipeline's present
        task.
        """
        return self

    def compute(self, places: EntityPlaces, code_dir: str = "") -> dict[str, str]:
        """The `computed` members as of now; Refused when that is not possible.

        `code_dir` is the directory of the operator's code; empty when no code is allowed.
        """
        return {}

    def check_code(self, code_dir: str) -> None:
        """Refused when the task needs code that the operator does not allow."""

    def check_entity(self, places: EntityPlaces) -> None:
        """Refused when the task is not possible with the entity."""
        raise NotImplementedError
