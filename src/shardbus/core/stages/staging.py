"""The commands about stages, and how a transaction publishes them (docs/adr/0024-stages.md).

What is staged is stored and counts towards the size of the fragment, but it is not a message yet:
it has no number and no enqueue time, and it cannot be received, peeked or expire. Publishing sends
it as if a client had sent it at that moment. A stage ends when it is published or dropped, or when
its lifetime is over. While it is promised to a transaction or being published, only that ends it.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    SERVER_BUSY,
    STAGE_LOST,
    TOO_LARGE,
    Refused,
)
from shardbus.core.fragment.change import StagePut
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.entrance import Entrance
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.need import Need, NeedStages
from shardbus.core.fragment.supply import Supply
from shardbus.core.limits import (
    BATCH_MAX,
    BITE_PIECES_MAX,
    STAGE_MS_MAX,
    STAGE_MS_MIN,
    STAGE_NAME_BYTES_MAX,
    STAGE_PIECE_BYTES_MAX,
)
from shardbus.core.message import NEVER_MS, Message, sooner
from shardbus.core.messages.command import Done
from shardbus.core.runs import runs_of
from shardbus.core.stages.bites import Bites
from shardbus.core.stages.command import (
    AboutStages,
    AskProducers,
    AskStages,
    CheckStages,
    DropStages,
    ForgetProducer,
    ProlongStages,
    PublishOn,
    Stage,
    StageReply,
    StagesChecked,
    StageShare,
    StagesHeld,
)
from shardbus.core.stages.open import OpenStages
from shardbus.core.stages.producers import KnownProducers
from shardbus.core.stages.record import (
    Amount,
    OpenStage,
    ReadStage,
    packed_piece,
    plain_piece,
    stage_change,
)
from shardbus.core.transactions.command import Work

# A name with this end means all stages whose names begin with it.
GROUP_END: Final = b"/"


@final
class Staging(Handler):
    """Decides about the stages and the producers of one fragment."""

    def __init__(
        self,
        fragment_number: int,
        ledger: Ledger,
        entrance: Entrance,
        supply: Supply,
        records: dict[tuple[int, bytes], bytes],
    ) -> None:
        self._fragment_number = fragment_number
        self._ledger = ledger
        self._entrance = entrance
        self._supply = supply
        self._open = OpenStages(ledger, records)
        self._stages = self._open.named
        self._bites = Bites(ledger, entrance, self._open, records)
        self.producers = KnownProducers(fragment_number, ledger, records)
        # When to look for stages that are over; this may be too early, never too late.
        self._deadline_ms = NEVER_MS
        for stage in self._stages.values():
            # A stage that was loaded has its whole lifetime again.
            stage.deadline_ms = ledger.steady_ms + stage.lifetime_ms
            self._note_deadline(stage)

    def need(self, command: Command, now_ms: int) -> Need | None:
        if isinstance(command, (CheckStages, PublishOn)):
            return self._supply.need_stages(self.need_on(command))
        return None

    def decide(self, command: Command, now_ms: int) -> Done | StageReply:
        assert isinstance(command, AboutStages)
        if isinstance(command, CheckStages):
            return self._check_pieces(command, self._supply.stages, self.need_on(command))
        if isinstance(command, PublishOn):
            self._bites.go_on(self._supply.stages, now_ms)
            return Done()
        return self._decide(command)

    def _decide(self, command: AboutStages) -> Done | StageReply:
        if isinstance(command, Stage):
            return self._stage(command)
        if isinstance(command, DropStages):
            for stage in self._named(command.stages):
                if not stage.is_promised:
                    self._open.drop(stage)
            return Done()
        if isinstance(command, ProlongStages):
            for stage in self._named(command.stages):
                # Nothing to store: a stage that is loaded has its whole lifetime again.
                stage.deadline_ms = self._ledger.steady_ms + stage.lifetime_ms
            return Done()
        if isinstance(command, AskStages):
            found = [self._stages.get(name) for name in dict.fromkeys(command.stages)]
            known = [stage for stage in found if stage is not None]
            names = [stage.name for stage in known]
            return StagesHeld(
                [stage.held() for stage in known],
                self._open.left_bytes(command.batch_key),
                self._to_check_bytes(names),
                takes_bites=self._ledger.rules.is_topic or not self._bites.is_whole(names),
            )
        if isinstance(command, AskProducers):
            return self.producers.found(command.name)
        assert isinstance(command, ForgetProducer)
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
        """End the stages whose lifetime is over, except those that are being published."""
        self.producers.end_overdue()
        steady_ms = self._ledger.steady_ms
        if self._deadline_ms == NEVER_MS or self._deadline_ms > steady_ms:
            return
        self._deadline_ms = NEVER_MS
        for stage in list(self._stages.values()):
            if stage.is_promised:
                continue
            if stage.deadline_ms <= steady_ms:
                self._open.drop(stage)
            else:
                self._note_deadline(stage)

    # Staging.

    def _stage(self, command: Stage) -> Done:
        _check_stage(command)
        stage = self._stages.get(command.stage)
        if stage is not None and stage.pieces.contains(command.piece):
            return Done()
        is_promised = stage is not None and stage.is_promised
        if is_promised or self._bites.has_taken(command.stage):
            raise Refused(
                NOT_ALLOWED,
                f"Stage {_said(command.stage)} is being published: use another stage for more "
                "messages.",
            )
        self._entrance.check_kind(command.messages)
        self._entrance.check_past(command.messages)
        put = self._put(command)
        size_bytes = len(put.data) + sum([len(payload) for payload in put.payloads])
        if size_bytes > STAGE_PIECE_BYTES_MAX and len(command.messages) > 1:
            raise Refused(
                TOO_LARGE,
                f"A piece of a stage may have at most {STAGE_PIECE_BYTES_MAX} bytes, not "
                f"{size_bytes}: stage fewer messages at once.",
            )
        amount = Amount()
        amount.add(len(command.messages), size_bytes, is_packed=not put.payloads)
        self._check_room(stage)
        if stage is None:
            stage = OpenStage(command.stage)
        self._open.add(stage, command.piece, amount)
        if put.payloads:
            stage.fresh.include(runs_of([command.piece]))
        stage.lifetime_ms = max(stage.lifetime_ms, command.lifetime_ms)
        deadline_ms = self._ledger.steady_ms + command.lifetime_ms
        stage.deadline_ms = max(stage.deadline_ms, deadline_ms)
        self._note_deadline(stage)
        self._ledger.changes.append(put)
        self._ledger.changes.append(stage_change(stage))
        return Done()

    def _put(self, command: Stage) -> StagePut:
        """Plain messages with their payloads beside the piece, others packed."""
        messages = command.messages
        if not self._entrance.takes_plain(messages):
            return StagePut(command.stage, command.piece, packed_piece(messages))
        payloads = [message.payload for message in messages]
        return StagePut(command.stage, command.piece, plain_piece(messages), payloads)

    def _check_room(self, stage: OpenStage | None) -> None:
        if stage is None and len(self._stages) >= self._ledger.bounds.stages_max:
            raise Refused(
                SERVER_BUSY,
                f"Fragment {self._fragment_number} has {len(self._stages)} stages, its "
                "maximum: publish or discard some of them first.",
            )
        if stage is not None and stage.pieces.count >= self._ledger.bounds.stage_pieces_max:
            raise Refused(
                TOO_LARGE,
                f"Stage {_said(stage.name)} has {stage.pieces.count} pieces in fragment "
                f"{self._fragment_number}, its maximum: stage more messages at once, or use "
                "smaller batches.",
            )

    def _note_deadline(self, stage: OpenStage) -> None:
        if self._deadline_ms == NEVER_MS or stage.deadline_ms < self._deadline_ms:
            self._deadline_ms = stage.deadline_ms

    # Publishing, as a part of a transaction.

    def need_of(self, work: Work, *, is_promise: bool) -> NeedStages | None:
        """What must be read before work is checked; None also when the work is refused without a
        read.

        What is only promised now is read again when it is sent. Stages that are too large to be
        checked now were checked before.
        """
        if not work.stages:
            return None
        names = [name for name, _ in work.stages]
        try:
            self._check_known(work.stages)
            self.producers.check_new(work.publication)
            is_checked = self._is_checked(names)
        except Refused:
            return None
        if is_checked and is_promise:
            return None
        if is_checked:
            return self._bites.need(names)
        has_ids = self._ledger.rules.duplicate_window_ms > 0
        is_unpacked = has_ids or not is_promise
        stages = [self._stages[name] for name in names]
        pieces = [stage.pieces.numbers() for stage in stages]
        is_checked = any(stage.has_stale(stage.pieces) for stage in stages)
        return NeedStages(names, pieces, is_unpacked=is_unpacked, is_checked=is_checked)

    def need_to_finish(self, shares: list[StageShare]) -> NeedStages | None:
        """What must be read before promised stages are published."""
        return self._bites.need([name for name, _ in shares])

    def need_on(self, command: CheckStages | PublishOn) -> NeedStages | None:
        """What must be read before more is checked or sent."""
        if isinstance(command, PublishOn):
            return self._bites.need_on()
        names: list[bytes] = []
        pieces: list[list[int]] = []
        room_bytes, room = self._ledger.bounds.checked_bytes_max, BITE_PIECES_MAX
        is_checked = False
        for stage in self._named(command.stages):
            if room_bytes <= 0 or room <= 0:
                break
            rest = stage.pieces.copy()
            rest.exclude(stage.whole)
            if rest.count == 0:
                continue
            each_bytes = stage.amount.size_bytes // stage.pieces.count + 1
            numbers = rest.after(0, min(room, room_bytes // each_bytes + 1))
            names.append(stage.name)
            pieces.append(numbers)
            is_checked = is_checked or stage.has_stale(runs_of(numbers))
            room -= len(numbers)
            room_bytes -= len(numbers) * each_bytes
        if not names:
            return None
        return NeedStages(names, pieces, is_unpacked=False, is_checked=is_checked)

    def _check_pieces(
        self, command: CheckStages, read: dict[bytes, ReadStage], need: NeedStages | None
    ) -> StagesChecked:
        for name, numbers in [] if need is None else zip(need.stages, need.pieces, strict=True):
            if read[name].damaged:
                raise self._damaged(name)
            self._stages[name].whole.include(runs_of(numbers))
        return StagesChecked(self._unchecked_bytes(self._named(command.stages)))

    def _unchecked_bytes(self, stages: list[OpenStage]) -> int:
        size_bytes = 0
        for stage in stages:
            rest = stage.pieces.count - stage.whole.count
            if rest > 0:
                size_bytes += stage.amount.size_bytes * rest // stage.pieces.count + 1
        return size_bytes

    def _is_checked(self, names: list[bytes]) -> bool:
        """Whether all pieces were checked before. Refused when they were not, and are too many to
        be checked now.
        """
        if self._unchecked_bytes([self._stages[name] for name in names]) == 0:
            return True
        left_bytes = self._to_check_bytes(names)
        if left_bytes == 0:
            return False
        raise Refused(
            SERVER_BUSY,
            f"{left_bytes} bytes of the stages in fragment {self._fragment_number} must be "
            "checked before they are published: try again.",
        )

    def _to_check_bytes(self, names: list[bytes]) -> int:
        """How many bytes must be checked before these stages are promised; 0 if the promise itself
        can check them.
        """
        bytes_max = self._ledger.bounds.checked_bytes_max
        if self._open.amount_of(names).size_bytes <= bytes_max and self._bites.is_whole(names):
            return 0
        return self._unchecked_bytes([self._stages[name] for name in names])

    def check(self, work: Work, read: dict[bytes, ReadStage], now_ms: int) -> None:
        """Refused when these stages cannot be published now, or the batch was published before."""
        self._entrance.seal.check()
        self.producers.check(work.publication, now_ms)
        self._check_known(work.stages)
        names = [name for name, _ in work.stages]
        if self._is_checked(names):
            self._entrance.check_id_count(self._open.amount_of(names).packed_count)
            return
        messages: list[Message] = []
        for name in names:
            if read[name].damaged:
                raise self._damaged(name)
            messages += read[name].messages()
        if messages:
            self._entrance.check_ids(messages)

    def _damaged(self, name: bytes) -> Refused:
        return Refused(
            STAGE_LOST,
            f"Stage {_said(name)} is damaged in fragment {self._fragment_number} and "
            "cannot be published: discard it, and stage its messages again.",
        )

    def promise(self, shares: list[StageShare], batch_key: bytes) -> None:
        """From now on only the transaction that these stages are promised to can end them."""
        for name, _ in shares:
            stage = self._stages.get(name)
            if stage is not None:
                self._open.promise(stage, batch_key)

    def let_go(self, shares: list[StageShare]) -> None:
        """The transaction was rolled back: the lifetimes of the stages run again."""
        for name, _ in shares:
            stage = self._stages.get(name)
            if stage is not None:
                self._open.let_go(stage)
                self._note_deadline(stage)

    def publish(
        self,
        shares: list[StageShare],
        batch_key: bytes,
        read: dict[bytes, ReadStage],
        now_ms: int,
    ) -> None:
        """The publication is decided: send everything undamaged in these stages and end them, now
        or in bites.

        What was damaged after the promise is lost, as a damaged message is.
        """
        self._bites.begin([name for name, _ in shares], batch_key, read, now_ms)

    def stage_count(self) -> int:
        """How many stages are not published yet."""
        return len(self._stages)

    @property
    def is_under_way(self) -> bool:
        """Whether a publication is unfinished, and `PublishOn` is to send the next bite."""
        return self._bites.is_under_way and not self._bites.is_biting

    @property
    def is_publishing(self) -> bool:
        """Whether the bite that was begun has more to send."""
        return self._bites.is_biting

    def publish_on(self, count_max: int) -> None:
        """Send up to `count_max` more messages of the bite; 0 ends it."""
        if count_max > 0:
            self._bites.send(min(count_max, self._ledger.bounds.admitted_max))
        else:
            self._bites.end()

    def _check_known(self, shares: list[StageShare]) -> None:
        for name, expected in shares:
            stage = self._stages.get(name)
            found = 0 if stage is None else stage.amount.count
            if stage is None or found != expected:
                raise Refused(
                    STAGE_LOST,
                    f"Stage {_said(name)} has {found} messages in fragment "
                    f"{self._fragment_number}, not {expected}: its lifetime ended, it was "
                    "published or discarded, or messages were added to it. Stage the "
                    "messages again.",
                )
            if stage.is_promised:
                raise Refused(
                    SERVER_BUSY,
                    f"Stage {_said(name)} is already being published: try again in a moment.",
                )
        if len({name for name, _ in shares}) < len(shares):
            raise Refused(INVALID_ARGUMENT, "A stage is named twice: name each stage once.")


def _check_stage(command: Stage) -> None:
    is_named = 1 <= len(command.stage) <= STAGE_NAME_BYTES_MAX
    if not is_named or command.stage.endswith(GROUP_END):
        raise Refused(
            INVALID_ARGUMENT,
            f"The name of a stage must have 1 to {STAGE_NAME_BYTES_MAX} bytes and must not "
            f"end in a slash: {_said(command.stage[:STAGE_NAME_BYTES_MAX])} is not valid.",
        )
    if not 1 <= command.piece <= BATCH_MAX or not command.messages:
        raise Refused(
            INVALID_ARGUMENT,
            "A piece of a stage must have a number of 1 or more, and at least one message.",
        )
    if not STAGE_MS_MIN <= command.lifetime_ms <= STAGE_MS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The lifetime of a stage must be from {STAGE_MS_MIN} to {STAGE_MS_MAX} ms, not "
            f"{command.lifetime_ms}.",
        )


def _said(name: bytes) -> str:
    # Without the scope of a subscription, which ends in a byte that is in no text.
    text = name.rpartition(b"\xff")[2].decode("utf-8", "replace")
    return f"'{text}'"
