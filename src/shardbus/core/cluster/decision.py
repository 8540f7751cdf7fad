"""What a keeper tells its driver to do."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.cluster.statement import Statement

# Alarms.
COMMITS_LOST: Final = "commits lost"
NEW_TIMELINE: Final = "new timeline"
OLD_TIMELINE: Final = "old timeline"
OTHER_CLUSTER: Final = "other cluster"
NAME_TAKEN: Final = "name taken"


class Decision:
    """One of the classes below."""


@final
class Ask(Decision):
    """Send a statement, and tell the keeper what came of it (`Keeper.answered`)."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement


@final
class Reconnect(Decision):
    """Give this connection up and make another; what is under way on it is lost."""


@final
class Serve(Decision):
    """A slot is ours at this epoch.

    If `must_load`, all that is in memory of it is worth nothing: load it, and give it the locks and
    sessions of `data` if there are any. Otherwise go on with what is there.
    """

    def __init__(
        self, slot: int, epoch: int, commits: int, must_load: bool, data: bytes | None
    ) -> None:
        self.slot = slot
        self.epoch = epoch
        self.commits = commits
        self.must_load = must_load
        self.data = data


class AboutSlot(Decision):
    def __init__(self, slot: int) -> None:
        self.slot = slot


@final
class Stop(AboutSlot):
    """Hand out nothing of a slot, and answer that it is unavailable, until `Resume` or `Serve`."""


@final
class Resume(AboutSlot):
    """Go on with a slot with what is in memory."""


@final
class Drop(AboutSlot):
    """A slot is not ours any more: forget it. A commit that was under way is unknown."""


@final
class Drain(AboutSlot):
    """Take in and hand out nothing more, answer what is under way, then call `Keeper.drained`."""


@final
class Confirm(AboutSlot):
    """The commit whose answer was lost is stored."""


@final
class Resend(AboutSlot):
    """The commit whose answer was lost is not stored, and never will be: send it again with the
    fence of `Keeper.fence`.
    """


@final
class Settled(Decision):
    """Write the timeline to the catalogue: a broker that starts on it need not wait."""

    def __init__(self, timeline: int) -> None:
        self.timeline = timeline


@final
class Alarm(Decision):
    """Somebody has to know; `slot` is -1 where it is about all of them."""

    def __init__(self, kind: str, slot: int, text: str) -> None:
        self.kind = kind
        self.slot = slot
        self.text = text


@final
class End(Decision):
    """This broker has left, or must not go on: close the connection."""
