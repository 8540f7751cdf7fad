"""The request and the progress of a job: the document that clients see and that is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol, TypeVar

from msgspec import UNSET, Meta, Struct, field
from msgspec.structs import replace

from shardbus.gateway.http.api.messages.documents import BODY_CHARACTERS_MAX, Reason
from shardbus.gateway.http.api.messages.values import PROPERTIES_MAX, Number, read_numbers
from shardbus.gateway.http.api.search.selection import NUMBERS_MAX, SelectionMembers
from shardbus.gateway.http.document import Body, Count, Json, Maybe, Moment, Text, one_of, told
from shardbus.rules.limits import EXPRESSION_CHARACTERS_MAX

T = TypeVar("T")

RESUBMIT: Final = "resubmit"
MOVE: Final = "move"
DELETE: Final = "delete"
EXPORT: Final = "export"
UNDO: Final = "undo"
BURY: Final = "dead_letter"

RUNNING: Final = "running"
STOPPING: Final = "stopping"
DONE: Final = "done"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
ENDED: Final = (DONE, STOPPED, FAILED)

RUNNING_MAX: Final = 4
PATHS_MAX: Final = 50
RATE_MAX: Final = 1_000_000
WARNINGS_MAX: Final = 10
KEPT_MAX: Final = 100
MARK_CHARACTERS_MAX: Final = 100
ABOUT_CHARACTERS_MAX: Final = 300


class Selection(SelectionMembers, kw_only=True, frozen=True):
    """Without any member all messages are selected."""

    numbers: Annotated[
        Maybe[Annotated[list[Number], Meta(min_length=1, max_length=NUMBERS_MAX)]],
        told("Only these."),
    ] = UNSET


def only_numbers(action: str, selection: Selection) -> list[int] | None:
    """The sequence numbers, if the job is limited to these; None for a job that walks over the
    line.
    """
    is_plain = replace(selection, numbers=UNSET) == Selection()
    if action == EXPORT or not is_plain or not isinstance(selection.numbers, list):
        return None
    return read_numbers(selection.numbers)


class PropertiesEdit(Body, kw_only=True, frozen=True):
    set: Annotated[
        Annotated[dict[str, Json], Meta(max_length=PROPERTIES_MAX)],
        told("Application properties to set, in the form for sending."),
    ] = field(default_factory=dict)
    remove: Annotated[list[Text], Meta(max_length=PROPERTIES_MAX)] = field(default_factory=list)


class Edit(Body, kw_only=True, frozen=True):
    """Changes that are made to each message before it is sent.

    `action`, `body_set` and `body_action` compute with each message, and keep everything else as it
    was sent.
    """

    action: Annotated[
        Maybe[Annotated[str, Meta(min_length=1, max_length=EXPRESSION_CHARACTERS_MAX)]],
        told("SET and REMOVE statements in the language of rules."),
    ] = UNSET
    body_set: Annotated[
        Annotated[dict[str, Json], Meta(max_length=PATHS_MAX)],
        told("New values in a JSON body, by their paths, such as `$.customer.id`."),
    ] = field(default_factory=dict)
    body_action: Annotated[
        Maybe[Annotated[str, Meta(min_length=1, max_length=EXPRESSION_CHARACTERS_MAX)]],
        told(
            "SET and REMOVE statements in the language of rules whose properties are the members "
            "of a JSON body, `[customer.id]` for inner ones; after body_set."
        ),
    ] = UNSET

    body: Annotated[
        Maybe[Annotated[str, Meta(max_length=BODY_CHARACTERS_MAX)]], told("The new body, a text.")
    ] = UNSET
    properties: Maybe[PropertiesEdit] = UNSET
    fields: Annotated[
        Annotated[dict[str, Text | None], Meta(max_length=50)],
        told("Other members of a message to set; null removes one."),
    ] = field(default_factory=dict)


class NewJob(Body, kw_only=True, frozen=True):
    action: Annotated[
        Literal["resubmit", "move", "delete", "export", "undo", "dead_letter"],
        Meta(examples=["export"]),
    ]
    selection: Selection = Selection()
    destination: Annotated[
        Maybe[Text],
        told(
            "Where to move messages: a queue, a topic, or one subscription alone, which needs "
            "Manage on its topic. With resubmit: the subscription of the dead letters, instead of "
            "its topic."
        ),
    ] = UNSET
    edit: Annotated[Maybe[Edit], told("Only with resubmit and move.")] = UNSET
    backup: Annotated[
        bool, told("Also write messages as JSON lines before they are moved or deleted.")
    ] = False
    rate_max: Annotated[
        Maybe[Annotated[int, Meta(ge=1, le=RATE_MAX)]],
        told("Maximum number of messages per second to resubmit, move or delete."),
    ] = UNSET
    mark: Annotated[
        Maybe[Annotated[str, Meta(min_length=1, max_length=MARK_CHARACTERS_MAX)]],
        told(
            "With resubmit and move: a name by which undo finds these messages. With undo: which "
            "messages become dead letters again, unless they have been received."
        ),
    ] = UNSET
    reason: Annotated[
        Maybe[Reason], told("With dead_letter: the reason that the dead letters get.")
    ] = UNSET
    description: Annotated[
        Maybe[Reason], told("With dead_letter: the description of the reason.")
    ] = UNSET
    about: Annotated[
        Maybe[Annotated[str, Meta(max_length=ABOUT_CHARACTERS_MAX)]],
        told("What the selected messages have in common, as a text for people; only shown."),
    ] = UNSET
    is_dry_run: Annotated[
        bool, told("Only check the request and report the effect of the job.")
    ] = False


class Job(Struct, kw_only=True):
    id: str
    action: Annotated[str, one_of(RESUBMIT, MOVE, DELETE, EXPORT, UNDO, BURY)]
    entity: Annotated[str, told("The line of messages.")]
    destination: Annotated[str, told("The destination of messages; empty if there is none.")]
    state: Annotated[str, one_of(RUNNING, STOPPING, *ENDED)]
    began_at: Moment
    ended_at: Moment | None = None
    total: Annotated[Count, told("Messages to examine, as counted at the beginning.")] = 0
    examined: Annotated[Count, told("Messages that were examined.")] = 0
    done: Annotated[
        Count, told("Messages that were resubmitted, moved, deleted, dead-lettered or exported.")
    ] = 0
    skipped: Annotated[
        Count,
        told(
            "Selected messages that were locked, gone or unreadable, or that cannot be sent after "
            "the edit; `warnings` gives the reasons."
        ),
    ] = 0
    error: Annotated[str, told("Why the job failed, or waits.")] = ""
    warnings: list[str] = field(default_factory=list)
    restarts: Annotated[
        Count, told("How often the job was continued after a restart of the server.")
    ] = 0
    export_bytes: Annotated[Count, told("The size of its JSON lines.")] = 0
    export_lines: Count = 0
    has_backup: bool = False
    rate_max: Annotated[Count, told("Maximum number of messages per second; 0: no limit.")] = 0
    selection: Selection = Selection()
    edit: Edit | None = None
    mark: Annotated[str, told("The name by which undo finds the messages.")] = ""
    about: Annotated[str, told("What the messages have in common, as the client called it.")] = ""
    reason: Annotated[str, told("The reason that dead letters get; empty if there is none.")] = ""
    description: Annotated[str, told("The description of the reason.")] = ""


class Kept(Struct, kw_only=True):
    """A job as it is stored: with the place to continue, and the last number of each fragment."""

    job: Job
    cursor: str | None = None
    lasts: list[int] = field(default_factory=list)
    """By fragment: later messages are not selected, so that messages which are resubmitted and fail
    again are not resubmitted for ever.
    """
    entity_id: int = 0
    """The id of the entity, to distinguish it from another one of the same name. 0: the job was
    stored by an earlier version.
    """
    subscription_id: int = 0
    """The subscription that is the destination; 0: the destination is a queue or topic."""
    is_exact: bool = False
    """Whether nothing was done after this state was stored, because the server shut down in order,
    and between two chunks.
    """


class Aside(Protocol):
    """Runs functions that may wait for a disk, without blocking other work."""

    async def __call__(self, job: Callable[[], T], /) -> T: ...


class Shelf(Protocol):
    """Stores jobs. OSError when they cannot be written or read."""

    def load(self) -> list[Kept]:
        """All jobs that can be read."""
        ...

    def put(self, kept: Kept) -> None:
        """Store the state of a job durably."""
        ...

    def remove(self, job_id: str) -> None:
        """Forget a job and its export."""
        ...

    def export(self, job_id: str) -> Path:
        """The file with the JSON lines of a job, whether or not there is one."""
        ...
