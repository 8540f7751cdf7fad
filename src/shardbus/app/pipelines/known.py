"""The definitions of all pipelines, and the checks of a new one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import PurePosixPath
from typing import Final, Protocol, final
from uuid import uuid4

from shardbus.app.pipelines.definition import Definition
from shardbus.app.pipelines.task import Task
from shardbus.core.errors import (
    ALREADY_EXISTS,
    NOT_ALLOWED,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    Refused,
    Unavailable,
)
from shardbus.gateway.http.server.refusal import shown

log = logging.getLogger(__name__)

PIPELINES_MAX: Final = 64
# A fraction of the lease of a reader, 10 minutes.
HOLD_S: Final = 60.0


CheckTexts = Callable[[Definition], Awaitable[None]]
"""Refuses a definition with a mistake in a text that only the driver can read."""


async def check_no_texts(definition: Definition) -> None:
    """Leaves everything to the driver."""


class Entities(Protocol):
    """The entities that pipelines read from and send to."""

    def check(self, definition: Definition) -> None:
        """Refused when the definition's entity cannot be captured, or sent to, as it says."""
        ...

    async def hold_claims(self, definition: Definition) -> int:
        """Renew the claims of its reader, and return how many messages they have."""
        ...

    async def drop_reader(self, definition: Definition) -> None:
        """Drop the reader; its claimed messages return to receivers."""
        ...


@final
class KnownPipelines:
    """Definitions by name."""

    def __init__(self, entities: Entities) -> None:
        self.all: dict[str, Definition] = {}
        self._entities = entities

    def found(self, name: str) -> Definition:
        definition = self.all.get(name)
        if definition is None:
            raise Refused(NOT_FOUND, f"There is no pipeline {shown(name)}.")
        return definition

    def settled(self, asked: Definition) -> tuple[Definition, bool]:
        """The requested definition, completed, and whether it is new; Refused if it is not
        possible.
        """
        known = self.all.get(asked.name)
        definition = self._sourced(asked, known)
        if known is not None and known != definition:
            raise exists(asked.name)
        if known is None:
            self._check_new(definition)
        return definition, known is None

    def _sourced(self, asked: Definition, known: Definition | None) -> Definition:
        """Completed by what other pipelines define, with a new incarnation unless it is known."""
        task = asked.task.sourced(None if known is None else known.task, self._task)
        return Definition(asked.name, task, uuid4().hex if task.keeps_work else "")

    def _task(self, name: str) -> Task | None:
        found = self.all.get(name)
        return None if found is None else found.task

    def _check_new(self, definition: Definition) -> None:
        if len(self.all) >= PIPELINES_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"There are {PIPELINES_MAX} pipelines, the maximum: delete one first.",
            )
        self._check_place(definition)
        self._entities.check(definition)

    def _check_place(self, definition: Definition) -> None:
        path = definition.task.written_path
        for other in self.all.values():
            if do_collide(path, other.task.written_path):
                raise Refused(
                    ALREADY_EXISTS,
                    f"path {path} collides with that of pipeline {other.name}, "
                    f"{other.task.written_path}: each needs its own directory.",
                )


def exists(name: str) -> Refused:
    return Refused(
        ALREADY_EXISTS,
        f"A pipeline {name} with another definition already exists: delete it first, or choose "
        "another name.",
    )


def do_collide(mine: str, theirs: str) -> bool:
    """Whether writing to one of these paths would write into the other; an empty path never
    does.
    """
    pairs = zip(PurePosixPath(mine).parts, PurePosixPath(theirs).parts, strict=False)
    return bool(mine and theirs) and all(one == other for one, other in pairs)


def check_fills_alone(definition: Definition, running: Iterable[Definition]) -> None:
    """Refused while another pipeline fills the same subscription: numbers of one would make the bus
    drop earlier ones of the other.
    """
    mine = definition.task.filled_entity.lower()
    for other in running:
        is_other = other.name != definition.name
        if mine and is_other and other.task.filled_entity.lower() == mine:
            raise Refused(
                NOT_ALLOWED,
                f"Pipeline {other.name} fills {definition.task.filled_entity}: start "
                f"{definition.name} when it has finished, or stop it.",
            )


async def hold_all(entities: Entities, resting: Iterable[Definition]) -> None:
    """Renew the claims of pipelines that do not run: the next start needs them."""
    for definition in resting:
        try:
            await entities.hold_claims(definition)
        except (Refused, Unavailable) as error:
            log.warning("the claims of pipeline %s are not renewed: %s", definition.name, error)


async def check_unclaimed(entities: Entities, definition: Definition) -> None:
    """Refused while its last batch is not completed: its messages may be in the target, and would
    be received, too.
    """
    claimed = await entities.hold_claims(definition)
    if claimed:
        name = definition.name
        raise Refused(
            NOT_ALLOWED,
            f"Pipeline {name} was stopped within a batch and holds {claimed} messages: complete "
            f"them with `shardbus pipeline stop {name} --finish`, or return them to receivers with "
            f"`shardbus pipeline delete {name} --abandon`, although some may have been written.",
        )
