"""The cluster as its databases show it, without asking any node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.failures import CommandError
from shardbus.app.server.store_kinds import seen_cluster
from shardbus.gateway.http.api.operations.cluster import cluster_document
from shardbus.stores.base.cluster import SeenStore, SeenStores
from shardbus.stores.base.sight import Sight
from shardbus.stores.base.store import StoreError

_NAME: Final = "cluster status"


@final
class ClusterLook:
    """Returns the same document as a gateway; it names the databases that cannot be reached."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._seen: SeenStores | None = None

    def document(self) -> Document:
        """CommandError if there is no cluster, or no database can be reached."""
        seen = self._found()
        looks = [_look(store) for store in seen.stores]
        found = cluster_document(
            seen.cluster_id,
            [store.shown for store in seen.stores],
            [sight for sight, _ in looks],
            [problem for _, problem in looks],
        )
        shown: Document = msgspec.to_builtins(found)
        return shown

    def close(self) -> None:
        seen, self._seen = self._seen, None
        for store in seen.stores if seen is not None else ():
            if store.lookout is not None:
                store.lookout.close()

    def _found(self) -> SeenStores:
        if self._seen is None or any(store.problem for store in self._seen.stores):
            self.close()
            try:
                self._seen = seen_cluster(self._urls, _NAME)
            except StoreError as error:
                raise CommandError(str(error)) from error
        return self._seen


def _look(store: SeenStore) -> tuple[Sight | None, str]:
    if store.lookout is None:
        return None, store.problem
    try:
        return store.lookout.look(), ""
    except StoreError as error:
        return None, str(error)
