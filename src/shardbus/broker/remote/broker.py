"""A broker in another process, with the same interface as one in this process."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar, final

from shardbus.broker.fragment.answers import ReplyTo
from shardbus.broker.namespace.host import FragmentStatistics
from shardbus.broker.remote.fragment import RemoteFragment, RemoteWait
from shardbus.broker.remote.host_call import (
    bare_json,
    count_question,
    create_question,
    delete_question,
    doubt_question,
    join_question,
    list_question,
    loss_question,
    read_ids,
    read_joined,
    read_loss,
    read_statistics,
    read_survey,
    survey_question,
    transfer_question,
    update_question,
)
from shardbus.broker.remote.link import BrokerLink, Identity
from shardbus.broker.remote.parking import Parking, ParkingLot, is_patient
from shardbus.broker.remote.topic_call import TopicTeller
from shardbus.broker.routing.dispatch import ignore
from shardbus.broker.survey import Survey
from shardbus.broker.wire.codec import encode
from shardbus.broker.wire.fields import TooNew, WireError
from shardbus.broker.wire.frames import (
    Answered,
    Ask,
    Beat,
    Browse,
    Browsed,
    Fence,
    Fenced,
    Frame,
    Listed,
    ListSessions,
    Open,
    Request,
    State,
    Told,
    Woken,
)
from shardbus.core.errors import NOT_SERVED_TEXT, TOO_LARGE, Refused, Unavailable
from shardbus.core.fragment.command import Command, Configure, SetAside, Tick
from shardbus.core.messages.command import Receive, Received, ReceiveDeferred, ReceiveNumbered
from shardbus.core.namespace.entity import Entity
from shardbus.core.sessions.command import AcceptSession, SessionAccepted
from shardbus.core.stages.command import PublishOn
from shardbus.stores.base.store import FragmentId, Page

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_MS: Final = 250
# A broker beats once per tick, so after three silent ticks it is known to be out within a second.
SILENT_TICKS_MAX: Final = 3
# Its connection is kept much longer: a paused broker continues where it stood.
CUT_TICKS_MAX: Final = 120
GREETING_TICKS_MAX: Final = 20
ANSWER_TICKS_MAX: Final = 120
CONNECT_MS_MAX: Final = 5_000
RETRY_MS_MIN: Final = 50
RETRY_MS_MAX: Final = 1_000
# A broker that gave its slot away closes the connection itself, after its last answers.
FAREWELL_S: Final = 2.0
# What manages entities waits so long for a slot that moves; as long as commands are parked.
PATIENCE_S: Final = 10.0
WAITING_MAX: Final = 50_000
SOON_MAX: Final = 1_000
QUEUED_BYTES_MAX: Final = 128 * 1024 * 1024

Dial = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]
"""Connects a protocol to the broker; OSError when it cannot be reached."""


@final
class RemoteBroker:
    """One broker over one connection, which is made again whenever it breaks.

    Implements `host.FragmentHost`. `run` keeps the connection. When the broker falls silent or the
    connection breaks, a request that was written ends as unknown, one that was not as unavailable.
    """

    def __init__(
        self,
        identity: Identity,
        dial: Dial,
        *,
        loop: asyncio.AbstractEventLoop,
        new_nonce: Callable[[], bytes],
        lot: ParkingLot | None = None,
        shown: str = "",
    ) -> None:
        """With a `lot`, what was certainly not done waits there, and is sent again. `shown` is what
        logs and errors call this broker.
        """
        self.name = identity.broker
        self._shown = shown or f"broker {self.name}"
        self.is_up = False
        self.reason = "it has not been reached yet"
        self.catalogue_version = 0
        self.on_up: Callable[[], None] = _nothing
        self.on_catalogue: Callable[[], None] = _nothing
        self.loop = loop
        self.topics = TopicTeller(identity.broker, self._ask_patiently)
        self._identity = identity
        self._dial = dial
        self._new_nonce = new_nonce
        self._link: BrokerLink | None = None
        self._up = asyncio.Event()
        self._fragments: dict[FragmentId, RemoteFragment] = {}
        self._entities: dict[int, Entity] = {}
        self._waiting: dict[int, RemoteWait] = {}
        # Takes that may still be answered, although nobody waits for them any more.
        self._given_up: dict[int, RemoteWait] = {}
        self._given_up_through = 0
        # Questions whose answers nobody waits for, kept until the broker is back.
        self._soon: list[str] = []
        self._last_id = 0
        self._parking = None if lot is None else Parking(self, lot)
        self.ticks = 0
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        retry_ms = RETRY_MS_MIN
        self._tick()
        try:
            while True:
                was_up = await self._stay_connected()
                retry_ms = RETRY_MS_MIN if was_up else min(2 * retry_ms, RETRY_MS_MAX)
                await asyncio.sleep(retry_ms / 1000)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._link is not None:
                self._link.abort("the gateway is closing")
            self.is_up = False
            self._fall("the gateway is closing")
            if self._parking is not None:
                self._parking.close()

    async def wait_until_up(self, wait_ms: int) -> bool:
        """Whether the broker was reached within this time."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._up.wait()
        except TimeoutError:
            return False
        return True

    @property
    def _sentence(self) -> str:
        """How a sentence about this broker begins."""
        return self._shown[0].upper() + self._shown[1:]

    def problem(self) -> str:
        """Why the broker is out; empty when it is not."""
        return "" if self.is_up else f"{self._shown} is unavailable: {self.reason}"

    def runner(self, entity: Entity, number: int) -> RemoteFragment:
        """A fragment of this broker, opened there when it is first asked for."""
        fragment_id = FragmentId(entity.entity_id, number)
        fragment = self._fragments.get(fragment_id)
        if fragment is None:
            fragment = RemoteFragment(self, fragment_id)
            self._fragments[fragment_id] = fragment
            self._entities[entity.entity_id] = entity
            self.tell(Open(bare_json(entity), [number]))
        return fragment

    def describe(self, entity: Entity) -> None:
        """An entity has a new description: its fragments are opened with it from now on."""
        if entity.entity_id in self._entities:
            self._entities[entity.entity_id] = entity

    def forget(self, entity_id: int) -> None:
        """An entity is gone: its fragments are no longer opened."""
        self._entities.pop(entity_id, None)
        self.topics.forget(entity_id)
        for fragment_id in [one for one in self._fragments if one.entity_id == entity_id]:
            del self._fragments[fragment_id]

    def moved(self, *, was_silent: bool = False) -> None:
        """Another process serves the slot: connect there, after what the former one still says.

        One that was silent has been declared dead. It does not know that, and nothing that it says
        counts: what waits for its answers is asked of the next one now.
        """
        link = self._link
        if link is None:
            return
        if self.is_up and not was_silent:
            self.loop.call_later(FAREWELL_S, link.abort, "another broker serves the slot")
        else:
            link.abort("another broker serves the slot")

    # host.FragmentHost.

    async def join(self, namespace_id: str, *, is_empty_expected: bool) -> int:
        # From now on a broker of another namespace is refused at the greeting.
        self._identity.namespace_id = namespace_id
        link = self._link
        if self.is_up and link is not None and link.namespace_id not in ("", namespace_id):
            link.abort(f"its store belongs to another namespace, {link.namespace_id}")
            raise Unavailable(
                f"Broker {self.name}: its store belongs to the namespace {link.namespace_id}, "
                f"but the catalogue to {namespace_id}."
            )
        question = join_question(namespace_id, is_empty_expected=is_empty_expected)
        return self._read(read_joined, await self.ask(question))[0]

    async def create_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        await self._ask_patiently(create_question(entity, numbers))

    async def update_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        self.describe(entity)
        await self._ask_patiently(update_question(entity, numbers))

    async def update_topic(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        await self.topics.tell(topic, subscriptions, numbers)

    async def delete_fragments(self, entity_id: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._fragments.pop(FragmentId(entity_id, number), None)
        if not any(fragment.entity_id == entity_id for fragment in self._fragments):
            self._entities.pop(entity_id, None)
        await self._ask_patiently(delete_question(entity_id, numbers))

    async def fragment_ids(self, *, is_timed: bool = False) -> list[FragmentId]:
        return self._read(read_ids, await self.ask(list_question(is_timed=is_timed)))

    async def in_doubt(self) -> list[FragmentId]:
        return self._read(read_ids, await self.ask(doubt_question()))

    async def transferring(self) -> list[FragmentId]:
        return self._read(read_ids, await self.ask(transfer_question()))

    async def loss(self) -> str:
        return self._read(read_loss, await self.ask(loss_question()))[0]

    async def statistics(self, entity_id: int, numbers: Sequence[int]) -> list[FragmentStatistics]:
        return self._read(read_statistics, await self.ask(count_question(entity_id, numbers)))

    async def survey(self, since: int) -> Survey:
        [survey] = self._read(
            lambda text: [read_survey(text)], await self.ask(survey_question(since))
        )
        return survey

    async def ask(self, document: str, late: Callable[[str], None] | None = None) -> str:
        """The answer to a question; raises Unavailable, or Refused when the broker refuses.

        `late` is called with an answer that comes after this has failed.
        """
        answer: asyncio.Future[str | Refused | Unavailable] = self.loop.create_future()
        waiting = RemoteWait(None, answer=answer)
        waiting.late = late
        self.start(lambda number: Ask(number, document), waiting)
        result = await answer
        if isinstance(result, str):
            return result
        raise result

    async def _ask_patiently(self, document: str) -> str:
        """Ask a question that may be asked twice; while a slot moves, wait for its next broker."""
        until_s = self.loop.time() + (0 if self._parking is None else PATIENCE_S)
        while True:
            left_ms = int((until_s - self.loop.time()) * 1000)
            if left_ms > 0:
                await self.wait_until_up(left_ms)
            try:
                return await self.ask(document)
            except Unavailable as error:
                is_moving = not self.is_up or error.message == NOT_SERVED_TEXT
                if error.is_unknown or not is_moving or self.loop.time() >= until_s:
                    raise
            await asyncio.sleep(TICK_MS / 1000)

    def ask_soon(self, document: str) -> None:
        """Ask without waiting for the answer.

        While the broker is out the question is kept, and asked when it is back; so it may be asked
        twice.
        """

        def keep() -> None:
            if len(self._soon) < SOON_MAX:
                self._soon.append(document)

        waiting = RemoteWait(None)
        waiting.failed = keep
        self.start(lambda number: Ask(number, document), waiting)

    # Requests of fragments.

    def submit(self, fragment: RemoteFragment, command: Command, reply_to: ReplyTo) -> None:
        entity = self._entities.get(fragment.fragment_id.entity_id)
        if self._parking is not None and reply_to is not ignore and is_patient(command, entity):
            self._parking.submit(fragment, command, reply_to)
        elif self._parking is not None and isinstance(command, Receive):
            self._parking.receive(fragment, command, reply_to)
        else:
            self.submit_now(fragment, command, reply_to)

    def submit_now(self, fragment: RemoteFragment, command: Command, reply_to: ReplyTo) -> None:
        """Send a command, or say that it cannot be sent."""
        if isinstance(command, SetAside | Configure | Tick | PublishOn):
            raise TypeError(f"gateways cannot send {type(command).__name__}")
        fragment_id = fragment.fragment_id
        waiting = RemoteWait(fragment, reply_to=reply_to)
        if isinstance(command, Receive | ReceiveDeferred | ReceiveNumbered | AcceptSession):
            waiting.taking = command
        self.start(lambda number: Request(number, fragment_id, command), waiting)

    def start(
        self,
        question: Callable[[int], Request | Browse | ListSessions | Ask],
        waiting: RemoteWait,
    ) -> None:
        """Send the request that `question` makes for a request number, on behalf of `waiting`."""
        link = self._link
        if not self.is_up or link is None:
            waiting.answered(self.out_of_reach())
            return
        if len(self._waiting) >= WAITING_MAX or link.queued_bytes >= QUEUED_BYTES_MAX:
            waiting.answered(
                Unavailable(f"{self._sentence} has too many requests waiting: try again later.")
            )
            return
        try:
            data = encode(question(self._last_id + 1), link.version)
        except TooNew as lacking:
            waiting.answered(
                Unavailable(
                    f"{self._sentence} is of an older release: it speaks version {link.version} "
                    f"of the protocol, and {lacking}. Upgrade the node of the broker, then try "
                    "again."
                )
            )
            return
        except WireError as error:
            waiting.answered(Refused(TOO_LARGE, f"The request does not fit in one frame: {error}."))
            return
        self._last_id += 1
        waiting.tick = self.ticks
        self._waiting[self._last_id] = waiting
        link.send(data, self._last_id)

    def tell(self, frame: Frame) -> None:
        """Send a frame that needs no answer; lost while the broker is out, and sent again
        afterwards.
        """
        if self.is_up and self._link is not None:
            self._link.send(encode(frame, self._link.version))

    def out_of_reach(self) -> Unavailable:
        return Unavailable(f"{self._sentence} is unavailable: {self.reason}")

    # Events of the link.

    def link_up(self) -> None:
        self._rise()

    def link_heard(self) -> None:
        self._silent_ticks = 0
        if self._link is not None and self._link.is_up and not self.is_up:
            self._rise()

    def link_lost(self, reason: str) -> None:
        self._fall(reason)
        given_up, self._given_up = self._given_up, {}
        for waiting in given_up.values():
            waiting.never_answered()

    def link_said(self, frame: Frame) -> None:
        match frame:
            case Answered():
                self._answered(frame)
            case Woken():
                fragment = self._fragments.get(frame.fragment)
                if fragment is not None:
                    fragment.woken(frame.line, frame.session)
            case Beat():
                if frame.catalogue_version != self.catalogue_version:
                    self.catalogue_version = frame.catalogue_version
                    self.on_catalogue()
            case State():
                fragment = self._fragments.get(frame.fragment)
                if fragment is not None:
                    fragment.told_state = frame.state
                    fragment.told_reason = frame.reason
            case Told():
                self._told(frame.request_id, frame.document)
            case Browsed():
                self._told(frame.request_id, frame.page)
            case Listed():
                self._told(frame.request_id, frame.session_ids)
            case Fence():
                self.tell(Fenced(frame.number, self._given_up_through))
            case _:
                raise WireError(f"a broker cannot send {type(frame).__name__}")

    def _told(self, request_id: int, value: str | Page | list[str]) -> None:
        waiting = self._waiting.pop(request_id, None)
        if waiting is None:
            # A caller that gave up must still return a turn that came.
            waiting = self._given_up.pop(request_id, None)
        if waiting is not None:
            waiting.told(value)

    def _answered(self, frame: Answered) -> None:
        waiting = self._waiting.get(frame.request_id)
        if waiting is None:
            self._answered_late(frame)
            return
        answer = frame.answer
        if not frame.is_last:
            if isinstance(answer, Received):
                waiting.deliveries += answer.deliveries
            return
        del self._waiting[frame.request_id]
        if waiting.deliveries and isinstance(answer, Received):
            answer.deliveries = waiting.deliveries + answer.deliveries
        waiting.answered(answer)

    def _answered_late(self, frame: Answered) -> None:
        given_up = self._given_up.get(frame.request_id)
        if given_up is None:
            return
        if frame.is_last:
            del self._given_up[frame.request_id]
        if isinstance(frame.answer, Received):
            given_up.hand_back(frame.answer.deliveries)
        elif isinstance(frame.answer, SessionAccepted):
            given_up.let_go(frame.answer)

    # Connecting, coming up and going out.

    async def _stay_connected(self) -> bool:
        link = BrokerLink(self, self._identity, self._new_nonce(), self.loop)
        # Before it is connected: its greeting may come before we go on, and what is said then must
        # not go to the link before it.
        self._link = link
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1000):
                await self._dial(lambda: link)
        except OSError as error:
            self._fall(f"it cannot be reached: {error.strerror or str(error) or 'no answer'}")
            return False
        self._silent_ticks = 0
        await link.ended.wait()
        return link.is_up

    def _rise(self) -> None:
        self.is_up = True
        self.reason = ""
        log.info("%s is in reach", self._shown)
        numbers: dict[int, list[int]] = {}
        for entity_id, number in self._fragments:
            numbers.setdefault(entity_id, []).append(number)
        for entity_id, opened in numbers.items():
            self.tell(Open(bare_json(self._entities[entity_id]), opened))
        for fragment in list(self._fragments.values()):
            fragment.rejoin()
        soon, self._soon = self._soon, []
        for document in soon:
            self.ask_soon(document)
        self._up.set()
        if self._parking is not None:
            self._parking.look()
        self.on_up()

    def _fall(self, reason: str) -> None:
        """The broker is out: fail what waits, and skip this broker until it is back."""
        if self.is_up:
            log.warning("%s is unavailable: %s", self._shown, reason)
        self.is_up = False
        self.reason = reason
        self._up.clear()
        self._given_up_through = self._last_id
        written_through = self._link.written_through if self._link is not None else 0
        waiting, self._waiting = self._waiting, {}
        for number, one in waiting.items():
            self._give_up(number, one, is_unknown=number <= written_through)
        if self._link is not None:
            self._link.drop_unwritten()

    def _give_up(self, number: int, waiting: RemoteWait, *, is_unknown: bool) -> None:
        text = f"{self._sentence} is unavailable: {self.reason}"
        if is_unknown:
            self._expect_late(number, waiting)
        waiting.answered(Unavailable(text, is_unknown))

    def _expect_late(self, number: int, waiting: RemoteWait) -> None:
        """Nobody waits any more: what came or may still come must not stay locked."""
        is_wanted = waiting.taking is not None or waiting.late is not None
        if is_wanted and len(self._given_up) < WAITING_MAX:
            self._given_up[number] = waiting
        waiting.hand_back(waiting.deliveries)

    def _tick(self) -> None:
        self.ticks += 1
        self._timer = self.loop.call_later(TICK_MS / 1000, self._tick)
        if self._parking is not None:
            self._parking.look()
        link = self._link
        if link is None or link.ended.is_set():
            return
        # Counted in ticks and not in time: a pause of this process is not silence of the broker.
        self._silent_ticks += 1
        if not link.is_up and self._silent_ticks > GREETING_TICKS_MAX:
            link.abort("it sends no greeting")
        elif self._silent_ticks > CUT_TICKS_MAX:
            link.abort("it has been silent for too long")
        elif self._silent_ticks > SILENT_TICKS_MAX and self.is_up:
            self._fall(f"it has not responded for {SILENT_TICKS_MAX * TICK_MS} ms")
        self.tell(Beat(0))
        self._end_overdue()

    def _end_overdue(self) -> None:
        while self._waiting:
            number = next(iter(self._waiting))
            waiting = self._waiting[number]
            if waiting.tick > self.ticks - ANSWER_TICKS_MAX:
                break
            del self._waiting[number]
            self._expect_late(number, waiting)
            seconds = ANSWER_TICKS_MAX * TICK_MS // 1000
            text = f"{self._sentence} did not answer within {seconds} s."
            waiting.answered(Unavailable(text, is_unknown=True))

    def _read(self, read: Callable[[str], list[T]], answer: str) -> list[T]:
        try:
            return read(answer)
        except ValueError as error:
            raise Unavailable(f"{self._sentence} gives an invalid answer: {error}") from error


def _nothing() -> None:
    """Ignore the answer."""
