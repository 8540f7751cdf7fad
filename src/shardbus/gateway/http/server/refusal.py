"""Refusals of HTTP messaging whose status differs from the catalogue's."""

from __future__ import annotations

from typing import Final

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    TOO_LARGE,
    ErrorKind,
    Refused,
)

# "send … 403 (quota/too big), 410 (entity gone)"; "unlock … 404 (lock not found), 410".
ENTITY_GONE: Final = ErrorKind(NOT_FOUND.name, NOT_FOUND.condition, 410, 41000)
LOCK_NOT_FOUND: Final = ErrorKind(
    MESSAGE_LOCK_LOST.name, MESSAGE_LOCK_LOST.condition, NOT_FOUND.status, NOT_FOUND.subcode
)
MESSAGE_TOO_LARGE: Final = ErrorKind(
    TOO_LARGE.name, TOO_LARGE.condition, QUOTA_EXCEEDED.status, QUOTA_EXCEEDED.subcode
)

_SHOWN_CHARACTERS: Final = 60


def invalid(message: str) -> Refused:
    """Something in the request is invalid."""
    return Refused(INVALID_ARGUMENT, message)


def shown(text: str) -> str:
    """The beginning of a client's text, safe to repeat."""
    return ascii(text[:_SHOWN_CHARACTERS])
