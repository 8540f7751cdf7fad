"""Documents that many clients ask for again and again: encoded once, with a tag."""

from __future__ import annotations

import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

ETAG_BYTES: Final = 12
GZIP_LEVEL: Final = 1
SNAPSHOTS_MAX: Final = 128
"""A history of a day has 50 KB, compressed at most half of that."""

Key = tuple[str | int, ...]


@final
class Snapshot:
    """A document as JSON; compressed when that is first asked for."""

    def __init__(self, text: bytes, etag: str) -> None:
        self.text = text
        self.etag = etag
        self._packed: bytes | None = None

    def packed(self) -> bytes:
        if self._packed is None:
            self._packed = gzip.compress(self.text, GZIP_LEVEL, mtime=0)
        return self._packed


def tag_of(text: bytes) -> str:
    """The ETag of a document. It is weak, because compressed bytes have the same."""
    return f'W/"{hashlib.blake2b(text, digest_size=ETAG_BYTES).hexdigest()}"'


@final
class Snapshots:
    """Documents that stay as they are until the next tick; those that were asked for last."""

    def __init__(self, count_max: int = SNAPSHOTS_MAX) -> None:
        self._count_max = count_max
        self._known: OrderedDict[Key, tuple[int, Snapshot]] = OrderedDict()

    def get(self, key: Key, tick: int, write: Callable[[], bytes]) -> Snapshot:
        """The document `key` of this tick, written if nobody has asked for it since."""
        known = self._known.get(key)
        if known is None or known[0] != tick:
            text = write()
            known = self._known[key] = (tick, Snapshot(text, tag_of(text)))
        self._known.move_to_end(key)
        if len(self._known) > self._count_max:
            self._known.popitem(last=False)
        return known[1]
