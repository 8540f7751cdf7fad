"""The catalogue of a data directory, opened or made with the id of its namespace."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from shardbus.stores.catalogue import SqliteCatalogue
from shardbus.stores.membership import CATALOGUE, id_for_catalogue, refuse_other_builds

NAMESPACE_ID_BYTES: Final = 16


def open_catalogue(data_dir: Path, now_ms: int, reserve_bytes: int) -> SqliteCatalogue:
    """The catalogue; a new one only where no store holds anything, StoreError otherwise."""
    path = data_dir / CATALOGUE
    refuse_other_builds(data_dir)
    namespace_id = id_for_catalogue(path, new_id=new_namespace_id())
    return SqliteCatalogue(
        path, now_ms=now_ms, namespace_id=namespace_id, reserve_bytes=reserve_bytes
    )


def check_catalogue_is_there(data_dir: Path) -> None:
    """StoreError when a broker could not open the catalogue because it is lost."""
    refuse_other_builds(data_dir)
    id_for_catalogue(data_dir / CATALOGUE, new_id="")


def new_namespace_id() -> str:
    return secrets.token_hex(NAMESPACE_ID_BYTES)
