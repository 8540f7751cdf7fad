"""The messages a job sends, encoded: one constant payload unless each must differ."""

from typing import final

from bench.job import Job
from shardbus.codec import codes
from shardbus.codec.encoder import compound, encode
from shardbus.codec.types import Timestamp
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message

# A header with durable=true: RabbitMQ keeps a message on disk only when its sender asks for it.
_DURABLE_HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"
_SCHEDULED_KEY = b"\xa3\x1cx-opt-scheduled-enqueue-time"


@final
class Payloads:
    """The payload of one transfer after the other; `format` is the message format of them all."""

    def __init__(self, job: Job) -> None:
        self.format = 0 if job.batch == 1 else BATCH_FORMAT
        self._job = job
        self._number = job.numbers_from
        self._body = b"x" * job.body_bytes
        self._head = _DURABLE_HEADER + _annotations(job.scheduled_at_ms)
        message = self._head + encode_data_message(self._body, message_id=job.message_id)
        self._constant = message if job.batch == 1 else encode_batch([message] * job.batch)

    def next(self) -> bytes:
        if self._job.numbers_from < 0:
            return self._constant
        first = self._number
        self._number += self._job.batch
        if self._job.batch == 1:
            return self._message(first, f"bench-{first}" if self._job.has_keys else None)
        key = f"key-{first}"
        return encode_batch([self._message(number, key) for number in range(first, self._number)])

    def _message(self, number: int, key: str | None) -> bytes:
        name = f"bench-{number}"
        if self._job.has_sessions:
            return self._head + encode_data_message(self._body, session_id=name)
        return self._head + encode_data_message(self._body, message_id=name, partition_key=key)


def _annotations(scheduled_at_ms: int) -> bytes:
    if scheduled_at_ms == 0:
        return b""
    entry = [_SCHEDULED_KEY, encode(Timestamp(scheduled_at_ms))]
    return b"\x00\x53\x72" + compound(codes.MAP8, entry)
