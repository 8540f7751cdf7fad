"""Response links of $cbs and $management."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from shardbus.amqp.link import Link
from shardbus.amqp.session import AmqpSession
from shardbus.amqp.termini import Target
from shardbus.gateway.amqp.links.outbound import WAITING_BYTES_MAX

# Answers that wait for credit; a client that never reads them loses the oldest.
PENDING_MAX: Final = 256
PENDING_BYTES_MAX: Final = 8 * 1024 * 1024


@final
class ResponseLink:
    """A link on which a client gets answers, pre-settled, as its credit allows."""

    def __init__(self, link: Link, node: str, links: ResponseLinks) -> None:
        self.link = link
        self.node = node
        self._links = links
        self._pending: deque[bytes] = deque()
        self._answers = 0

    @property
    def reply_to(self) -> str | None:
        target = self.link.remote_target
        return target.address if isinstance(target, Target) else None

    def send(self, payload: bytes) -> None:
        self._pending.append(payload)
        self._links.pending_bytes += len(payload)
        self.wake()
        while self._pending and (
            len(self._pending) > PENDING_MAX or self._links.pending_bytes > PENDING_BYTES_MAX
        ):
            self._take()

    def forget(self) -> None:
        """Drop the waiting answers: the link has ended."""
        while self._pending:
            self._take()

    def _take(self) -> bytes:
        payload = self._pending.popleft()
        self._links.pending_bytes -= len(payload)
        return payload

    def wake(self) -> None:
        connection = self.link.session.connection
        while self._pending and self.link.is_attached and self.link.sendable > 0:
            if connection.waiting_bytes >= WAITING_BYTES_MAX:
                return
            self._answers += 1
            self.link.send(self._answers.to_bytes(8, "big"), self._take(), True)
        if self.link.drain:
            self.link.drained()


@final
class ResponseLinks:
    """The response links of one connection; `pending_bytes` is what waits for credit on all of
    them.
    """

    def __init__(self) -> None:
        self.pending_bytes = 0
        self._links: list[ResponseLink] = []

    def add(self, response_link: ResponseLink) -> None:
        self._links.append(response_link)

    def wake(self) -> None:
        """There is room in the windows again."""
        for response_link in self._links:
            response_link.wake()

    def remove(self, response_link: ResponseLink) -> None:
        if response_link in self._links:
            self._links.remove(response_link)
            response_link.forget()

    def find(self, reply_to: str | None, node: str, session: AmqpSession) -> ResponseLink | None:
        """The link for the answer to a request.

        Java and .NET name the response link's target, JavaScript the link itself. Python names
        nothing: the only response link of the same node on the same session is meant. Of several
        candidates the one on the request's own session is meant: Java uses one name on all of them.
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
