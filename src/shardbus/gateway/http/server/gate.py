"""Checks the token of a request, and the rights it must give."""

from __future__ import annotations

import re
from typing import Final, final

from shardbus.broker.access.auth import Authorizer, Grant, WrongKey, claims_required
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import UNAUTHORIZED, Refused
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND
from shardbus.core.namespace.address import audience_path
from shardbus.gateway.http.server.message import HttpRequest
from shardbus.gateway.http.server.refusal import invalid, shown

# Parts of a URI other than its path. With them, code that reads a name as a URI and code that reads
# it as a path would see two entities, and the right to one would open the other.
_URI: Final = re.compile(r"[?#]|://")


@final
class Gate:
    """Checks the Authorization header, before anything reveals which entities exist."""

    def __init__(self, namespace: Namespace, authorizer: Authorizer) -> None:
        self._namespace = namespace
        self._authorizer = authorizer

    def grant_of(self, request: HttpRequest, audience: str | None = None, below: str = "") -> Grant:
        """What the token of a request grants for an audience, or for its own resource.

        The token may also be for `below`, a path under the audience, unless that is the name of
        another entity. Refused without a token that is good for one of these.
        """
        token = token_of(request)
        if not token:
            raise Refused(
                UNAUTHORIZED,
                "MissingToken: The request has no Authorization header: send a token in it.",
            )
        try:
            scope = self._authorizer.scope_of(token)
            if self._namespace.find(scope) is not None:
                below = ""
            wanted = scope if audience is None else audience
            grant = self._authorizer.verify_token(token, wanted, below=below)
        except WrongKey:
            raise
        except Refused as refusal:
            raise Refused(UNAUTHORIZED, refusal.message) from refusal
        request.vouched()
        request.grant = grant
        return grant

    def require(
        self, request: HttpRequest, right: int, name: str, *, otherwise: int = 0, below: str = ""
    ) -> None:
        """Refused unless the token gives all of `right`, or of `otherwise`, on an entity.

        An empty name means the namespace itself. `below` is as in `grant_of`. A name that no entity
        can have, because it is more than the path of a URI, is always refused.
        """
        if _URI.search(name):
            raise invalid(f"{shown(name)} is not a valid name: it has '?', '#' or '://'.")
        path = audience_path("/" + name)
        is_known = request.grant is not None
        try:
            grant = self.grant_of(request, "/" + name, below)
        except Refused:
            if is_known:
                # The token is good for another entity of the same request. What it lacks is a right
                # on this one, so "invalid signature" would send its owner to look for a wrong key.
                raise claims_required(right, path) from None
            raise
        if _allows_all(grant, right, path) or (otherwise and _allows_all(grant, otherwise, path)):
            return
        raise claims_required(right, path)


def token_of(request: HttpRequest, header: str = "authorization") -> str:
    """The token of a request; empty when there is none.

    Administration clients with a ready-made token write `Bearer` before it, too.
    """
    return request.headers.get(header, "").removeprefix("Bearer ")


def _allows_all(grant: Grant, rights: int, path: str) -> bool:
    return all(grant.allows(right, path) for right in (LISTEN, SEND, MANAGE) if rights & right)
