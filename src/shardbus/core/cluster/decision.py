"""Decisions of a keeper, which its driver carries out."""

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
    """Send a statement, and report the outcome to the keeper (`Keeper.answered`)."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement


@final
class Reconnect(Decision):
    """Abandon this connection and open another; the answers to its statements are lost."""


@final
class Serve(Decision):
    """A slot is ours at this epoch.

    If `must_load`, its state in memory is outdated: load the slot, and restore the locks and
    sessions in `data`, if any. Otherwise continue with the state in memory.
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
    """Deliver nothing from a slot, and answer that it is unavailable, until `Resume` or `Serve`."""


@final
class Resume(AboutSlot):
    """Continue to serve a slot with the state in memory."""


@final
class Drop(AboutSlot):
    """This broker no longer owns the slot: forget it. The outcome of an unfinished commit is
    unknown.
    """


@final
class Drain(AboutSlot):
    """Accept and deliver nothing more, answer unfinished requests, then call `Keeper.drained`."""


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
    """Write the timeline to the catalogue, so that brokers that start on it need not wait."""

    def __init__(self, timeline: int) -> None:
        self.timeline = timeline


@final
class Alarm(Decision):
    """Report a message to the operator; `slot` is -1 if it is about all slots."""

    def __init__(self, kind: str, slot: int, text: str) -> None:
        self.kind = kind
        self.slot = slot
        self.text = text


@final
class End(Decision):
    """This broker has left, or must not continue: close the connection."""
