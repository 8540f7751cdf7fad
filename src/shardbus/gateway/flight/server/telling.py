"""Failures as Flight errors for clients: a code, a colon, and a sentence."""

from __future__ import annotations

import logging
from http import HTTPStatus
from types import TracebackType
from typing import final

import pyarrow.flight as flight

from shardbus.core.errors import Refused
from shardbus.gateway.flight.server.bus import BusError
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)


@final
class LaneRefusal:
    """Turns refusals of the bus and the stores, and internal errors, into Flight errors."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, flight.FlightError):
            return
        if isinstance(error, BusError):
            raise _flight_error(error.status, str(error)) from error
        if isinstance(error, Refused):
            raise _flight_error(error.kind.status, f"{error.kind.name}: {error}") from error
        if isinstance(error, StoreError):
            # Only the log may show where a store lies.
            log.warning("a read failed: %s", error)
            raise flight.FlightUnavailableError(
                "unavailable: The store cannot be read now; the server's log has the reason. "
                "Try again later."
            ) from error
        log.error("a call failed", exc_info=error)
        raise flight.FlightInternalError(
            "internal: An internal error occurred in the bulk lane; the server's log has the "
            "details."
        ) from error


def _flight_error(status: int, text: str) -> flight.FlightError:
    if status == HTTPStatus.UNAUTHORIZED:
        return flight.FlightUnauthenticatedError(text)
    if status == HTTPStatus.FORBIDDEN:
        return flight.FlightUnauthorizedError(text)
    if status == HTTPStatus.GATEWAY_TIMEOUT:
        return flight.FlightTimedOutError(text)
    if status in (0, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT):
        return flight.FlightUnavailableError(text)
    return flight.FlightServerError(text)
