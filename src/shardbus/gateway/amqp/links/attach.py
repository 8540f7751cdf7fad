"""Answers attaches: which node an address means, and whether the client may use it."""

from __future__ import annotations

from typing import Final, final

from shardbus.amqp.events import Event
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import AmqpError
from shardbus.amqp.termini import Coordinator
from shardbus.broker.access.auth import claims_required
from shardbus.broker.bus import Bus, EntityHandle
from shardbus.broker.forwarding.forwarder import not_kept
from shardbus.broker.operations.transactions import Transactor
from shardbus.broker.routing.dispatch import Dispatcher
from shardbus.codec.errors import DETACH_FORCED, UNAUTHORIZED_ACCESS
from shardbus.codec.types import Ulong, Value, text_of
from shardbus.core.errors import (
    ENTITY_DISABLED,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    Refused,
    Unavailable,
    not_found,
)
from shardbus.core.message import MAIN_LINE
from shardbus.core.namespace.access import LISTEN, SEND
from shardbus.core.namespace.address import (
    CBS,
    ENTITY,
    NAMESPACE,
    Address,
    not_sendable,
    parse_address,
)
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.tier import Tier
from shardbus.core.sessions.command import SessionAccepted
from shardbus.gateway.amqp.connection.counts import AmqpCounts
from shardbus.gateway.amqp.connection.failures import amqp_error, with_tracking
from shardbus.gateway.amqp.connection.throttle import Throttle
from shardbus.gateway.amqp.connection.totals import Totals
from shardbus.gateway.amqp.links.inbound import Inbound, Shell
from shardbus.gateway.amqp.links.outbound import Outbound
from shardbus.gateway.amqp.links.receivers import ReceiverCounts
from shardbus.gateway.amqp.links.session_hold import (
    SESSION_FILTER,
    SHARED_FILTER,
    SessionHold,
    SessionHolds,
    SessionWait,
    granted_properties,
    granted_source,
    session_asked,
    wait_asked_ms,
)
from shardbus.gateway.amqp.management.cbs import Grants
from shardbus.gateway.amqp.management.desk import Desk
from shardbus.gateway.amqp.management.node import ManagementNode
from shardbus.gateway.amqp.management.requests import RequestLink
from shardbus.gateway.amqp.management.responses import ResponseLink, ResponseLinks
from shardbus.gateway.amqp.transactions.coordinator import CAPABILITIES, CoordinatorLink
from shardbus.gateway.amqp.transactions.open import (
    OPEN_MAX,
    Enlistment,
    OpenTransactions,
    TransactionRules,
)
from shardbus.gateway.amqp.transactions.ways import way_of
from shardbus.message.stored import DeliverySource

CBS_NODE: Final = "$cbs"
DESTINATION: Final = "com.microsoft:transfer-destination-address"
BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"
# "Premium: 1 MB default; to 100 MB; batches 1 MB".
BATCH_BYTES_MAX: Final = 1024 * 1024
COORDINATOR_BYTES_MAX: Final = 64 * 1024
# What a request adds to the message that it carries.
REQUEST_BYTES: Final = 64 * 1024
REQUEST_BYTES_MIN: Final = 1024 * 1024
# "link without traffic: 10 min".
LINK_IDLE_MS: Final = 600_000
# A token and its envelope: anybody may send one.
TOKEN_BYTES_MAX: Final = 64 * 1024


@final
class Shared:
    """What all connections of the gateway share; `throttle` only where one is set."""

    def __init__(
        self,
        bus: Bus,
        receivers: ReceiverCounts,
        throttle: Throttle | None,
        transaction_rules: TransactionRules,
    ) -> None:
        self.bus = bus
        self.receivers = receivers
        self.throttle = throttle
        self.transaction_rules = transaction_rules
        self.counts = AmqpCounts()
        self.totals = Totals()
        self.transactor = Transactor(bus.clock)


@final
class _Use:
    """A link to an entity, and what must stay true while it is open.

    The link needs any one of `rights`, and ends when all of them are gone. `way` is the entity by
    way of which it sends, if that is another one: it needs the right there too.
    """

    def __init__(self, link: Link, handle: EntityHandle, rights: int, entity: str) -> None:
        self.link = link
        self.handle = handle
        self.rights = rights
        self.entity = entity
        self.way = entity
        self.way_id = handle.entity.entity_id
        self.is_receiver = False
        self.line = MAIN_LINE
        self._seen_count = -1
        self._moved_at_ms = 0

    @property
    def entity_id(self) -> int:
        return self.handle.entity.entity_id

    def touch(self) -> None:
        """Something was done for the link: it is not idle until the next check."""
        self._seen_count = -1

    def idle_ms(self, now_ms: int) -> int:
        """How long nothing was sent, received or waited for, as of this check."""
        count = self.link.delivery_count
        if count != self._seen_count or self._is_busy():
            self._seen_count = count
            self._moved_at_ms = now_ms
        return now_ms - self._moved_at_ms

    def _is_busy(self) -> bool:
        context = self.link.context
        if isinstance(context, Outbound):
            is_waiting = self.link.credit > 0 or self.link.unsettled_count > 0
            return is_waiting or context.hold is not None
        # A request may come at any time, and a link that waits for a session is waiting.
        return not isinstance(context, Inbound)

    def idle_error(self) -> AmqpError:
        role, part = ("consumer", "Consumer") if self.is_receiver else ("publisher", "Publisher")
        text = (
            f"The link '{self.link.name}' is force detached by the broker due to errors occurred "
            f"in {role}(link{self.link.handle}). Detach origin: "
            f"AmqpMessage{part}.IdleTimerExpired: Idle timeout: 00:10:00."
        )
        return AmqpError(DETACH_FORCED, with_tracking(text))


@final
class Attacher:
    """The links of one connection."""

    def __init__(self, shared: Shared, grants: Grants, shell: Shell) -> None:
        self._shared = shared
        self._grants = grants
        self._shell = shell
        self._responses = ResponseLinks()
        self._holds = SessionHolds()
        self._transactions = OpenTransactions(
            shared.transaction_rules, shared.transactor, shell, shared.counts, shared.totals
        )
        self._uses: dict[int, _Use] = {}
        # By link name; of two links with the same name, the later.
        self._named: dict[str, _Use] = {}
        self._links: set[int] = set()
        self._is_paused = False

    def attach(self, link: Link) -> list[Event]:
        """Accept or refuse, or keep waiting; returns the events that waited for the answer."""
        self._links.add(id(link))
        self._shared.totals.links += 1
        try:
            self._shared.totals.check_links()
            return self._accept(link)
        except Refused as refusal:
            link.refuse(amqp_error(refusal, self._shell.addressed_host))
            return []

    def detached(self, link: Link) -> None:
        if id(link) in self._links:
            self._links.discard(id(link))
            self._shared.totals.links -= 1
        self._forget(link)
        context = link.context
        if isinstance(context, Outbound):
            context.close()
        elif isinstance(context, SessionWait):
            context.cancel()
        elif isinstance(context, ResponseLink):
            self._responses.remove(context)
        elif isinstance(context, CoordinatorLink):
            context.close()

    def is_linkless(self) -> bool:
        return not self._links

    def count_links(self, by_role: dict[str, int]) -> None:
        """Count the open links by role."""
        for use in self._uses.values():
            role = "receiver" if use.is_receiver else "sender" if use.rights == SEND else "other"
            by_role[role] += 1
        # Links to no entity: tokens, their answers, transactions.
        by_role["other"] += max(0, len(self._links) - len(self._uses))

    def pause(self) -> None:
        """The client reads more slowly than the server writes."""
        self._is_paused = True
        for outbound in self._outbounds():
            outbound.pause()

    def resume(self) -> None:
        self._is_paused = False
        for outbound in self._outbounds():
            outbound.resume()

    def wake(self) -> None:
        """The client has opened its windows again."""
        self._responses.wake()
        for outbound in self._outbounds():
            outbound.wake()

    def _outbounds(self) -> list[Outbound]:
        contexts = [use.link.context for use in self._uses.values()]
        return [context for context in contexts if isinstance(context, Outbound)]

    def detach_entity(self, entity_id: int, rights: int, refusal: Refused) -> None:
        """End the links to an entity that need one of these rights and no other."""
        if rights & SEND:
            is_gone = refusal.kind is NOT_FOUND
            self._transactions.spoil_at(entity_id, refusal, is_gone=is_gone)
        for use in list(self._uses.values()):
            if entity_id in (use.entity_id, use.way_id) and not use.rights & ~rights:
                self._detach(use, amqp_error(refusal, self._shell.addressed_host))

    def detach_forwarding(self, entity: Entity) -> None:
        """End the links that receive from an entity that forwards from now on."""
        for use in list(self._uses.values()):
            if use.is_receiver and use.entity_id == entity.entity_id:
                refusal = not_kept(entity, use.line)
                if refusal is not None:
                    self._detach(use, amqp_error(refusal))

    def detach_idle(self, now_ms: int) -> None:
        """End the links without traffic; `now_ms` is a reading of any steady clock."""
        for use in list(self._uses.values()):
            if use.idle_ms(now_ms) >= LINK_IDLE_MS:
                self._detach(use, use.idle_error())

    def trust(self) -> None:
        """The client has presented a good token."""
        self._transactions.open_max = OPEN_MAX

    def detach_unauthorized(self, reason: str) -> None:
        """End the links that no grant allows any more."""
        for use in list(self._uses.values()):
            if not all(self._grants.allow(use.rights, path) for path in {use.entity, use.way}):
                self._detach(use, AmqpError(UNAUTHORIZED_ACCESS, with_tracking(reason)))

    def _detach(self, use: _Use, error: AmqpError) -> None:
        # Closed before the client's own detach arrives, so that nothing more is locked for it.
        context = use.link.context
        if isinstance(context, Outbound):
            context.close()
        elif isinstance(context, SessionWait):
            context.cancel()
        use.link.detach(error)

    def _remember(self, use: _Use) -> None:
        self._uses[id(use.link)] = use
        self._named[use.link.name] = use

    def _touch(self, link_name: str) -> None:
        """A request named a link (associated-link-name): the link is not idle."""
        use = self._named.get(link_name)
        if use is not None:
            use.touch()

    def _forget(self, link: Link) -> None:
        use = self._uses.pop(id(link), None)
        if use is None:
            return
        if use.is_receiver:
            self._shared.receivers.leave(use.entity_id)
        if self._named.get(link.name) is use:
            del self._named[link.name]
        context = link.context
        if isinstance(context, Outbound) and context.hold is not None:
            self._holds.remove(use.entity_id, link.name, context.hold)

    def _accept(self, link: Link) -> list[Event]:
        if isinstance(link.remote_target, Coordinator):
            return self._accept_coordinator(link, link.remote_target)
        terminus = link.remote_source if link.is_sender else link.remote_target
        text = terminus.address if terminus is not None else None
        if not text:
            raise Refused(
                INVALID_ARGUMENT,
                "The link has no address; dynamic nodes are not supported: use the path of "
                "an entity.",
            )
        address = parse_address(text)
        if address.kind == CBS:
            return self._accept_cbs(link)
        if address.kind == NAMESPACE:
            raise not_found(address.name)
        if address.is_management:
            return self._accept_management(link, address)
        return (
            self._accept_receiver(link, address)
            if link.is_sender
            else self._accept_sender(link, address)
        )

    def _accept_coordinator(self, link: Link, target: Coordinator) -> list[Event]:
        if self._shared.bus.namespace.settings.tier.is_basic:
            raise Refused(NOT_ALLOWED, "The Basic tier has no transactions.")
        coordinator = CoordinatorLink(link, self._transactions, self._shell)
        link.context = coordinator
        target.capabilities = list(CAPABILITIES)
        way_of(link.session).coordinate()
        events = link.accept(target=target, max_message_size=COORDINATOR_BYTES_MAX)
        coordinator.open()
        return events

    def _accept_cbs(self, link: Link) -> list[Event]:
        if link.is_sender:
            return self._accept_response(link, CBS_NODE)
        request_link = RequestLink(
            link, CBS_NODE, self._grants.put_token, self._responses, is_camel=False
        )
        return self._accept_request(link, request_link, TOKEN_BYTES_MAX)

    def _accept_management(self, link: Link, address: Address) -> list[Event]:
        # Some operations need one right and some the other; each operation checks its own.
        handle = self._find(LISTEN | SEND, address, told=LISTEN)
        _check_line(handle, address)
        node = f"{address.entity}/{address.line}/$management"
        self._remember(_Use(link, handle, LISTEN | SEND, address.entity))
        if link.is_sender:
            return self._accept_response(link, node)
        desk = Desk(handle, address.line, self._holds, self._shared.bus.namespace, self._touch)
        enlistment = Enlistment(self._transactions, handle)
        management = ManagementNode(address, desk, self._grants, enlistment, self._shared.throttle)
        request_link = RequestLink(
            link,
            node,
            management.handle,
            self._responses,
            is_camel=True,
            expect=self._transactions.expect,
        )
        size = handle.entity.spec.message_bytes_max() + REQUEST_BYTES
        return self._accept_request(link, request_link, max(size, REQUEST_BYTES_MIN))

    def _accept_response(self, link: Link, node: str) -> list[Event]:
        response_link = ResponseLink(link, node, self._responses)
        link.context = response_link
        self._responses.add(response_link)
        return link.accept()

    def _accept_request(
        self, link: Link, request_link: RequestLink, size_bytes_max: int
    ) -> list[Event]:
        link.context = request_link
        events = link.accept(max_message_size=size_bytes_max)
        request_link.open()
        return events

    def _accept_sender(self, link: Link, address: Address) -> list[Event]:
        _check_sendable(address)
        handle = self._find_sendable(address)
        way = address.entity
        via = text_of(link.properties.get(DESTINATION))
        named: EntityHandle | None = None
        if via is not None:
            # Sent by way of the entity of the link: the client needs the right on both.
            address, named = _destination(via), handle
            handle = self._find_sendable(address)
        way_of(link.session).enter(named or handle, is_sender=True)
        enlistment = Enlistment(self._transactions, handle, named)
        inbound = Inbound(link, handle.router, self._shell, enlistment, self._shared.throttle)
        link.context = inbound
        use = _Use(link, handle, SEND, address.entity)
        if named is not None:
            use.way, use.way_id = way, named.entity.entity_id
        self._remember(use)
        size = handle.entity.spec.message_bytes_max()
        events = link.accept(max_message_size=size, properties=self._batch_properties(size))
        inbound.open()
        return events

    def _batch_properties(self, size_bytes_max: int) -> dict[str, Value]:
        """The limit for batches, where it differs from that for messages, which SDKs use
        otherwise.
        """
        if not self._shared.bus.namespace.settings.tier.is_premium:
            return {}
        return {BATCH_SIZE: Ulong(min(size_bytes_max, BATCH_BYTES_MAX))}

    def _find_sendable(self, address: Address) -> EntityHandle:
        handle = self._find(SEND, address)
        spec = handle.entity.spec
        if not spec.is_sendable():
            raise Refused(
                ENTITY_DISABLED, f"'{address.name}' is {spec.status} and accepts no messages."
            )
        return handle

    def _accept_receiver(self, link: Link, address: Address) -> list[Event]:
        handle = self._find(LISTEN, address)
        if handle.entity.is_topic():
            raise Refused(
                NOT_ALLOWED,
                f"Messages cannot be received from the topic '{address.name}': receive from "
                "one of its subscriptions.",
            )
        spec = handle.entity.spec
        if not spec.is_receivable():
            raise Refused(
                ENTITY_DISABLED,
                f"'{address.name}' is {spec.status}: messages cannot be received from it.",
            )
        refusal = not_kept(handle.entity, address.line)
        if refusal is not None:
            raise refusal
        _check_source(link, self._shared.bus.namespace.settings.tier)
        # Dead letters are received without their sessions.
        is_sessionful = spec.requires_session and address.line == MAIN_LINE
        wish = session_asked(link)
        if wish is not None and not is_sessionful:
            raise Refused(
                NOT_ALLOWED,
                "It is not possible for a non-sessionful entity to create a sessionful receiver.",
            )
        if is_sessionful and wish is None:
            raise Refused(
                NOT_ALLOWED,
                "It is not possible for an entity that requires sessions to create a "
                "non-sessionful message receiver.",
            )
        way = way_of(link.session)
        if not self._shared.transaction_rules.is_extended:
            way.check_receiver(handle.entity)
        way.enter(handle, is_sender=False)
        self._enter(link, handle, address)
        if wish is not None:
            wait = SessionWait(link, wish, handle.router, self._session_answered)
            link.context = wait
            wait.start(wait_asked_ms(link))
            return []
        outbound = self._new_outbound(link, handle, handle.router.dispatcher(address.line))
        events = link.accept()
        outbound.open()
        return events

    def _enter(self, link: Link, handle: EntityHandle, address: Address) -> None:
        use = _Use(link, handle, LISTEN, address.entity)
        self._shared.receivers.enter(use.entity_id)
        use.is_receiver = True
        use.line = address.line
        self._remember(use)

    def _new_outbound(self, link: Link, handle: EntityHandle, dispatcher: Dispatcher) -> Outbound:
        enlistment = Enlistment(self._transactions, handle)
        source = DeliverySource(
            is_partitioned=handle.router.is_partitioned,
            is_subscription=handle.entity.is_subscription(),
        )
        outbound = Outbound(
            link, handle.router, dispatcher, self._shell, enlistment, self._shared.throttle, source
        )
        link.context = outbound
        if self._is_paused:
            outbound.pause()
        return outbound

    def _session_answered(
        self, wait: SessionWait, answer: SessionAccepted | Refused | Unavailable
    ) -> None:
        link = wait.link
        if isinstance(answer, SessionAccepted):
            self._session_granted(wait, answer)
        else:
            self._forget(link)
            link.refuse(amqp_error(answer))
        self._shell.flush_soon()

    def _session_granted(self, wait: SessionWait, accepted: SessionAccepted) -> None:
        link = wait.link
        use = self._uses[id(link)]
        router = wait.router
        dispatcher = router.session_dispatcher(accepted, MAIN_LINE, is_lasting=True)
        outbound = self._new_outbound(link, use.handle, dispatcher)
        handle = use.handle
        hold = SessionHold(
            accepted,
            router,
            self._shell,
            lambda: handle.entity.spec.lock_ms,
            outbound.end,
            is_shared=wait.wish.sharing is not None,
        )
        outbound.hold = hold
        self._holds.add(use.entity_id, link.name, hold)
        events = link.accept(
            source=granted_source(link, wait.wish, accepted),
            properties=granted_properties(accepted),
        )
        outbound.open()
        self._shell.handle(events)

    def _find(self, rights: int, address: Address, *, told: int = 0) -> EntityHandle:
        """The entity, for a client with one of these rights; `told` is the right that a refusal
        names.
        """
        # The right is checked first: a client without it does not learn which entities exist.
        if not self._grants.allow(rights, address.entity):
            raise claims_required(told or rights, address.name)
        handle = self._shared.bus.find(address.entity)
        if handle is None:
            raise not_found(address.name)
        return handle


def _check_source(link: Link, tier: Tier) -> None:
    """Refuse filters and modes that the bus does not implement: a receiver that gets other messages
    than it asked for would lose them.
    """
    source = link.remote_source
    if source is None:
        return
    for name in source.filters or {}:
        if name == SHARED_FILTER and not tier.is_premium:
            # By this condition the client sees that the namespace does not offer it.
            raise Refused(
                NOT_IMPLEMENTED,
                "Only the Premium tier has sessions that another receiver can take over: accept "
                "the session without EnableNonExclusiveSession.",
            )
        if name not in (SESSION_FILTER, SHARED_FILTER):
            raise Refused(
                NOT_ALLOWED,
                f"The filter '{name[:100]}' is not supported: filter with the rules of a "
                "subscription and receive from that.",
            )
    if source.distribution_mode == "copy":
        raise Refused(
            NOT_ALLOWED,
            "The distribution mode 'copy' is not supported: peek messages to leave them in "
            "the entity.",
        )


def _destination(text: str) -> Address:
    address = parse_address(text)
    _check_sendable(address)
    return address


def _check_sendable(address: Address) -> None:
    if address.line != MAIN_LINE or address.kind != ENTITY or address.is_management:
        raise not_sendable(address)


def _check_line(handle: EntityHandle, address: Address) -> None:
    if handle.entity.is_topic() and address.line != MAIN_LINE:
        raise Refused(
            NOT_ALLOWED,
            f"The topic '{address.name}' has no dead letters: receive from the dead-letter "
            "queues of its subscriptions.",
        )
