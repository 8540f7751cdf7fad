"""The failures of commands: each class has its exit code, each text says what to do next."""

from collections.abc import Callable
from typing import ClassVar


class CommandError(Exception):
    """The command failed.

    `explain` asks the bus for a longer text, such as the names that exist instead. It is called
    only when the text is shown to the user: many callers catch the error, because they expect that
    an entity may be missing.
    """

    exit_code: ClassVar[int] = 1
    word: ClassVar[str] = "error"

    def __init__(self, text: str, explain: Callable[[], str] | None = None) -> None:
        super().__init__(text)
        self._explain = explain

    def explained(self) -> str:
        """The text for the user."""
        if self._explain is None:
            return str(self)
        try:
            return self._explain()
        except CommandError:
            return str(self)


class Refused(CommandError):
    """The bus refused the request."""

    word = "refused"


class Usage(CommandError):
    """The command line or a setting is invalid."""

    exit_code = 2
    word = "usage"


class ServerUnavailable(CommandError):
    """There was no answer, or the bus asked to try again."""

    exit_code = 3
    word = "unavailable"


class ConnectionLost(ServerUnavailable):
    """There was no answer to a request that may have been done."""


class NotFound(CommandError):
    """There is no such entity."""

    exit_code = 4
    word = "not-found"


class Interrupted(CommandError):
    """The user pressed Ctrl-C; the text says what was done until then."""

    exit_code = 130
    word = "interrupted"


class ReaderGone(CommandError):
    """The reader of standard output has closed it; the text says what was done until then."""

    word = "broken-pipe"
