"""A queue of several fragments in a house, with the ways to it that gateways use."""

from collections.abc import Coroutine
from typing import TypeVar

from shardbus.broker.fragment.runner import Runner
from shardbus.broker.operations.entity import Operations
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.message import Message
from shardbus.core.messages.command import Send
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.sessions.command import SessionAccepted
from tests.unit.broker.house import House

T = TypeVar("T")

LOCK_MS = 30_000


def queue_rules(
    *, requires_session: bool = False, duplicate_window_ms: int = 0, lock_ms: int = LOCK_MS
) -> FragmentRules:
    return FragmentRules(
        lock_ms=lock_ms,
        delivery_count_max=10,
        default_ttl_ms=-1,
        dead_letters_on_expiration=False,
        size_bytes_max=1 << 40,
        requires_session=requires_session,
        duplicate_window_ms=duplicate_window_ms,
        is_partitioned=True,
    )


class Queue:
    """`runners[i]` serves what `router.ports[i]` sends to."""

    def __init__(self, house: House, fragments: int, rules: FragmentRules | None = None) -> None:
        rules = rules or queue_rules()
        self.house = house
        self.seeds = 0
        self.runners: list[Runner] = [house.runner(number, rules) for number in range(fragments)]
        self.router = EntityRouter(
            list(self.runners),
            list(range(fragments)),
            even_hash_starts(fragments),
            detects_duplicates=rules.duplicate_window_ms > 0,
            requires_session=rules.requires_session,
            loop=house.loop,
            clock=house.clock,
            new_seed=self._new_seed,
            entity_id=1,
        )
        self.operations = self.new_operations()
        house.pass_s()

    def new_operations(self) -> Operations:
        return Operations(
            self.router, self.runners, clock=self.house.clock, new_seed=self._new_seed
        )

    def do(self, work: Coroutine[object, object, T]) -> T:
        """What an operation gives, or raises."""
        return self.house.loop.run_until_complete(work)

    def send(self, fragment: int, *messages: Message) -> None:
        self.house.answer(self.runners[fragment], Send(list(messages)))

    def send_to_session(self, session_id: str, *payloads: bytes) -> None:
        index = self.router.index_of_key(session_id)
        self.send(index, *(Message(payload, session_id=session_id) for payload in payloads))

    def accept(self, session_id: str | None) -> SessionAccepted:
        """A session that is granted at once."""
        answers: list[object] = []
        self.router.sessions.accept(session_id, 1_000, answers.append)
        self.house.pass_s()
        [answer] = answers
        assert isinstance(answer, SessionAccepted), answer
        return answer

    def session_ids(self, fragment: int, count: int) -> list[str]:
        """Ids of sessions that live in one fragment."""
        names = (f"session-{number}" for number in range(100_000))
        found = (name for name in names if self.router.index_of_key(name) == fragment)
        return [next(found) for _ in range(count)]

    def _new_seed(self) -> bytes:
        self.seeds += 1
        return self.seeds.to_bytes(8, "big")
