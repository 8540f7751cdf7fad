"""Who may ask: the token of a request, and the rights it must give."""

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

# What a URI has besides its path. Who reads a name as a URI and who reads it as a path would see
# two entities, and the right to one would open the other.
_URI: Final = re.compile(r"[?#]|://")


@final
class Gate:
    """Checks the Authorization header; the right comes before the question what exists."""

    def __init__(self, namespace: Namespace, authorizer: Authorizer) -> None:
        self._namespace = namespace
        self._authorizer = authorizer

    def grant_of(self, request: HttpRequest, audience: str | None = None, below: str = "") -> Grant:
        """What the token of a request gives for an audience, or for what it is for itself.

        `below` is a path under the audience for which a token may be as well, unless that is the
        name of another entity: then it is for that one. Refused when there is no token, or none
        that is good for that.
        """
        token = token_of(request)
        if not token:
            raise Refused(UNAUTHORIZED, "MissingToken: The request has no Authorization header.")
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

        An empty name is the namespace itself. `below` is as in `grant_of`. A name that no entity
        can have, because it would be more of a URI than its path, is refused whoever asks.
        """
        if _URI.search(name):
            raise invalid(f"{shown(name)} is no name: it has '?', '#' or '://'.")
        grant = self.grant_of(request, "/" + name, below)
        path = audience_path("/" + name)
        if _allows_all(grant, right, path) or (otherwise and _allows_all(grant, otherwise, path)):
            return
        raise claims_required(right, path)


def token_of(request: HttpRequest, header: str = "authorization") -> str:
    """The token of a request; empty when there is none.

    Administration clients that are given a ready-made token write `Bearer` before it, too.
    """
    return request.headers.get(header, "").removeprefix("Bearer ")


def _allows_all(grant: Grant, rights: int, path: str) -> bool:
    return all(grant.allows(right, path) for right in (LISTEN, SEND, MANAGE) if rights & right)
