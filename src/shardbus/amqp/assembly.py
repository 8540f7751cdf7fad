"""Deliveries put together from the transfer frames that carry them."""

from typing import final

from mypy_extensions import i64

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.outcomes import decode_state
from shardbus.amqp.performatives import Transfer
from shardbus.amqp.pieces import Pieces
from shardbus.codec.errors import INVALID_FIELD, NOT_ALLOWED, WireError


@final
class Assembly:
    """The delivery of a link whose last frame has not come yet; `size` is how many bytes it has."""

    def __init__(self) -> None:
        self._first: Transfer | None = None
        self._pieces: Pieces = Pieces()

    @property
    def size(self) -> i64:
        return self._pieces.size

    @property
    def delivery_id(self) -> i64:
        """The delivery that is being collected; -1 for none."""
        return -1 if self._first is None else self._first.delivery_id

    def add(self, transfer: Transfer, payload: bytes) -> IncomingDelivery | None:
        """Add one frame; returns the delivery when it is complete. Raises WireError."""
        if transfer.aborted:
            self.clear()
            return None
        first = self._first
        if first is None:
            _check_first(transfer)
            if not transfer.more:
                return _delivery(transfer, payload)
            self._first = transfer
        else:
            _merge(first, transfer)
        self._pieces.add(payload)
        if first is None or transfer.more:
            return None
        whole = self._pieces.take()
        self._first = None
        return _delivery(first, whole)

    def clear(self) -> None:
        """Forget what was collected."""
        if self._first is not None:
            self._first = None
            self._pieces.clear()


def _check_first(transfer: Transfer) -> None:
    if transfer.delivery_id < 0 or transfer.tag is None:
        raise WireError(INVALID_FIELD, "a delivery has no id or tag")


def _merge(first: Transfer, transfer: Transfer) -> None:
    """Take over what a later frame may change: settled, and the state (part 2, 2.7.5)."""
    if transfer.delivery_id >= 0 and transfer.delivery_id != first.delivery_id:
        raise WireError(NOT_ALLOWED, "a new delivery starts inside an unfinished one")
    first.settled = first.settled or transfer.settled
    if transfer.state is not None:
        first.state = transfer.state


def _delivery(first: Transfer, payload: bytes) -> IncomingDelivery:
    tag = first.tag
    return IncomingDelivery(
        first.delivery_id,
        b"" if tag is None else tag,
        payload,
        first.settled,
        first.message_format,
        None if first.state is None else decode_state(first.state),
    )
