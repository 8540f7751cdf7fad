"""Receives through the JSON API: messages are settled after, and only if, they were shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.console import counted
from shardbus.app.cli.failures import CommandError, Interrupted, ReaderGone
from shardbus.app.cli.messages.entity_path import documents, whole

BATCH_COUNT: Final = 100
# How long one request waits at most; a longer wait takes several.
REQUEST_WAIT_MS: Final = 20_000

_DONE: Final = {
    "complete": "completed",
    "abandon": "returned",
    "dead_letter": "dead-lettered",
}

Show = Callable[[Document, Callable[[], None]], None]
"""Shows a message, which has reached its reader when it returns.

The second argument is to be called when the reader takes long.
"""


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """What to receive, and how to settle it.

    `count` is None for all. `action` is how messages are settled after they were shown; if it is
    empty they are deleted as they come (`is_deleting`), or stay locked. `is_one_session` ends with
    the first session.
    """

    path: str
    count: int | None
    wait_ms: int
    action: str = "complete"
    reason: str | None = None
    is_deleting: bool = False
    session_id: str | None = None
    is_one_session: bool = False


class Receiving:
    """One run of `shardbus receive`; `received` counts the shown messages."""

    def __init__(self, api: ApiClient, wish: ReceiveOptions, show: Show) -> None:
        self._api = api
        self._wish = wish
        self._show = show
        self._session: str | None = None
        self._kept: list[str] = []
        self.received = 0
        self._lost = 0

    def run(self) -> None:
        """Raises CommandError when some shown messages were not settled and will come again.

        Interrupted and ReaderGone say what was done until then.
        """
        try:
            self._run()
        except KeyboardInterrupt as error:
            raise Interrupted(f"interrupted: {self._summary()}") from error
        except BrokenPipeError as error:
            told = f"the reader of the output has gone: {self._summary()}"
            raise ReaderGone(told) from error

    def _summary(self) -> str:
        wish = self._wish
        if wish.is_deleting:
            done = "received and deleted; messages that were fetched and not shown are lost"
        elif wish.action:
            done = f"received and {_DONE[wish.action]}; no other was removed"
        else:
            done = "received and locked"
        return f"{counted(self.received, 'message')} {done}"

    def _run(self) -> None:
        try:
            while self._left() > 0:
                messages = self._next()
                if not messages and not self._goes_on():
                    break
                self._handle(messages)
            self._settle_kept()
        finally:
            self._release_session()
        if self._lost:
            raise CommandError(
                f"{self._lost} of {counted(self.received, 'message')} shown had lost their "
                "locks: they will be received again"
            )

    def _left(self) -> int:
        wanted = self._wish.count
        return BATCH_COUNT if wanted is None else wanted - self.received

    def _goes_on(self) -> bool:
        """Whether to try another session, now that this one has no more messages."""
        had_session, self._session = self._session is not None, None
        is_named = self._wish.session_id is not None
        return had_session and not is_named and not self._wish.is_one_session

    def _next(self) -> list[Document]:
        waited_ms = 0
        while True:
            wait_ms = min(self._wait_ms() - waited_ms, REQUEST_WAIT_MS)
            messages = self._ask(wait_ms)
            waited_ms += wait_ms
            if messages or waited_ms >= self._wait_ms():
                return messages

    def _wait_ms(self) -> int:
        """No waiting in a session that was not named: the next one may have messages."""
        is_passing = self._session is not None and self._wish.session_id is None
        return 0 if is_passing and not self._wish.is_one_session else self._wish.wait_ms

    def _ask(self, wait_ms: int) -> list[Document]:
        wish = self._wish
        body: Document = {"count": min(self._left(), BATCH_COUNT), "wait_ms": wait_ms}
        if wish.is_deleting:
            body["mode"] = "receive_and_delete"
        if self._session is not None:
            body["session_lock_token"] = self._session
        elif wish.session_id is not None:
            body["session_id"] = wish.session_id
        answer = self._api.post(f"entities/{wish.path}/messages/receive", body)
        session = answer.get("session")
        if isinstance(session, dict):
            self._session = str(session.get("lock_token"))
        return documents(answer, "messages")

    def _handle(self, messages: list[Document]) -> None:
        left, shown = list(reversed(messages)), list[str]()

        def give_back() -> None:
            """Settle what the slow reader has taken, and return what it has not got yet."""
            if self._is_settling:
                self._settle_shown(shown)
                self._settle("release", _tokens(left[:-1]))
                del left[:-1]

        try:
            while left:
                self._show(left[-1], give_back)
                shown += _tokens([left.pop()])
                self.received += 1
        except BaseException:
            # Not all of them were shown: return the others to other receivers at once.
            self._settle_shown(shown)
            self._settle("release", [*self._kept, *_tokens(left)])
            raise
        self._settle_shown(shown)

    @property
    def _is_settling(self) -> bool:
        """Whether messages are settled as soon as they were shown."""
        return self._wish.action == "complete" or self._wish.reason is not None

    def _settle_shown(self, tokens: list[str]) -> None:
        if self._is_settling:
            self._settle(self._wish.action, tokens)
        else:
            self._kept += tokens
        tokens.clear()

    def _settle_kept(self) -> None:
        """Messages to be returned are returned at the end: otherwise they would be received
        again.
        """
        if self._wish.action and self._kept:
            self._settle(self._wish.action, self._kept)

    def _settle(self, action: str, tokens: list[str]) -> None:
        if not tokens or not action:
            return
        body: Document = {"action": action, "lock_tokens": tokens}
        if action == "dead_letter":
            body["reason"] = self._wish.reason
        answer = self._api.post(f"entities/{self._wish.path}/messages/settle", body)
        if action != "release":
            self._lost += len(tokens) - whole(answer, "settled")

    def _release_session(self) -> None:
        # A session with locked messages must stay held, because their locks end with it.
        if self._session is not None and self._wish.action:
            path = f"entities/{self._wish.path}/sessions/release"
            self._api.post(path, {"session_lock_token": self._session})


def _tokens(messages: list[Document]) -> list[str]:
    return [str(message["lock_token"]) for message in messages if "lock_token" in message]
