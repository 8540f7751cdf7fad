"""Surveys the stages: messages that are not published yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.stores.chunked.staged import StagedPiece, unpack_staged
from shardbus.stores.sqlite.examine.finding import Findings, Owner, Sink
from shardbus.stores.sqlite.examine.part_survey import PartSurvey, listed_parts
from shardbus.stores.sqlite.examine.salvage import Row, Salvage, blob, integer

_LOST: Final = "the stage of this piece can no longer be published and must be staged again"
_EVENTS_LOST: Final = "its events are missing from the records of events of the entity"


@final
class StageSurvey:
    """Reads the pieces of stages, and the payloads beside them."""

    def __init__(
        self,
        salvage: Salvage,
        findings: Findings,
        parts: PartSurvey,
        owners: Mapping[int, Owner],
    ) -> None:
        self._salvage = salvage
        self._findings = findings
        self._parts = parts
        self._owners = owners

    def run(self, sink: Sink) -> None:
        for row in self._salvage.rows("stage", "id", "local, stage, piece, data, parts"):
            self._piece(sink, row, listed_parts(row[5]) or [])
        for owner in self._owners.values():
            if owner.open_piece and not owner.is_deleted:
                self._open_piece(sink, owner)

    def _open_piece(self, sink: Sink, owner: Owner) -> None:
        found = unpack_staged(owner.open_piece)
        if found is None or (found.local, found.stage) != (owner.local, LIFECYCLE_STAGE):
            what = f"the open piece of stage {LIFECYCLE_STAGE.hex()} fails its checksum"
            self._findings.add(what, _EVENTS_LOST, owner)
        else:
            self._whole(sink, owner, found, "")

    def _piece(self, sink: Sink, row: Row, listed: list[int]) -> None:
        name, packed = (integer(row[1]), blob(row[2]), integer(row[3])), blob(row[4])
        found = unpack_staged(packed)
        local, stage, piece = name if found is None else found.name()
        what = f"piece {piece} of stage {stage.hex()}"
        # A damaged piece still has its parts; the list beside it names them.
        for part in listed if found is None else found.part_numbers():
            self._parts.use(part)
        owner = self._owners.get(local)
        if owner is None:
            self._findings.add(
                f"{what} belongs to a fragment that is not listed", "the piece is not used"
            )
        elif owner.is_deleted:
            return
        elif found is None:
            lost = _EVENTS_LOST if stage == LIFECYCLE_STAGE else _LOST
            self._findings.add(f"{what} fails its checksum", lost, owner)
        else:
            if name != found.name():
                self._findings.mend(owner, f"{what} differs from its list entry")
            if listed != found.part_numbers():
                self._findings.mend(owner, f"{what} lists other parts than its record")
            self._whole(sink, owner, found, what)

    def _whole(self, sink: Sink, owner: Owner, piece: StagedPiece, what: str) -> None:
        bodies: dict[int, bytes] = {}
        for part in piece.parts:
            body = self._parts.body(part.number)
            if body is None or not part.is_whole(body):
                self._findings.add(f"a payload of {what} fails its checksum", _LOST, owner)
                return
            bodies[part.number] = body
        self._findings.report.pieces += 1
        sink.staged(owner, piece, bodies)
