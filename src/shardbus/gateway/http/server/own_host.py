"""The host names under which a bus with the public key answers: none that a web site could use.

A page may send any request to its own site, and the owner of that site's DNS may let its name mean
127.0.0.1 a moment later (DNS rebinding). Such a request has the site's name as its host. Safe names
are those without a domain, those of reserved domains and of the cloud, and addresses: nobody
outside can let them mean this machine.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from shardbus.core.errors import ErrorKind, Refused
from shardbus.gateway.http.server.refusal import shown

_MISDIRECTED: Final = ErrorKind("misdirected", "amqp:not-allowed", 421, 42100)
_PLAIN: Final = re.compile(r"[a-z0-9_-]+", re.ASCII)
_SAFE_DOMAINS: Final = (".localhost", ".internal", ".servicebus.windows.net")


def check_host(host: str) -> None:
    """Refused when a Host header is a name that a web site could have given this machine.

    Requests without one are allowed: every browser sends one.
    """
    if host and not _is_safe(host):
        raise Refused(
            _MISDIRECTED,
            f"The bus has the public development key and does not answer as {shown(host)}: "
            "use localhost, or give the bus its own key with --sas-key-file.",
        )


def _is_safe(host: str) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if _PLAIN.fullmatch(name):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.endswith(_SAFE_DOMAINS)
    return True
