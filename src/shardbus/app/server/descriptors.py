"""How many files and connections the process may have open, and who gets how many of them."""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass
from typing import Final

from shardbus.gateway.admission.newcomers import SECURED_MAX, SILENT_MAX

log = logging.getLogger(__name__)

DESCRIPTORS_MAX: Final = 1_048_576
"""More is never asked for, also where the system sets no limit."""
RESERVED_MAX: Final = 1_024
"""For stores, brokers and logs."""
HTTP_SHARE: Final = 5
"""For so many AMQP connections there may be one over HTTP ..."""
HTTP_LEAST: Final = 100
"""... but so many in any case."""


@dataclass(frozen=True)
class DescriptorShares:
    """How many connections of each kind there may be at once."""

    amqp: int
    http: int
    silent: int
    secured: int


def raise_limit() -> int:
    """Let the process open as many files as its user allows; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError) as error:
            log.warning("only %d files can be open at once: %s", soft, error)
            return soft
    return most


def places(descriptors: int, connections_max: int) -> DescriptorShares:
    """Share descriptors out, so that no kind of connection can take those of another."""
    free = descriptors - min(RESERVED_MAX, descriptors // 4)
    amqp = min(connections_max, free // 2)
    http = min(max(connections_max // HTTP_SHARE, HTTP_LEAST), free // 6)
    secured = min(SECURED_MAX, free // 12)
    silent = min(SILENT_MAX, free - amqp - http - secured)
    if amqp < connections_max:
        log.warning(
            "connections-max is %d, but with %d file descriptors there are at most %d: "
            "raise the limit of open files (ulimit -Hn)",
            connections_max,
            descriptors,
            amqp,
        )
    return DescriptorShares(amqp, http, silent, secured)
