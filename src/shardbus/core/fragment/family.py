"""The interface of the handlers: each decides the commands of one family."""

from __future__ import annotations

from shardbus.core.fragment.command import Command, Reply
from shardbus.core.fragment.need import Need


class Handler:
    """Decides the commands of one family for one fragment. This base class decides none."""

    def need(self, command: Command, now_ms: int) -> Need | None:
        """What must be read from the store before this command can be decided."""
        return None

    def decide(self, command: Command, now_ms: int) -> Reply:
        """Decide the command. `Refused` means that nothing has changed."""
        raise TypeError(f"no handler decides {type(command).__name__}")
