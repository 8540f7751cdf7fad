"""The lock that is shared by the processes that serve a database, and exclusive for those that keep
others from serving it; it ends with its connection.
"""

from __future__ import annotations

from typing import Final

from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Link

# "SBse": shared by all processes that serve slots of a database; an exclusive holder keeps them
# out.
_SERVED_LOCK: Final = 0x53427365


def keep_served(link: Link) -> None:
    """Serve a database for as long as this connection lasts; StoreError if that is not possible
    now.
    """
    if not link.fetch("SELECT pg_try_advisory_lock_shared($1)", _SERVED_LOCK)[0][0]:
        raise StoreError(
            f"{link.address.shown} is being examined or copied; wait until that is done"
        )


def keep_unserved(link: Link) -> None:
    """Keep all other processes from serving it; StoreError if one does."""
    if not link.fetch("SELECT pg_try_advisory_lock($1)", _SERVED_LOCK)[0][0]:
        raise StoreError(
            f"{link.address.shown} is being served: stop the server, or all nodes of the cluster, "
            "or name another database"
        )
