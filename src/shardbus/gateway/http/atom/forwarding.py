"""Who may make an entity forward to another."""

from __future__ import annotations

from typing import Final

from shardbus.broker.access.auth import Authorizer, WrongKey, claims_required
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import UNAUTHORIZED, Refused
from shardbus.core.namespace.access import SEND
from shardbus.core.namespace.address import covers
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.server.gate import token_of
from shardbus.gateway.http.server.message import HttpRequest

MESSAGES_HEADER: Final = "servicebussupplementaryauthorization"
DEAD_LETTERS_HEADER: Final = "servicebusdlqsupplementaryauthorization"


def authorize_forwarding(
    request: HttpRequest,
    spec: EntitySpec,
    old: EntitySpec | None,
    authorizer: Authorizer,
    namespace: Namespace,
) -> None:
    """Refuse a destination to which the client may not send, by its second token or its first."""
    host = _host(request, namespace)
    for header, target, former in (
        (MESSAGES_HEADER, spec.forward_to, old.forward_to if old else ""),
        (
            DEAD_LETTERS_HEADER,
            spec.forward_dead_letters_to,
            old.forward_dead_letters_to if old else "",
        ),
    ):
        if target and target.lower() != former.lower():
            token = token_of(request, header) or token_of(request)
            _authorize(token, target.lower(), authorizer, host)


def _host(request: HttpRequest, namespace: Namespace) -> str:
    """The host by which the client addresses the server; empty when it could be an entity's name.

    The JavaScript SDK signs only the host. The client also writes the Host header: an entity's name
    there must not turn a token for that entity into one for all of them.
    """
    host = request.headers.get("host", "").lower()
    is_host = host == "localhost" or "." in host
    is_entity = namespace.find(host) is not None or covers(host, request.path.lower())
    return host if is_host and not is_entity else ""


def _authorize(token: str, path: str, authorizer: Authorizer, host: str) -> None:
    try:
        grant = authorizer.verify_token(token, f"/{path}", host=host)
    except WrongKey:
        raise
    except Refused as refusal:
        raise Refused(UNAUTHORIZED, refusal.message) from refusal
    if not grant.allows(SEND, path):
        raise claims_required(SEND, path)
