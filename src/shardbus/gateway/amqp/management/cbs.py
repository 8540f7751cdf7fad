"""The $cbs node: a client puts tokens, and their grants are kept for its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from shardbus.broker.access.auth import Authorizer, Grant, WrongKey
from shardbus.broker.clock import Clock
from shardbus.core.errors import INVALID_ARGUMENT, Refused, not_found
from shardbus.core.message import NEVER_MS
from shardbus.core.namespace.address import parse_address
from shardbus.gateway.amqp.management.requests import NodeRequest, NodeResponse

# No legitimate client puts more tokens than this on one connection.
GRANTS_MAX: Final = 10_000


@final
class Grants:
    """The grants of one connection; `peer` is the address that it counts for, once known.

    `hang_up` is called when the client presents more wrong keys than are answered; `is_there` says
    whether an entity of a lower-case path exists.
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
            raise Refused(
                INVALID_ARGUMENT, "The connection has put too many tokens: open a new one."
            )
        self._by_path[grant.path] = grant

    def allow(self, right: int, entity: str) -> bool:
        now_ms = self.clock.now_ms()
        return any(
            grant.allows(right, entity) and not grant.is_expired(now_ms)
            for grant in self._by_path.values()
        )

    def next_expiry_ms(self) -> int:
        """When the first valid grant ends; NEVER_MS when none does."""
        now_ms = self.clock.now_ms()
        moments = [
            grant.expires_at_ms
            for grant in self._by_path.values()
            if grant.expires_at_ms != NEVER_MS and not grant.is_expired(now_ms)
        ]
        return min(moments, default=NEVER_MS)

    def check_again(self) -> None:
        """Apply the present access rules: some rights may be gone, and all those of a lost key."""
        checked = [self._authorizer.renewed(grant) for grant in self._by_path.values()]
        self._by_path = {grant.path: grant for grant in checked if grant is not None}

    def show_key(self, response: bytes) -> None:
        """SASL PLAIN: the key itself. Raises Refused; a WrongKey is answered after `hold`."""
        self.add(self._authorizer.verify_plain(response))

    def token_in_plain(self, response: bytes) -> str | None:
        """The issuer's token that SASL PLAIN shows instead of a key; None where it shows a key."""
        return self._authorizer.token_in_plain(response)

    async def show_token(self, token: str) -> None:
        """SASL PLAIN: a token of the issuer, for all that its holder may do. Raises Refused, or
        Unavailable without the keys of the issuer.
        """
        await self._authorizer.prepare(token)
        self.add(self._authorizer.verify_token(token, ""))

    async def hold(self) -> bool:
        """Wait before a wrong key is answered; False when the connection is closed instead."""
        is_answered = await self._authorizer.slowdown.hold(self.peer)
        if not is_answered:
            self._hang_up()
        return is_answered

    async def put_token(self, request: NodeRequest) -> NodeResponse:
        """Answer a put-token request; the body decides, whatever its type says.

        A good token for an entity that does not exist is refused here, where SDKs ask first, and
        gives no grant: a later entity of that name needs a new request.
        """
        properties = request.message.application_properties
        audience = properties.get("name")
        token = request.message.body
        if properties.get("operation") != "put-token" or not isinstance(audience, str):
            raise Refused(
                INVALID_ARGUMENT, "$cbs supports only the operation 'put-token' with a 'name'."
            )
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
