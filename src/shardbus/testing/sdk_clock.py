"""The clock of the Python SDK, which follows the time of a bus that a test moves.

The SDK compares "locked until", which the bus says, with its own clock: to renew locks, and to
refuse to settle what it believes lost. Its tokens stay on the real clock: the bus judges them by
both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Final, final

_PACKAGE: Final = "azure.servicebus"
_HOME: Final = "azure.servicebus._common.utils"
_NAME: Final = "utc_now"

Now = Callable[[], datetime]


@final
class SdkClock:
    """Replaces the SDK's `utc_now`, if the SDK is loaded, until `restore`."""

    def __init__(self) -> None:
        self._replaced: list[tuple[ModuleType, Now]] = []
        self._ahead = timedelta()
        self._frozen: datetime | None = None

    def follow(self, now: datetime, *, is_frozen: bool) -> None:
        """The bus has this time now."""
        self._ahead = now - datetime.now(UTC)
        self._frozen = now if is_frozen else None
        self._replace()

    def restore(self) -> None:
        for module, original in self._replaced:
            setattr(module, _NAME, original)
        self._replaced = []

    def _now(self) -> datetime:
        return self._frozen or datetime.now(UTC) + self._ahead

    def _replace(self) -> None:
        home = sys.modules.get(_HOME)
        if not hasattr(home, _NAME) or self._replaced:
            return
        original: Now = getattr(home, _NAME)
        for name, module in list(sys.modules.items()):
            if name.startswith(_PACKAGE) and getattr(module, _NAME, None) is original:
                self._replaced.append((module, original))
                setattr(module, _NAME, self._now)
