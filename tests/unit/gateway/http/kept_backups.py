"""Whoever makes backups, for tests of those who ask for them."""

from shardbus.core.errors import NOT_FOUND, Refused
from shardbus.gateway.http.api.operations.backups import Backup


class Kept:
    """An `api_backups.Backups` that makes none."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def all(self) -> list[Backup]:
        return [self.show("nightly")]

    def show(self, name: str) -> Backup:
        if name != "nightly":
            raise Refused(NOT_FOUND, "There is no such backup.")
        return Backup(
            name="nightly",
            state="done",
            error="",
            path="/backups/nightly",
            began_at="2026-01-02T03:04:05.000Z",
            cut_at=None,
            hold_ms=0,
            done_bytes=0,
            size_bytes=0,
            messages=0,
            is_gathered=True,
            files=[],
        )

    async def start(self, name: str) -> Backup:
        self.asked.append(name)
        return self.show("nightly")
