"""How many files and connections the process may have open, and how they are shared out."""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass
from typing import Final

from shardbus.gateway.admission.newcomers import SECURED_MAX, SILENT_MAX

log = logging.getLogger(__name__)

DESCRIPTORS_MAX: Final = 1_048_576
"""The maximum that is requested, even where the system sets no limit."""
RESERVED_MAX: Final = 1_024
"""For stores, brokers and logs."""
HTTP_SHARE: Final = 5
"""One HTTP connection for this many AMQP connections ..."""
HTTP_LEAST: Final = 100
"""... but at least this many."""


@dataclass(frozen=True)
class DescriptorShares:
    """How many connections of each kind there may be at once."""

    amqp: int
    http: int
    silent: int
    secured: int


def raise_limit() -> int:
    """Raise the limit of open files as far as allowed; returns the limit."""
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
            "connections-max is %d, but %d file descriptors allow only %d: raise the limit "
            "of open files (ulimit -Hn)",
            connections_max,
            descriptors,
            amqp,
        )
    return DescriptorShares(amqp, http, silent, secured)
