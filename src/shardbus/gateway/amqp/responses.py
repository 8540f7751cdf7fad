"""The way back to a client that asks: response links of $cbs and $management."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from shardbus.amqp.link import Link
from shardbus.amqp.session import AmqpSession
from shardbus.amqp.termini import Target

# Answers that wait for credit; a client that asks on and never reads loses the oldest.
PENDING_MAX: Final = 256


@final
class ResponseLink:
    """A link on which a client gets answers, pre-settled, as its credit allows."""

    def __init__(self, link: Link, node: str) -> None:
        self.link = link
        self.node = node
        self._pending: deque[bytes] = deque(maxlen=PENDING_MAX)
        self._answers = 0

    @property
    def reply_to(self) -> str | None:
        target = self.link.remote_target
        return target.address if isinstance(target, Target) else None

    def send(self, payload: bytes) -> None:
        self._pending.append(payload)
        self.wake()

    def wake(self) -> None:
        while self._pending and self.link.is_attached and self.link.sendable > 0:
            self._answers += 1
            self.link.send(self._answers.to_bytes(8, "big"), self._pending.popleft(), True)
        if self.link.drain:
            self.link.drained()


@final
class ResponseLinks:
    """The response links of one connection."""

    def __init__(self) -> None:
        self._links: list[ResponseLink] = []

    def add(self, response_link: ResponseLink) -> None:
        self._links.append(response_link)

    def remove(self, response_link: ResponseLink) -> None:
        if response_link in self._links:
            self._links.remove(response_link)

    def find(self, reply_to: str | None, node: str, session: AmqpSession) -> ResponseLink | None:
        """Where the answer to a request goes.

        Java and .NET name the response link's target, JavaScript the link itself, Python nothing:
        there it is the one response link of the same node on the same session. Of several that
        fit, the one on the request's own session is meant: Java uses one name on all of them.
        """
        nearest = sorted(self._links, key=lambda candidate: candidate.link.session is not session)
        if reply_to:
            for candidate in nearest:
                if candidate.reply_to == reply_to:
                    return candidate
            for candidate in nearest:
                if candidate.link.name == reply_to:
                    return candidate
        same = [candidate for candidate in nearest if candidate.node == node]
        if same and (len(same) == 1 or same[0].link.session is session):
            return same[0]
        return None
