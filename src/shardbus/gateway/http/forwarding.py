"""Who may let an entity forward to another (reference 10.6, 15.1)."""

from __future__ import annotations

from typing import Final

from shardbus.broker.auth import Authorizer, WrongKey, claims_required
from shardbus.core.access import SEND
from shardbus.core.entity import QueueSpec
from shardbus.core.errors import UNAUTHORIZED, Refused
from shardbus.gateway.http.gate import token_of
from shardbus.gateway.http.message import Request

MESSAGES_HEADER: Final = "servicebussupplementaryauthorization"
DEAD_LETTERS_HEADER: Final = "servicebusdlqsupplementaryauthorization"


def authorize_forwarding(
    request: Request, spec: QueueSpec, old: QueueSpec | None, authorizer: Authorizer
) -> None:
    """Refuse a destination that the client may not send to, by its second token or its first."""
    for header, target, former in (
        (MESSAGES_HEADER, spec.forward_to, old.forward_to if old else ""),
        (
            DEAD_LETTERS_HEADER,
            spec.forward_dead_letters_to,
            old.forward_dead_letters_to if old else "",
        ),
    ):
        if target and target.lower() != former.lower():
            _authorize(request, header, target, authorizer)


def _authorize(request: Request, header: str, target: str, authorizer: Authorizer) -> None:
    token = request.headers.get(header) or token_of(request)
    path = target.lower()
    try:
        grant = authorizer.verify_token(
            token, f"/{path}", host=request.headers.get("host", "").lower()
        )
    except WrongKey:
        raise
    except Refused as refusal:
        raise Refused(UNAUTHORIZED, refusal.message) from refusal
    if not grant.allows(SEND, path):
        raise claims_required(SEND, path)
