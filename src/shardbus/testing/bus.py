"""A private bus, as a test sees it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

from shardbus.testing.entities import Queues, Topics, document_of
from shardbus.testing.failures import BusFailed
from shardbus.testing.sdk_clock import SdkClock

ANSWER_S_MAX: Final = 600.0
LOG_BYTES_MAX: Final = 100_000


@final
class PrivateBus:
    """A real bus in a process of its own, for one test or one run.

    `connection_string` is for every SDK; `amqp_port`, `http_port` and `http_url` are for others.
    `ca_file` has the authority to trust in clients that insist on TLS, on any of these ports.
    Its time runs like that of the machine until `freeze`, and `advance` moves it forward: locks,
    sessions, schedules, times to live, duplicate windows and idle entities follow, each at its own
    moment.
    """

    def __init__(self, ready: Mapping[str, object], log: Path, stop: Callable[[], None]) -> None:
        """`ready` is the document that `shardbus test-server --json` prints."""
        self.connection_string = str(ready["connectionString"])
        self.amqp_port = int(str(ready["amqpPort"]))
        self.http_port = int(str(ready["httpPort"]))
        self.http_url = str(ready["httpUrl"])
        self.ca_file = str(ready["caFile"])
        self.pid = int(str(ready["pid"]))
        self._time_url = str(ready["timeUrl"])
        self._entities_url = str(ready["entitiesUrl"])
        self._token = str(ready["token"])
        self._log = log
        self._stop = stop
        self._sdk_clock = SdkClock()
        self._is_closed = False

    @property
    def now(self) -> datetime:
        """The present moment of the bus, in UTC: schedule messages by it once time was moved."""
        return self._read_time(self._ask("GET", self._time_url))

    def freeze(self) -> datetime:
        """Stop the time of the bus; returns the moment."""
        return self._move({"isFrozen": True})

    def unfreeze(self) -> datetime:
        """Let the time of the bus run again."""
        return self._move({"isFrozen": False})

    def advance(
        self,
        by: timedelta | float = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Move the time of the bus forward; everything that was due then has happened at return.

        A number is one of seconds.
        """
        total = by if isinstance(by, timedelta) else timedelta(seconds=by)
        total += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._move({"advanceMs": round(total.total_seconds() * 1000)})

    def advance_to(self, moment: datetime) -> datetime:
        """Move the time of the bus forward to a moment."""
        if moment.tzinfo is None:
            raise ValueError("the moment needs a time zone, as in datetime.now(UTC)")
        return self._move({"advanceTo": moment.astimezone(UTC).isoformat()})

    def declare(self, *, queues: Queues = (), topics: Topics = ()) -> None:
        """Create entities, or update them; the marker `shardbus` does the same before a test."""
        self._ask("POST", self._entities_url, document_of(queues, topics))

    def apply(self, config: Path | str) -> None:
        """Create the entities of a `Config.json` or an ARM template, or update them."""
        # As it is: such files may have comments, which JSON has not.
        self._ask("POST", self._entities_url, Path(config).read_text(encoding="utf-8-sig"))

    @property
    def log(self) -> str:
        """What the bus has logged: warnings and errors."""
        try:
            with self._log.open("rb") as file:
                return file.read(LOG_BYTES_MAX).decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """End the bus; nothing of it is left."""
        if not self._is_closed:
            self._is_closed = True
            self._sdk_clock.restore()
            self._stop()

    def _move(self, move: Mapping[str, object]) -> datetime:
        answer = self._ask("POST", self._time_url, move)
        now = self._read_time(answer)
        self._sdk_clock.follow(now, is_frozen=answer["isFrozen"] is True)
        return now

    def _read_time(self, answer: Mapping[str, object]) -> datetime:
        return datetime.fromtimestamp(int(str(answer["nowMs"])) / 1000, UTC)

    def _ask(self, method: str, url: str, document: object = None) -> Mapping[str, object]:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_S_MAX)
        try:
            body = document if isinstance(document, str | None) else json.dumps(document)
            headers = {"Authorization": f"Bearer {self._token}"}
            connection.request(method, parts.path, body and body.encode(), headers)
            response = connection.getresponse()
            status, content = response.status, response.read()
        except OSError as error:
            raise BusFailed(f"the private bus does not answer: {error}\n{self.log}") from error
        finally:
            connection.close()
        answer: Mapping[str, Mapping[str, object]] = json.loads(content)
        if status != http.client.OK:
            raise BusFailed(str(answer["error"]["message"]))
        return answer
