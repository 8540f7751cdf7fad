"""Bounds for all AMQP connections together, in addition to those of each connection."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.gateway.admission.holdings import Holdings
from shardbus.gateway.admission.unread import Unread

LINKS_MAX: Final = 200_000
REQUESTS_MAX: Final = 20_000
"""Requests to $cbs and $management, and commits, that are under way."""
TRANSACTIONS_MAX: Final = 20_000
TRANSACTION_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of messages that wait for the end of their transactions."""
PENDING_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of messages that were read and are not stored yet."""
UNFINISHED_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of messages whose last frame has not come."""
UNREAD_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes that were sent to clients and not read."""


@final
class Totals:
    """Counts over all connections of a server; each connection subtracts what it added."""

    def __init__(self) -> None:
        self.links = 0
        self.requests = 0
        self.transactions = 0
        self.transaction_bytes = 0
        self.pending_bytes = 0
        self.unfinished = Holdings(UNFINISHED_BYTES_MAX)
        self.unread = Unread(UNREAD_BYTES_MAX)

    @property
    def is_request_possible(self) -> bool:
        return self.requests < REQUESTS_MAX

    @property
    def is_pending_too_much(self) -> bool:
        return self.pending_bytes > PENDING_BYTES_MAX

    def check_links(self) -> None:
        if self.links > LINKS_MAX:
            raise Refused(
                SERVER_BUSY, f"The namespace has {LINKS_MAX} links, its maximum: try again later."
            )

    def check_transactions(self, size_bytes: int = 0) -> None:
        """Refused when there may not be one more transaction, or that many more bytes in open
        ones.
        """
        is_too_much = self.transaction_bytes + size_bytes > TRANSACTION_BYTES_MAX
        if is_too_much or (not size_bytes and self.transactions >= TRANSACTIONS_MAX):
            raise Refused(SERVER_BUSY, "There are too many open transactions: try again later.")
