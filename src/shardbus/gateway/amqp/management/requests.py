"""Request/response nodes: the envelope that $cbs and $management share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, final

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import (
    ACCEPTED,
    AmqpError,
    DeliveryState,
    Rejected,
    TransactionalState,
)
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Int, Symbol, Value
from shardbus.core.errors import OUTCOME_UNKNOWN, TIMEOUT, Refused, Unavailable, kind_of
from shardbus.gateway.amqp.connection.failures import amqp_error
from shardbus.gateway.amqp.links.inbound import Shell
from shardbus.gateway.amqp.management.responses import ResponseLinks
from shardbus.message.sections import DecodedMessage, build_message, decode_message

log = logging.getLogger(__name__)

REQUEST_CREDIT: Final = 100


@final
class NodeResponse:
    """A status, its text, an error condition for failures, and a body."""

    def __init__(
        self, status: int, text: str, body: Value = None, condition: str | None = None
    ) -> None:
        self.status = status
        self.text = text
        self.body = body
        self.condition = condition


def response_to(failure: Refused | Unavailable, host: str = "") -> NodeResponse:
    kind = kind_of(failure)
    status = kind.status
    if status == 413:
        # HTTP's own status; the management node uses only that of a quota.
        status = 403
    elif kind is OUTCOME_UNKNOWN:
        # The status that SDKs know for this condition.
        status = TIMEOUT.status
    error = amqp_error(failure, host)
    return NodeResponse(status, error.description, {}, error.condition)


@final
class NodeRequest:
    """A client's request, and its transaction, if it has one."""

    def __init__(self, message: DecodedMessage, transaction_id: bytes | None = None) -> None:
        self.message = message
        self.transaction_id = transaction_id


Handler = Callable[[NodeRequest], Awaitable[NodeResponse]]
Expecting = Callable[[bytes], Callable[[], None]]
"""Called with the transaction of a request when it arrives; returns a function to call when it is
answered.
"""


@final
class RequestLink:
    """A link for requests: every request gets one answer on the response link.

    `is_camel` chooses between the two spellings of the status properties: $management uses camel
    case and $cbs hyphens, and the Python SDK reads only the expected one.
    """

    def __init__(
        self,
        link: Link,
        node: str,
        handler: Handler,
        responses: ResponseLinks,
        *,
        is_camel: bool,
        expect: Expecting | None = None,
    ) -> None:
        self.link = link
        self._expect = expect
        self.node = node
        self._handler = handler
        self._responses = responses
        self._is_camel = is_camel
        self._in_flight = 0

    def open(self) -> None:
        self.link.grant(REQUEST_CREDIT)

    def answer(self, delivery: IncomingDelivery, shell: Shell) -> Coroutine[object, object, None]:
        """The rest of the work, to be awaited; the transaction learns of the request at once."""
        self._in_flight += 1
        transaction_id = _transaction_of(delivery)
        answered = None
        if transaction_id is not None and self._expect is not None:
            answered = self._expect(transaction_id)
        return self._answer(delivery, shell, answered)

    def refuse(self, delivery: IncomingDelivery, shell: Shell, failure: Unavailable) -> bool:
        """Refuse a request without processing it; False if its transaction would have to know."""
        if _transaction_of(delivery) is not None:
            return False
        request = self._read(delivery)
        if request is not None:
            shell.counts.refused(failure, 1)
            self._reply(request, response_to(failure), shell)
        shell.flush_soon()
        return True

    async def _answer(
        self, delivery: IncomingDelivery, shell: Shell, answered: Callable[[], None] | None
    ) -> None:
        response: NodeResponse | None = None
        request = self._read(delivery)
        try:
            if request is not None:
                response = await self._handle(
                    NodeRequest(request, _transaction_of(delivery)), shell
                )
        finally:
            if answered is not None:
                answered()
            self._in_flight -= 1
            self._top_up()
        if request is not None and response is not None:
            self._reply(request, response, shell)
        shell.flush_soon()

    def _read(self, delivery: IncomingDelivery) -> DecodedMessage | None:
        """Decode and accept the request; None for an invalid one, which is rejected."""
        try:
            request = decode_message(delivery.payload)
        except DecodeError as error:
            self._settle(delivery, AmqpError(error.condition, error.description))
            return None
        self._settle(delivery, None)
        return request

    def _reply(self, request: DecodedMessage, response: NodeResponse, shell: Shell) -> None:
        shell.counts.answered(self.node.rpartition("/")[2], response.status)
        reply_to = request.head.reply_to
        way_back = self._responses.find(reply_to, self.node, self.link.session)
        if way_back is None:
            # Anybody may put a token without a reply address.
            log.debug("no response link for a request to %s (reply-to %r)", self.node, reply_to)
        else:
            way_back.send(self._encode(response, request))

    async def _handle(self, request: NodeRequest, shell: Shell) -> NodeResponse:
        try:
            return await self._handler(request)
        except (Refused, Unavailable) as failure:
            shell.counts.refused(failure, 1)
            return response_to(failure, shell.addressed_host)

    def _settle(self, delivery: IncomingDelivery, error: AmqpError | None) -> None:
        if not delivery.settled:
            outcome: DeliveryState = ACCEPTED if error is None else Rejected(error)
            transaction_id = _transaction_of(delivery)
            if error is None and transaction_id is not None:
                outcome = TransactionalState(transaction_id, ACCEPTED)
            self.link.settle([delivery.delivery_id], outcome)
        self._top_up()

    def _top_up(self) -> None:
        """Give the client credit for more requests, but not for more than are answered at a
        time.
        """
        if self.link.credit <= REQUEST_CREDIT // 2:
            self.link.grant(REQUEST_CREDIT - self._in_flight)

    def _encode(self, response: NodeResponse, request: DecodedMessage) -> bytes:
        if self._is_camel:
            status, text, condition = "statusCode", "statusDescription", "errorCondition"
        else:
            status, text, condition = "status-code", "status-description", ""
        properties: dict[str, Value] = {status: Int(response.status), text: response.text}
        # The Python SDK does not see the status of a CBS answer with an error condition.
        if response.condition is not None and condition:
            properties[condition] = Symbol(response.condition)
        return build_message(
            body=response.body,
            application_properties=properties,
            correlation_id_raw=request.head.message_id_raw,
        )


def _transaction_of(delivery: IncomingDelivery) -> bytes | None:
    state = delivery.state
    return state.transaction_id if isinstance(state, TransactionalState) else None
