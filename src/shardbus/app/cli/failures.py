"""How a command can fail: each class has its exit code, each text says what to do next."""

from typing import ClassVar


class CommandError(Exception):
    """The command did not do what it was asked."""

    exit_code: ClassVar[int] = 1
    word: ClassVar[str] = "error"


class Refused(CommandError):
    """The bus understood and said no."""

    word = "refused"


class Usage(CommandError):
    """What was typed, or a setting, cannot be used."""

    exit_code = 2
    word = "usage"


class ServerUnavailable(CommandError):
    """Nobody answered, or the bus asked to try again."""

    exit_code = 3
    word = "unavailable"


class NotFound(CommandError):
    """There is no such entity."""

    exit_code = 4
    word = "not-found"
