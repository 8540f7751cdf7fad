"""Answers attaches: which node an address means, and whether this client may use it."""

from __future__ import annotations

from typing import Final, final

from shardbus.amqp.errors import UNAUTHORIZED_ACCESS
from shardbus.amqp.events import Event
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import AmqpError
from shardbus.amqp.termini import Coordinator
from shardbus.amqp.types import Ulong
from shardbus.broker.auth import claims_required
from shardbus.broker.bus import Bus, EntityHandle
from shardbus.core.access import LISTEN, SEND
from shardbus.core.address import CBS, ENTITY, NAMESPACE, Address, parse_address
from shardbus.core.errors import (
    ENTITY_DISABLED,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    Refused,
)
from shardbus.core.message import MAIN_LINE
from shardbus.gateway.amqp.cbs import Grants
from shardbus.gateway.amqp.failures import amqp_error, entity_not_found, with_tracking
from shardbus.gateway.amqp.inbound import Inbound, Shell
from shardbus.gateway.amqp.management import ManagementNode
from shardbus.gateway.amqp.outbound import Outbound
from shardbus.gateway.amqp.requests import RequestLink
from shardbus.gateway.amqp.responses import ResponseLink, ResponseLinks

CBS_NODE: Final = "$cbs"
SESSION_FILTER: Final = "com.microsoft:session-filter"


@final
class _Use:
    """An entity's link: what must stay true while it is open."""

    def __init__(self, link: Link, handle: EntityHandle, right: int, entity: str) -> None:
        self.link = link
        self.handle = handle
        self.right = right
        self.entity = entity


@final
class Attacher:
    """The links of one connection."""

    def __init__(self, bus: Bus, grants: Grants, shell: Shell) -> None:
        self._bus = bus
        self._grants = grants
        self._shell = shell
        self._responses = ResponseLinks()
        self._uses: dict[int, _Use] = {}
        self._links: set[int] = set()

    def attach(self, link: Link) -> list[Event]:
        """Accept or refuse; returns the events that waited for the answer."""
        self._links.add(id(link))
        try:
            return self._accept(link)
        except Refused as refusal:
            link.refuse(amqp_error(refusal))
            return []

    def detached(self, link: Link) -> None:
        self._links.discard(id(link))
        self._uses.pop(id(link), None)
        context = link.context
        if isinstance(context, Outbound):
            context.close()
        elif isinstance(context, ResponseLink):
            self._responses.remove(context)

    def is_linkless(self) -> bool:
        return not self._links

    def outbounds(self) -> list[Outbound]:
        contexts = [use.link.context for use in self._uses.values()]
        return [context for context in contexts if isinstance(context, Outbound)]

    def detach_entity(self, entity_id: int, rights: int, error: AmqpError) -> None:
        for use in list(self._uses.values()):
            if use.handle.entity.entity_id == entity_id and use.right & rights:
                self._detach(use, error)

    def detach_unauthorized(self) -> None:
        for use in list(self._uses.values()):
            if not self._grants.allow(use.right, use.entity):
                text = with_tracking("The token has expired: put a new one and attach again.")
                self._detach(use, AmqpError(UNAUTHORIZED_ACCESS, text))

    def _detach(self, use: _Use, error: AmqpError) -> None:
        # Closed before the client's own detach arrives, so that nothing more is locked for it.
        if isinstance(use.link.context, Outbound):
            use.link.context.close()
        use.link.detach(error)

    def _accept(self, link: Link) -> list[Event]:
        if isinstance(link.remote_target, Coordinator):
            raise Refused(NOT_IMPLEMENTED, "Transactions are not available yet.")
        terminus = link.remote_source if link.is_sender else link.remote_target
        text = terminus.address if terminus is not None else None
        if not text:
            raise Refused(
                INVALID_ARGUMENT, "The link names no address; dynamic nodes do not exist."
            )
        address = parse_address(text)
        if address.kind == CBS:
            return self._accept_cbs(link)
        if address.kind == NAMESPACE:
            raise entity_not_found(address.name)
        if address.is_management:
            return self._accept_management(link, address)
        return (
            self._accept_receiver(link, address)
            if link.is_sender
            else self._accept_sender(link, address)
        )

    def _accept_cbs(self, link: Link) -> list[Event]:
        if link.is_sender:
            return self._accept_response(link, CBS_NODE)
        request_link = RequestLink(
            link, CBS_NODE, self._grants.put_token, self._responses, is_camel=False
        )
        return self._accept_request(link, request_link)

    def _accept_management(self, link: Link, address: Address) -> list[Event]:
        handle = self._find(LISTEN, address)
        node = f"{address.entity}/{address.line}/$management"
        self._uses[id(link)] = _Use(link, handle, LISTEN, address.entity)
        if link.is_sender:
            return self._accept_response(link, node)
        management = ManagementNode(handle, address.line)
        request_link = RequestLink(link, node, management.handle, self._responses, is_camel=True)
        return self._accept_request(link, request_link)

    def _accept_response(self, link: Link, node: str) -> list[Event]:
        response_link = ResponseLink(link, node, self._responses)
        link.context = response_link
        self._responses.add(response_link)
        return link.accept()

    def _accept_request(self, link: Link, request_link: RequestLink) -> list[Event]:
        link.context = request_link
        events = link.accept()
        request_link.open()
        return events

    def _accept_sender(self, link: Link, address: Address) -> list[Event]:
        if address.line != MAIN_LINE or address.kind != ENTITY:
            raise Refused(
                NOT_ALLOWED, f"Nothing can be sent to '{address.name}': send to its entity."
            )
        handle = self._find(SEND, address)
        spec = handle.entity.spec
        if not spec.is_sendable():
            raise Refused(
                ENTITY_DISABLED, f"'{address.name}' is {spec.status}: it takes no messages."
            )
        inbound = Inbound(link, handle.router, self._shell)
        link.context = inbound
        self._uses[id(link)] = _Use(link, handle, SEND, address.entity)
        size = spec.message_bytes_max()
        events = link.accept(
            max_message_size=size,
            properties={"com.microsoft:max-message-batch-size": Ulong(size)},
        )
        inbound.open()
        return events

    def _accept_receiver(self, link: Link, address: Address) -> list[Event]:
        handle = self._find(LISTEN, address)
        spec = handle.entity.spec
        if not spec.is_receivable():
            raise Refused(
                ENTITY_DISABLED, f"'{address.name}' is {spec.status}: it gives no messages."
            )
        source = link.remote_source
        if source is not None and source.filters and SESSION_FILTER in source.filters:
            raise Refused(
                NOT_ALLOWED,
                "It is not possible for a non-sessionful entity to create a sessionful receiver.",
            )
        dispatcher = handle.router.dispatcher(address.line)
        outbound = Outbound(link, handle.router, dispatcher, self._shell)
        link.context = outbound
        self._uses[id(link)] = _Use(link, handle, LISTEN, address.entity)
        events = link.accept()
        outbound.open()
        return events

    def _find(self, right: int, address: Address) -> EntityHandle:
        # The right comes first: who lacks it does not learn what exists.
        if not self._grants.allow(right, address.entity):
            raise claims_required(right, f"sb://shardbus/{address.name}")
        handle = self._bus.find(address.entity)
        if handle is None:
            raise entity_not_found(address.name)
        return handle
