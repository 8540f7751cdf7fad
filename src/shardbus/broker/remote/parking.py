"""Commands that were certainly not done, kept for a while and sent again.

A slot moves from one broker to another within seconds. What its gateway cannot send meanwhile, or
what the broker refused without having done anything, waits here, in the order in which it came.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shardbus.broker.fragment.answers import Answer, ReplyTo, say
from shardbus.broker.fragment.runner import AVAILABLE
from shardbus.core.errors import NOT_SERVED_TEXT, Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.messages.command import RELEASE, Cancel, Receive, Renew, Send, Settle
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.placement import key_of
from shardbus.core.sessions.command import GetState, RenewSession, SetState
from shardbus.core.transactions.command import Decide, Prepare, Transact
from shardbus.stores.base.store import FragmentId

if TYPE_CHECKING:
    from shardbus.broker.remote.broker import RemoteBroker
    from shardbus.broker.remote.fragment import RemoteFragment

# In ticks of `RemoteBroker`: ten seconds.
PARKED_TICKS_MAX: Final = 40
PARKED_MAX: Final = 50_000
PARKED_BYTES_MAX: Final = 64 * 1024 * 1024
# What a command takes in memory beside its payloads, about.
COMMAND_BYTES: Final = 512


@final
class ParkingLot:
    """How much is parked for all slots of a gateway together."""

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        # Ever since the start: what was parked, and what was given up at the end.
        self.parked_total = 0
        self.given_up_total = 0

    def has_room(self, size_bytes: int) -> bool:
        return self.count < PARKED_MAX and self.size_bytes + size_bytes <= PARKED_BYTES_MAX


@final
class _Patient:
    """One command that may be sent several times, and is done once."""

    def __init__(
        self, parking: Parking, fragment: RemoteFragment, command: Command, reply_to: ReplyTo
    ) -> None:
        self.fragment = fragment
        self.command = command
        self.reply_to = reply_to
        self.size_bytes = _size_of(command)
        self.number = 0
        self.until_tick = 0
        self.failure: Unavailable | None = None
        self._parking = parking

    def answered(self, answer: Answer) -> None:
        if isinstance(answer, Unavailable) and not answer.is_unknown:
            self._parking.refused(self, answer)
        else:
            self._parking.finished(self.fragment.fragment_id)
            self._parking.tell(self, answer)


@final
class _Held:
    """A receive that is not sent yet."""

    def __init__(self, fragment: RemoteFragment, command: Receive, reply_to: ReplyTo) -> None:
        self.fragment = fragment
        self.command = command
        self.reply_to = reply_to


@final
class Parking:
    """What waits for the broker of one slot."""

    def __init__(self, broker: RemoteBroker, lot: ParkingLot) -> None:
        self._broker = broker
        self._lot = lot
        self._last_number = 0
        self._waiting: dict[FragmentId, list[_Patient]] = {}
        # Commands under way by fragment: those that came back may be behind those that did not yet.
        self._sent: dict[FragmentId, int] = {}
        # Releases that were not answered, parked or under way, by fragment, and the receives behind
        # them: one that overtakes a release hands out a later message first.
        self._releases: dict[FragmentId, int] = {}
        self._held: dict[FragmentId, list[_Held]] = {}

    def receive(self, fragment: RemoteFragment, command: Receive, reply_to: ReplyTo) -> None:
        """Send a receive, after the releases before it are done."""
        if fragment.fragment_id in self._releases:
            held = self._held.setdefault(fragment.fragment_id, [])
            held.append(_Held(fragment, command, reply_to))
        else:
            self._broker.submit_now(fragment, command, reply_to)

    def tell(self, patient: _Patient, answer: Answer) -> None:
        """The last word about a command."""
        say(patient.reply_to, answer)
        if _is_release(patient.command):
            fragment_id = patient.fragment.fragment_id
            left = self._releases.get(fragment_id, 0) - 1
            if left > 0:
                self._releases[fragment_id] = left
                return
            self._releases.pop(fragment_id, None)
            for each in self._held.pop(fragment_id, []):
                self.receive(each.fragment, each.command, each.reply_to)

    def submit(self, fragment: RemoteFragment, command: Command, reply_to: ReplyTo) -> None:
        patient = _Patient(self, fragment, command, reply_to)
        self._last_number += 1
        patient.number = self._last_number
        patient.until_tick = self._broker.ticks + PARKED_TICKS_MAX
        if _is_release(command):
            releases = self._releases.get(fragment.fragment_id, 0)
            self._releases[fragment.fragment_id] = releases + 1
        if fragment.fragment_id in self._waiting:
            self._park(patient, self._broker.out_of_reach())
        else:
            self._send(patient)

    def refused(self, patient: _Patient, answer: Unavailable) -> None:
        """A command was certainly not done."""
        fragment = patient.fragment
        self.finished(fragment.fragment_id)
        is_moving = not self._broker.is_up or answer.message == NOT_SERVED_TEXT
        if is_moving or fragment.told_state != AVAILABLE:
            self._park(patient, answer)
        else:
            self.tell(patient, answer)

    def finished(self, fragment_id: FragmentId) -> None:
        left = self._sent.get(fragment_id, 0) - 1
        if left > 0:
            self._sent[fragment_id] = left
        else:
            self._sent.pop(fragment_id, None)

    def look(self) -> None:
        """Send again what can be sent, and give up what has waited too long; for each tick."""
        for fragment_id in list(self._waiting):
            waiting = self._waiting[fragment_id]
            self._give_up_overdue(waiting)
            if not waiting:
                del self._waiting[fragment_id]
            elif self._broker.is_up and fragment_id not in self._sent:
                # Not before all that was sent before has come back: the order is kept.
                del self._waiting[fragment_id]
                waiting.sort(key=_number_of)
                for patient in waiting:
                    self._unpark(patient)
                    self._send(patient)

    def close(self) -> None:
        """Nothing is sent any more."""
        waiting, self._waiting = self._waiting, {}
        for patients in waiting.values():
            for patient in patients:
                self._fail(patient)

    def _send(self, patient: _Patient) -> None:
        fragment_id = patient.fragment.fragment_id
        self._sent[fragment_id] = self._sent.get(fragment_id, 0) + 1
        self._broker.submit_now(patient.fragment, patient.command, patient.answered)

    def _park(self, patient: _Patient, answer: Unavailable) -> None:
        patient.failure = answer
        is_overdue = self._broker.ticks >= patient.until_tick
        if is_overdue or not self._lot.has_room(patient.size_bytes):
            self._lot.given_up_total += 1
            self.tell(patient, answer)
            return
        self._lot.count += 1
        self._lot.parked_total += 1
        self._lot.size_bytes += patient.size_bytes
        self._waiting.setdefault(patient.fragment.fragment_id, []).append(patient)

    def _unpark(self, patient: _Patient) -> None:
        self._lot.count -= 1
        self._lot.size_bytes -= patient.size_bytes

    def _give_up_overdue(self, waiting: list[_Patient]) -> None:
        overdue = [each for each in waiting if each.until_tick <= self._broker.ticks]
        for patient in overdue:
            waiting.remove(patient)
            self._fail(patient)

    def _fail(self, patient: _Patient) -> None:
        self._unpark(patient)
        self._lot.given_up_total += 1
        failure = patient.failure
        self.tell(patient, self._broker.out_of_reach() if failure is None else failure)


def is_patient(command: Command, entity: Entity | None) -> bool:
    """Whether a client waits for this very fragment, and nobody else asks again in its place."""
    if isinstance(command, Send):
        if entity is None or entity.fragment_count() == 1 or not command.messages:
            return True
        # A message without a key goes elsewhere instead.
        return key_of(command.messages[0], entity.spec.requires_duplicate_detection) is not None
    return isinstance(
        command,
        Settle | Renew | Cancel | RenewSession | SetState | GetState | Transact | Prepare | Decide,
    )


def _is_release(command: Command) -> bool:
    return isinstance(command, Settle) and command.how == RELEASE


def _size_of(command: Command) -> int:
    if isinstance(command, Send):
        return COMMAND_BYTES + sum([len(message.payload) for message in command.messages])
    return COMMAND_BYTES


def _number_of(patient: _Patient) -> int:
    return patient.number
