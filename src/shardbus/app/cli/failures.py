"""The failures of commands: each class has its exit code, each text says what to do next."""

from typing import ClassVar


class CommandError(Exception):
    """The command failed."""

    exit_code: ClassVar[int] = 1
    word: ClassVar[str] = "error"


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


class NotFound(CommandError):
    """There is no such entity."""

    exit_code = 4
    word = "not-found"
