"""One message as its sender knows it."""

from random import Random

from shardbus.core.fragment.command import FragmentRules
from shardbus.core.message import NEVER_MS, Message


class Violation(AssertionError):
    """A promise of the bus was broken."""


class Sending:
    """It ends accepted, refused or unknown; an accepted one may be dropped as a duplicate."""

    def __init__(self, entity_id: int, message: Message, batch: int | None) -> None:
        self.mark = mark_of(message.payload)
        self.entity_id = entity_id
        self.message = message
        self.batch = batch
        self.outcome = "pending"
        self.attempted_at_ms = 0
        self.is_dropped = False

    @property
    def key(self) -> str | None:
        session_id = self.message.session_id
        return self.message.partition_key if session_id is None else one_spelling(session_id)

    def expires_at_ms(self, rules: FragmentRules, from_ms: int) -> int:
        """When it is to expire if it was enqueued at a moment."""
        lives_ms = [ttl for ttl in (self.message.ttl_ms, rules.default_ttl_ms) if ttl >= 0]
        return from_ms + min(lives_ms) if lives_ms else NEVER_MS


def spelled(chance: Random, name: str) -> str:
    """A session id in one of its spellings."""
    return chance.choice([name, name, name.upper(), name.title()])


def one_spelling(session_id: str) -> str:
    """The same for all spellings of the ids that are used here."""
    return session_id.lower()


def payload_of(mark: int, padding: int) -> bytes:
    """A payload that tells which message it is."""
    return b"%d:" % mark + b"." * padding


def mark_of(payload: bytes) -> int:
    return int(payload.partition(b":")[0])
