"""The commands about stages, and how a transaction publishes them (docs/adr/0024-stages.md).

What is staged is stored, and counts towards the size of the fragment, but it is no message yet: it
has no number and no time, and nobody receives, peeks or expires it. Publishing sends it, as if that
were done then. A stage ends by that, by being dropped, or when its time is over, unless it is
promised to a transaction: then only that one ends it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from shardbus.core.change import RecordChange, StageDrop, StagePut
from shardbus.core.command import (
    AboutStages,
    AskProducers,
    AskStages,
    Command,
    Done,
    DropStages,
    ProlongStages,
    Stage,
    StageReply,
    StageShare,
    StagesHeld,
    Work,
)
from shardbus.core.entrance import Entrance
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    SERVER_BUSY,
    STAGE_LOST,
    TOO_LARGE,
    Refused,
)
from shardbus.core.family import Handler
from shardbus.core.ledger import Ledger
from shardbus.core.limits import (
    BATCH_MAX,
    PACKED_COUNT_MAX,
    STAGE_MS_MAX,
    STAGE_MS_MIN,
    STAGE_NAME_BYTES_MAX,
    STAGE_PIECE_BYTES_MAX,
    STAGED_COUNT_MAX,
)
from shardbus.core.message import NEVER_MS, Message, sooner
from shardbus.core.need import NeedStages
from shardbus.core.producers import KnownProducers
from shardbus.core.records import STAGE
from shardbus.core.runs import runs_of
from shardbus.core.stages import (
    Amount,
    OpenStage,
    ReadPiece,
    ReadStage,
    packed_piece,
    plain_piece,
    stage_change,
    unpack_stage,
)

# What ends in it names all stages that begin so.
GROUP_END: Final = b"/"


@final
class Staging(Handler):
    """Decides about the stages and the producers of one fragment."""

    def __init__(
        self,
        fragment_number: int,
        ledger: Ledger,
        entrance: Entrance,
        records: dict[tuple[int, bytes], bytes],
    ) -> None:
        self._fragment_number = fragment_number
        self._ledger = ledger
        self._entrance = entrance
        self._stages: dict[bytes, OpenStage] = {}
        self.producers = KnownProducers(fragment_number, ledger, records)
        # What a publication that is decided has still to send: pieces in their order, None after
        # the last of a stage; of the first of them so many messages are sent.
        self._rest: deque[tuple[OpenStage, int, ReadPiece | None]] = deque()
        self._rest_offset = 0
        self._rest_at_ms = NEVER_MS
        # When to look for stages that are over; it may be too early, never too late.
        self._deadline_ms = NEVER_MS
        for (kind, key), data in records.items():
            if kind == STAGE:
                self._add(unpack_stage(key, data))

    def decide(self, command: Command, now_ms: int) -> Done | StageReply:
        assert isinstance(command, AboutStages)
        if isinstance(command, Stage):
            return self._stage(command)
        if isinstance(command, DropStages):
            for stage in self._named(command.stages):
                if not stage.is_promised:
                    self._drop(stage)
            return Done()
        if isinstance(command, ProlongStages):
            for stage in self._named(command.stages):
                # Nothing to store: what is loaded has its whole time again.
                stage.deadline_ms = self._ledger.steady_ms + stage.lifetime_ms
            return Done()
        if isinstance(command, AskStages):
            found = [self._stages.get(name) for name in dict.fromkeys(command.stages)]
            return StagesHeld([stage.held() for stage in found if stage is not None])
        if isinstance(command, AskProducers):
            return self.producers.found(command.name)
        self.producers.forget(command.name)
        return Done()

    def _named(self, names: list[bytes]) -> list[OpenStage]:
        found: dict[bytes, OpenStage] = {}
        for name in names:
            if name.endswith(GROUP_END):
                for stage in self._stages.values():
                    if stage.name.startswith(name):
                        found[stage.name] = stage
            elif name in self._stages:
                found[name] = self._stages[name]
        return list(found.values())

    @property
    def deadline_ms(self) -> int:
        """When to look for stages and producers that are over."""
        return sooner(self._deadline_ms, self.producers.deadline_ms)

    def end_overdue(self) -> None:
        """Stages whose time is over go, unless somebody is publishing them."""
        self.producers.end_overdue()
        steady_ms = self._ledger.steady_ms
        if self._deadline_ms == NEVER_MS or self._deadline_ms > steady_ms:
            return
        self._deadline_ms = NEVER_MS
        for stage in list(self._stages.values()):
            if stage.is_promised:
                continue
            if stage.deadline_ms <= steady_ms:
                self._drop(stage)
            else:
                self._note_deadline(stage)

    # Staging.

    def _stage(self, command: Stage) -> Done:
        _check_stage(command)
        stage = self._stages.get(command.stage)
        if stage is not None and stage.pieces.contains(command.piece):
            return Done()
        if stage is not None and stage.is_promised:
            raise Refused(
                NOT_ALLOWED,
                f"Stage {_said(command.stage)} is being published: nothing can be added to it.",
            )
        self._entrance.check_kind(command.messages)
        put = self._put(command)
        size_bytes = len(put.data) + sum([len(payload) for payload in put.payloads])
        if size_bytes > STAGE_PIECE_BYTES_MAX and len(command.messages) > 1:
            raise Refused(
                TOO_LARGE,
                f"A piece of a stage has at most {STAGE_PIECE_BYTES_MAX} bytes, not {size_bytes}: "
                "stage fewer messages at once.",
            )
        amount = Amount()
        amount.add(len(command.messages), size_bytes, is_packed=not put.payloads)
        self._check_room(stage, amount)
        if stage is None:
            stage = OpenStage(command.stage)
            self._stages[stage.name] = stage
        stage.pieces.include(runs_of([command.piece]))
        stage.amount.include(amount)
        stage.lifetime_ms = max(stage.lifetime_ms, command.lifetime_ms)
        deadline_ms = self._ledger.steady_ms + command.lifetime_ms
        stage.deadline_ms = max(stage.deadline_ms, deadline_ms)
        self._ledger.staged_bytes += size_bytes
        self._note_deadline(stage)
        self._ledger.changes.append(put)
        self._ledger.changes.append(stage_change(stage))
        return Done()

    def _put(self, command: Stage) -> StagePut:
        """Plain messages with their payloads apart, others packed."""
        messages = command.messages
        if not self._entrance.takes_plain(messages):
            return StagePut(command.stage, command.piece, packed_piece(messages))
        payloads = [message.payload for message in messages]
        return StagePut(command.stage, command.piece, plain_piece(messages), payloads)

    def _check_room(self, stage: OpenStage | None, more: Amount) -> None:
        if stage is None:
            if len(self._stages) >= self._ledger.bounds.stages_max:
                raise Refused(
                    SERVER_BUSY,
                    f"Fragment {self._fragment_number} has {len(self._stages)} stages, which is "
                    "the most it takes: publish or discard some first.",
                )
            self._check_amount(more)
            return
        if stage.pieces.count >= self._ledger.bounds.stage_pieces_max:
            raise Refused(
                TOO_LARGE,
                f"Stage {_said(stage.name)} has {stage.pieces.count} pieces in fragment "
                f"{self._fragment_number}, which is the most it may have: stage more messages at "
                "once, or use smaller batches.",
            )
        total = Amount()
        total.include(stage.amount)
        total.include(more)
        self._check_amount(total)

    def _check_amount(self, amount: Amount) -> None:
        bounds = self._ledger.bounds
        self._check_most(amount.count, amount.size_bytes, STAGED_COUNT_MAX, bounds.staged_bytes_max)
        self._check_most(
            amount.packed_count, amount.packed_bytes, PACKED_COUNT_MAX, bounds.packed_bytes_max
        )

    def _check_most(self, count: int, size_bytes: int, count_max: int, bytes_max: int) -> None:
        if size_bytes > bytes_max or count > count_max:
            raise Refused(
                TOO_LARGE,
                f"{count} staged messages of {size_bytes} bytes are more than fragment "
                f"{self._fragment_number} publishes at once ({count_max} messages, "
                f"{bytes_max} bytes): use smaller batches, or an entity with more fragments.",
            )

    def _add(self, stage: OpenStage) -> None:
        stage.deadline_ms = self._ledger.steady_ms + stage.lifetime_ms
        self._stages[stage.name] = stage
        self._ledger.staged_bytes += stage.amount.size_bytes
        self._note_deadline(stage)

    def _drop(self, stage: OpenStage) -> None:
        del self._stages[stage.name]
        self._ledger.staged_bytes -= stage.amount.size_bytes
        self._ledger.changes.append(StageDrop(stage.name))
        self._ledger.changes.append(RecordChange(STAGE, stage.name, None))

    def _note_deadline(self, stage: OpenStage) -> None:
        if self._deadline_ms == NEVER_MS or stage.deadline_ms < self._deadline_ms:
            self._deadline_ms = stage.deadline_ms

    # Publishing, as a part of a transaction.

    def need_of(self, work: Work, *, is_promise: bool) -> NeedStages | None:
        """What must be read before work is checked; None also when it is refused unread.

        What is only promised now is sent later, and then read again.
        """
        if not work.stages:
            return None
        try:
            self._check_known(work.stages)
            self.producers.check_new(work.publication)
        except Refused:
            return None
        has_ids = self._ledger.rules.duplicate_window_ms > 0
        is_unpacked = has_ids or not is_promise
        return self._need_of(work.stages, is_unpacked=is_unpacked, is_checked=True)

    def need_to_finish(self, shares: list[StageShare]) -> NeedStages | None:
        """What must be read before that which is promised is published.

        Payloads that were whole then are not looked at again: should one be damaged now, it is
        found as that of any message is.
        """
        return self._need_of(shares, is_unpacked=True, is_checked=False)

    def _need_of(
        self, shares: list[StageShare], *, is_unpacked: bool, is_checked: bool
    ) -> NeedStages | None:
        known = [self._stages[name] for name, _ in shares if name in self._stages]
        if not known:
            return None
        return NeedStages(
            [stage.name for stage in known],
            [stage.pieces.numbers() for stage in known],
            is_unpacked=is_unpacked,
            is_checked=is_checked,
        )

    def check(self, work: Work, read: dict[bytes, ReadStage], now_ms: int) -> None:
        """Refused when these stages cannot be published now, or the batch was before."""
        self.producers.check(work.publication, now_ms)
        self._check_known(work.stages)
        messages: list[Message] = []
        for name, _ in work.stages:
            found = read[name]
            if found.damaged:
                raise Refused(
                    STAGE_LOST,
                    f"Stage {_said(name)} is damaged in fragment {self._fragment_number} and "
                    "cannot be published: discard it, and stage its messages again.",
                )
            messages += found.messages()
        if messages:
            self._entrance.check_ids(messages)

    def promise(self, shares: list[StageShare]) -> None:
        """Only the transaction that these are promised to may end them."""
        for name, _ in shares:
            stage = self._stages.get(name)
            if stage is not None:
                stage.is_promised = True

    def let_go(self, shares: list[StageShare]) -> None:
        """The transaction was rolled back: time goes on."""
        for name, _ in shares:
            stage = self._stages.get(name)
            if stage is not None:
                stage.is_promised = False
                self._note_deadline(stage)

    def publish(self, shares: list[StageShare], read: dict[bytes, ReadStage], now_ms: int) -> None:
        """Send all that is whole of these stages, and end them: what is too much for now by
        `publish_on`, before anything else is decided or stored.

        What was damaged since it was promised is lost, as a message that is damaged is.
        """
        for name, _ in shares:
            stage = self._stages.get(name)
            if stage is None:
                continue
            for number, piece in read[name].pieces.items():
                self._rest.append((stage, number, piece))
            self._rest.append((stage, 0, None))
        self._rest_at_ms = now_ms
        self.publish_on()

    @property
    def is_publishing(self) -> bool:
        """Whether a publication that is decided has more to send."""
        return len(self._rest) > 0

    def publish_on(self) -> None:
        """Send more of it, in the order of the pieces, as if all were sent in the same moment."""
        room = self._ledger.bounds.admitted_max
        while self._rest and room > 0:
            stage, number, piece = self._rest[0]
            if piece is not None and piece.messages:
                first = self._rest_offset
                messages = piece.messages[first : first + room]
                self._entrance.admit(messages, self._rest_at_ms, is_checked=True)
                room -= len(messages)
                self._rest_offset += len(messages)
                if self._rest_offset < len(piece.messages):
                    return
                self._rest_offset = 0
            elif piece is not None:
                self._entrance.adopt(stage.name, number, piece, self._rest_at_ms)
                room -= 1 + len(piece.ttls_ms)
            else:
                self._drop(stage)
            self._rest.popleft()

    def _check_known(self, shares: list[StageShare]) -> None:
        total = Amount()
        for name, expected in shares:
            stage = self._stages.get(name)
            found = 0 if stage is None else stage.amount.count
            if stage is None or found != expected:
                raise Refused(
                    STAGE_LOST,
                    f"Stage {_said(name)} has {found} messages in fragment "
                    f"{self._fragment_number}, not {expected}: its time was over, it was "
                    "published or discarded, or somebody added to it.",
                )
            if stage.is_promised:
                raise Refused(
                    SERVER_BUSY,
                    f"Stage {_said(name)} is being published already: ask again in a moment.",
                )
            total.include(stage.amount)
        if len({name for name, _ in shares}) < len(shares):
            raise Refused(INVALID_ARGUMENT, "A stage is named twice: name each once.")
        self._check_amount(total)


def _check_stage(command: Stage) -> None:
    is_named = 1 <= len(command.stage) <= STAGE_NAME_BYTES_MAX
    if not is_named or command.stage.endswith(GROUP_END):
        raise Refused(
            INVALID_ARGUMENT,
            f"The name of a stage has 1 to {STAGE_NAME_BYTES_MAX} bytes, and does not end in a "
            f"slash; {_said(command.stage[:STAGE_NAME_BYTES_MAX])} is none.",
        )
    if not 1 <= command.piece <= BATCH_MAX or not command.messages:
        raise Refused(
            INVALID_ARGUMENT, "A piece of a stage has a number of 1 or more, and messages."
        )
    if not STAGE_MS_MIN <= command.lifetime_ms <= STAGE_MS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"A stage is kept for {STAGE_MS_MIN} to {STAGE_MS_MAX} ms, not {command.lifetime_ms}.",
        )


def _said(name: bytes) -> str:
    return f"'{name.decode('utf-8', 'replace')}'"
