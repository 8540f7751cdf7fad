"""What can go wrong between a client and the bus; each text says what to do about it."""

from __future__ import annotations


class ShardbusError(Exception):
    """The bus refused, or could not be asked."""


class OptionError(ShardbusError, ValueError):
    """An option that cannot be used; the text names it and says what is allowed."""


class Unauthorized(ShardbusError):
    """The key or token does not give the right."""


class NotFound(ShardbusError):
    """There is no such entity."""


class ReaderDropped(NotFound):
    """Somebody has dropped the reader while a query used it."""


class Unavailable(ShardbusError):
    """Nobody answered in time; trying again may help."""


class BeingPublished(Unavailable):
    """A large batch is being stored, and the text says how much is left: ask again."""


class ReaderInUse(ShardbusError):
    """Somebody else reads under this name at this moment."""


class ReaderLost(ShardbusError):
    """Somebody else has taken over the reader."""


class ClaimLost(ShardbusError):
    """What was set aside went back to receivers, or is done already."""


class ClaimCompleted(ClaimLost):
    """What was set aside is done already: it is on the bus no more."""


class DataLoss(ShardbusError):
    """Messages that a checkpoint expects are not there any more."""


class StageLost(ShardbusError):
    """Rows that were put on the bus are not all there any more: write them again."""


class BatchDiffers(ShardbusError):
    """A batch of this number was written before, with other rows: these are not written."""


class QuotaExceeded(ShardbusError):
    """The entity is full: receive from it, or make it larger."""
