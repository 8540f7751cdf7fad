"""A broker in virtual time on a disk that fails when it is told to."""

import asyncio
from collections import deque
from collections.abc import Sequence

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.runner import Runner
from shardbus.broker.fragment.storage import Storage
from shardbus.core.fragment.command import Command, FragmentRules
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import Delivery, Receive, Received, Send, Settle
from shardbus.stores.base.store import FragmentCommit, FragmentId, NotStored, StoreError
from tests.simulation.faults import Disk
from tests.simulation.world import VirtualClock, VirtualLoop, VirtualWorker
from tests.unit.core.desk import rules

SEED = bytes(8)
LATENCY_S = 0.001


class ScriptedDisk(Disk):
    """Fails the next commits `before` or `after` they happen, or surely `not at all`, and the
    kinds of reads named.
    """

    def __init__(self) -> None:
        super().__init__()
        self.commit_failures: deque[str] = deque()
        self.is_full = False
        self.failing_reads: set[str] = set()
        self.broken_fragments: set[FragmentId] = set()
        self.transactions: list[list[FragmentId]] = []
        self.reads: list[str] = []
        self.payload_reads: list[int] = []

    def before_commit(self, commits: Sequence[FragmentCommit]) -> None:
        self.transactions.append([commit.fragment for commit in commits])
        if self.is_full:
            raise StoreError("the disk is full")
        if self.commit_failures and self.commit_failures[0] == "before":
            self.commit_failures.popleft()
            raise StoreError("the disk is full")
        if self.commit_failures and self.commit_failures[0] == "not at all":
            self.commit_failures.popleft()
            raise NotStored("there is no room")

    def after_commit(self, commits: Sequence[FragmentCommit]) -> None:
        if self.commit_failures and self.commit_failures.popleft() == "after":
            raise StoreError("the disk went away")

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        self.payload_reads.append(len(sequence_numbers))
        return super().read_payloads(fragment, sequence_numbers)

    def before_read(self, fragment: FragmentId, what: str) -> None:
        self.reads.append(what)
        if what in self.failing_reads or fragment in self.broken_fragments:
            raise StoreError(f"cannot read: {what}")


class House:
    """One store with its storage and runners; time passes only in `pass_s`."""

    def __init__(self, disk: ScriptedDisk | None = None) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.disk = disk or ScriptedDisk()
        writer, reader = (VirtualWorker(self.loop, self._latency_s, self._crash) for _ in range(2))
        self.storage = Storage(self.disk, writer, reader, self.loop)
        self.latency_s = LATENCY_S

    def runner(self, number: int = 0, fragment_rules: FragmentRules | None = None) -> Runner:
        fragment = FragmentId(1, number)
        self.disk.create([fragment])
        return Runner(fragment, fragment_rules or rules(), self.storage, self.clock, self.loop)

    def pass_s(self, seconds: float = 0.1) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        if self.loop.failures:
            raise self.loop.failures[0]

    def ask(self, runner: Runner, command: Command) -> list[Answer]:
        """Submit; the list has the answer once it has come."""
        answers: list[Answer] = []
        runner.submit(command, answers.append)
        return answers

    def answer(self, runner: Runner, command: Command) -> Answer:
        answers = self.ask(runner, command)
        self.pass_s()
        [answer] = answers
        return answer

    def receive(
        self,
        runner: Runner,
        count_max: int = 10,
        *,
        line: int = MAIN_LINE,
        is_locking: bool = True,
    ) -> list[Delivery]:
        command = Receive(line, count_max, is_locking=is_locking, token_seed=SEED)
        answer = self.answer(runner, command)
        assert isinstance(answer, Received)
        return answer.deliveries

    def settle(self, runner: Runner, how: int, *deliveries: Delivery) -> Answer:
        return self.answer(runner, Settle(how, [delivery.token for delivery in deliveries]))

    def close(self) -> None:
        self.storage.close()
        self.loop.close()

    def _latency_s(self) -> float:
        return self.latency_s

    def _crash(self) -> None:
        raise AssertionError("nothing crashes here")


def send_of(*payloads: bytes, ttl_ms: int = -1) -> Send:
    return Send([Message(payload, ttl_ms=ttl_ms) for payload in payloads])


def receive_of(count_max: int) -> Receive:
    return Receive(MAIN_LINE, count_max, is_locking=True, token_seed=SEED)


def payloads_of(deliveries: list[Delivery]) -> list[bytes | None]:
    return [delivery.payload for delivery in deliveries]
