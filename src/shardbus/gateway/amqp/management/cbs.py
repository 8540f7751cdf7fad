"""The $cbs node: a client shows tokens, and what they grant is kept for its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from shardbus.broker.access.auth import Authorizer, Grant, WrongKey
from shardbus.broker.clock import Clock
from shardbus.core.errors import INVALID_ARGUMENT, Refused, not_found
from shardbus.core.message import NEVER_MS
from shardbus.core.namespace.address import parse_address
from shardbus.gateway.amqp.management.requests import NodeRequest, NodeResponse

# A connection that shows more tokens than this is not a client of ours.
GRANTS_MAX: Final = 10_000


@final
class Grants:
    """What one connection may do; `peer` is the address that counts for it, once that is known.

    `hang_up` is called when the client shows more wrong keys than are answered; `is_there` says
    whether there is an entity of a lower-case path.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        clock: Clock,
        hang_up: Callable[[], None],
        is_there: Callable[[str], bool],
    ) -> None:
        self.peer = ""
        self.clock = clock
        self._hang_up = hang_up
        self._is_there = is_there
        self._authorizer = authorizer
        self._by_path: dict[str, Grant] = {}

    @property
    def has_any(self) -> bool:
        return bool(self._by_path)

    def add(self, grant: Grant) -> None:
        if len(self._by_path) >= GRANTS_MAX and grant.path not in self._by_path:
            raise Refused(INVALID_ARGUMENT, "The connection has shown too many tokens.")
        self._by_path[grant.path] = grant

    def allow(self, right: int, entity: str) -> bool:
        now_ms = self.clock.now_ms()
        return any(
            grant.allows(right, entity) and not grant.is_expired(now_ms)
            for grant in self._by_path.values()
        )

    def next_expiry_ms(self) -> int:
        """When the first grant that is still valid ends; NEVER_MS when none does."""
        now_ms = self.clock.now_ms()
        moments = [
            grant.expires_at_ms
            for grant in self._by_path.values()
            if grant.expires_at_ms != NEVER_MS and not grant.is_expired(now_ms)
        ]
        return min(moments, default=NEVER_MS)

    def check_again(self) -> None:
        """Go by the access rules of now: some rights may be gone, and all those of a lost key."""
        checked = [self._authorizer.renewed(grant) for grant in self._by_path.values()]
        self._by_path = {grant.path: grant for grant in checked if grant is not None}

    def show_key(self, response: bytes) -> None:
        """SASL PLAIN: the key itself. Raises Refused; a WrongKey is answered after `hold`."""
        self.add(self._authorizer.verify_plain(response))

    async def hold(self) -> bool:
        """Wait before a wrong key is answered; False when the client is hung up on instead."""
        is_answered = await self._authorizer.slowdown.hold(self.peer)
        if not is_answered:
            self._hang_up()
        return is_answered

    async def put_token(self, request: NodeRequest) -> NodeResponse:
        """Answer a put-token request: whatever its type says, the body decides.

        Who shows a good token for what does not exist is told so here, where SDKs ask first, and
        gets no grant: an entity of that name that comes later is asked for anew.
        """
        properties = request.message.application_properties
        audience = properties.get("name")
        token = request.message.body
        if properties.get("operation") != "put-token" or not isinstance(audience, str):
            raise Refused(INVALID_ARGUMENT, "$cbs understands 'put-token' with a 'name'.")
        if not isinstance(token, str):
            raise Refused(INVALID_ARGUMENT, "The body of put-token must be the token as a string.")
        await self._authorizer.prepare(token)
        try:
            grant = self._authorizer.verify_token(token, audience)
        except WrongKey:
            await self.hold()
            raise
        if grant.path and not self._is_there(grant.path):
            raise not_found(parse_address(audience).name)
        self.add(grant)
        return NodeResponse(202, "Accepted")
