"""The transaction coordinator: the link on which a client declares and discharges."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Final, final

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, AmqpError, Declared, DeliveryState, Rejected
from shardbus.codec import codes
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Described, Value, integer_of, text_of, value_of
from shardbus.core.errors import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refused, Unavailable
from shardbus.gateway.amqp.connection.failures import amqp_error, with_tracking
from shardbus.gateway.amqp.links.inbound import Shell
from shardbus.gateway.amqp.transactions.open import OpenTransaction, OpenTransactions
from shardbus.gateway.amqp.transactions.ways import way_of
from shardbus.message.sections import decode_message

CREDIT: Final = 100
INTERNAL_ERROR: Final = "amqp:internal-error"
CAPABILITIES: Final = ["amqp:local-transactions", "amqp:multi-txns-per-ssn"]

_DECLARE_NAME: Final = "amqp:declare:list"
_DISCHARGE_NAME: Final = "amqp:discharge:list"


@final
class CoordinatorLink:
    """The coordinator's end of a link; transactions declared here end with the link at the
    latest.
    """

    def __init__(self, link: Link, transactions: OpenTransactions, shell: Shell) -> None:
        self.link = link
        self._transactions = transactions
        self._shell = shell

    def open(self) -> None:
        self.link.grant(CREDIT)

    def close(self) -> None:
        self._transactions.roll_back_of(self)

    def receive(self, delivery: IncomingDelivery) -> Coroutine[object, object, None] | None:
        """Process a declare or discharge; returns the rest of the work to be awaited, if any.

        A discharged transaction accepts nothing more from this moment on.
        """
        try:
            request = _request_in(delivery)
            if request.transaction_id is None:
                self._settle(
                    delivery, Declared(self._transactions.declare(self, way_of(self.link.session)))
                )
                return None
            taken = self._transactions.take(request.transaction_id)
        except DecodeError as error:
            self._settle(delivery, Rejected(AmqpError(error.condition, error.description)))
            return None
        except Refused as refusal:
            self._settle(delivery, Rejected(amqp_error(refusal)))
            return None
        if request.is_failed:
            self._shell.counts.rolled_back += 1
            self._settle(delivery, ACCEPTED)
            return None
        return self._commit(delivery, taken)

    async def _commit(self, delivery: IncomingDelivery, taken: OpenTransaction) -> None:
        outcome: DeliveryState = ACCEPTED
        counts = self._shell.counts
        try:
            await self._transactions.commit(taken)
            counts.committed += 1
            counts.sent += taken.sent
            for settlement in taken.settlements():
                counts.settled(settlement.how, len(settlement.tokens))
        except Refused as refusal:
            counts.commits_failed += 1
            outcome = Rejected(amqp_error(refusal))
        except Unavailable as failure:
            counts.commits_failed += 1
            outcome = Rejected(_unavailable(failure))
        self._settle(delivery, outcome)

    def _settle(self, delivery: IncomingDelivery, outcome: DeliveryState) -> None:
        if not delivery.settled:
            self.link.settle([delivery.delivery_id], outcome)
        if self.link.credit <= CREDIT // 2:
            self.link.grant(CREDIT)
        self._shell.flush_soon()


@final
class _Request:
    """A declare, without a transaction, or the discharge of one."""

    def __init__(self, transaction_id: bytes | None, is_failed: bool) -> None:
        self.transaction_id = transaction_id
        self.is_failed = is_failed


def _request_in(delivery: IncomingDelivery) -> _Request:
    body = decode_message(delivery.payload).body
    if not isinstance(body, Described) or not isinstance(body.value, list):
        raise Refused(INVALID_ARGUMENT, "The coordinator accepts only declare and discharge.")
    fields = body.value
    if _is(body.descriptor, codes.DECLARE, _DECLARE_NAME):
        if fields and fields[0] is not None:
            raise Refused(NOT_IMPLEMENTED, "A transaction cannot be part of a global one.")
        return _Request(None, False)
    if not _is(body.descriptor, codes.DISCHARGE, _DISCHARGE_NAME):
        raise Refused(INVALID_ARGUMENT, "The coordinator accepts only declare and discharge.")
    transaction_id = value_of(fields[0]) if fields else None
    if not isinstance(transaction_id, bytes):
        raise Refused(INVALID_ARGUMENT, "A discharge must name its transaction.")
    return _Request(transaction_id, len(fields) > 1 and value_of(fields[1]) is True)


def _is(descriptor: Value, code: int, name: str) -> bool:
    return integer_of(descriptor) == code or text_of(descriptor) == name


def _unavailable(failure: Unavailable) -> AmqpError:
    """Only a rollback that is certain may be reported as one."""
    if not failure.is_unknown:
        text = f"The transaction was rolled back: {failure.message}"
        return amqp_error(Unavailable(text))
    text = (
        "It is unknown whether the transaction was committed; it was, or will be, committed "
        f"as a whole or not at all. {failure.message}"
    )
    return AmqpError(INTERNAL_ERROR, with_tracking(text))
