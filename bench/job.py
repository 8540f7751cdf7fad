"""What one client process is asked to measure, and what it answers: JSON between processes."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """The workloads a client knows."""

    SEND = "send"
    RECEIVE = "receive"
    SESSIONS = "sessions"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens and how the bench signs in; `pid` is the root of its processes."""

    host: str
    port: int
    user: str
    password: str
    address: str
    pid: int


@dataclass(frozen=True, slots=True)
class Job:
    """One connection, one link, `messages` counted after `warmup` uncounted ones.

    `window` is the most unsettled messages (send) or the credit (receive). A `batch` above 1 sends
    that many messages per transfer in the Service Bus batch format. With `numbers_from` every
    message sent has the next number as its message id, or as its session id if `has_sessions`; a
    batch then has a partition key, because on a partitioned queue it must belong together; with
    `has_keys` single messages have one too. Without numbers all have the same `message_id`. What
    `scheduled_at_ms` says is when messages become active. SESSIONS counts sessions as messages.
    With `per_s` single messages are sent at that rate, whatever became of those before.
    """

    kind: Kind
    messages: int
    warmup: int
    window: int
    batch: int = 1
    body_bytes: int = 1024
    timeout_s: int = 120
    numbers_from: int = -1
    has_sessions: bool = False
    has_keys: bool = False
    scheduled_at_ms: int = 0
    message_id: str | None = None
    slices: int = 0
    per_s: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a sample, so that its end can be compared with its beginning."""

    messages: int
    seconds: float
    server_cpu_s: float
    latency_median_us: float

    @property
    def server_cpu_us(self) -> float:
        """Microseconds of the server's processor time per message."""
        return 1e6 * self.server_cpu_s / self.messages


@dataclass(frozen=True, slots=True)
class Sample:
    """What a client saw: from the outcome that ended the warm-up to the last outcome.

    `latencies_us` is there when one message was in flight, or sends were paced: from the send to
    its outcome. A job with `slices` has their medians instead.
    """

    messages: int
    seconds: float
    client_cpu_s: float
    server_cpu_s: float
    latencies_us: list[float] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def client_cpu_us(self) -> float:
        """Microseconds of the client's processor time per message."""
        return 1e6 * self.client_cpu_s / self.messages

    @property
    def server_cpu_us(self) -> float:
        """Microseconds of the server's processor time per message."""
        return 1e6 * self.server_cpu_s / self.messages


def write_request(endpoint: Endpoint, job: Job) -> str:
    return json.dumps({"endpoint": asdict(endpoint), "job": asdict(job)})


def read_request(text: str) -> tuple[Endpoint, Job]:
    request = json.loads(text)
    job = Job(**{**request["job"], "kind": Kind(request["job"]["kind"])})
    return Endpoint(**request["endpoint"]), job


def write_sample(sample: Sample) -> str:
    return json.dumps(asdict(sample))


def read_sample(text: str) -> Sample:
    content = json.loads(text)
    return Sample(**{**content, "slices": [Slice(**each) for each in content["slices"]]})
