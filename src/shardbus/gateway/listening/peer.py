"""The address that a connection counts for in limits and slow-downs."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Final

UNKNOWN: Final = ""
"""A peer whose address is unknown; all of them count as one."""

# Providers give a network of this size to one customer, who may use every address in it.
_CUSTOMER_BITS: Final = 64


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address that a connection counts for; see `peer_at`."""
    return peer_at(transport.get_extra_info("peername"))


def peer_at(address: object) -> str:
    """An IPv4 address as it is, an IPv6 address as the network of its customer.

    `address` is that of a socket: host, port and more. Anything else is UNKNOWN.
    """
    host = address[0] if isinstance(address, tuple) and address else None
    if not isinstance(host, str):
        return UNKNOWN
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return UNKNOWN
    if isinstance(found, ipaddress.IPv4Address) or found.is_loopback:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _CUSTOMER_BITS), strict=False))
