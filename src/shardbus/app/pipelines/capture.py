"""The definition of a capture: messages of an entity to files or a table (P4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, Self, final

from msgspec import Meta
from msgspec.structs import replace

from shardbus.app.pipelines.paths import checked_path
from shardbus.app.pipelines.streaming import Streaming
from shardbus.app.pipelines.task import PATH_CHARACTERS_MAX, Task
from shardbus.core.errors import NOT_FOUND, Refused
from shardbus.gateway.http.server.refusal import invalid, shown


@final
class Capture(Streaming, kw_only=True, frozen=True):
    """Messages to files."""

    kind: Literal["capture"] = "capture"
    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=PATH_CHARACTERS_MAX,
            description="Path below the directory of captured data; by default its name.",
            examples=["archive/orders"],
        ),
    ] = ""

    def checked(self, name: str) -> Self:
        self.check_stream()
        made = self.with_plain_selection()
        if made.selects and not made.keep:
            raise invalid(
                "where, rule and like_subscription need keep: a capture without keep removes "
                "messages, and those that do not match would be lost. Use keep, or capture a "
                "subscription whose rules select the messages."
            )
        return replace(made, path=checked_path(self.path or name))


def named_capture(find: Callable[[str], Task | None], name: str, otherwise: str = "") -> Capture:
    """The capture of that name; Refused without one, and `otherwise` ends the advice."""
    found = find(name)
    if not isinstance(found, Capture):
        raise Refused(
            NOT_FOUND,
            f"There is no capture {shown(name)}: name an existing one in from_pipeline{otherwise}.",
        )
    return found
