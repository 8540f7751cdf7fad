"""The errors between a client and the bus; each text says what to do about it."""

from __future__ import annotations


class ShardbusError(Exception):
    """The bus refused, or could not be asked."""


class BadBody(ShardbusError):
    """The body of a message is not what a pipeline's definition says."""


class OptionError(ShardbusError, ValueError):
    """An invalid option; the text names it and says what is allowed."""


class TableNotWritten(ShardbusError, OSError):
    """A file of a table cannot be written; nothing of its batch is in the table."""


class Unauthorized(ShardbusError):
    """The key or token does not give the right."""


class NotFound(ShardbusError):
    """There is no such entity."""


class ReaderDropped(NotFound):
    """The reader was dropped while a query used it."""


class Unavailable(ShardbusError):
    """There was no answer in time; trying again may help."""


class BeingPublished(Unavailable):
    """A large batch is being stored, and the text says how much is left: ask again."""


class ReaderInUse(ShardbusError):
    """Another process reads under this name now."""


class ReaderLost(ShardbusError):
    """Another process has taken over the reader."""


class ClaimLost(ShardbusError):
    """The claimed messages were returned to receivers, or are already completed."""


class ClaimCompleted(ClaimLost):
    """The claimed messages are already completed: they are no longer on the bus."""


class DataLoss(ShardbusError):
    """Messages that a checkpoint expects no longer exist."""


class RecordsDropped(ShardbusError):
    """Lifecycle records were dropped before they were read."""


class StageLost(ShardbusError):
    """Some staged rows no longer exist: write them again."""


class BatchDiffers(ShardbusError):
    """A batch of this number was written before, with other rows: these are not written."""


class QuotaExceeded(ShardbusError):
    """The entity is full: receive from it, or increase its size."""
