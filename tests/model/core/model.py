"""The simplest possible fragment: a list of messages, each with what is true of it."""

from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS


class Modelled:
    """One message that is not gone."""

    def __init__(self, number: int, payload: bytes, expires_at_ms: int) -> None:
        self.number = number
        self.payload = payload
        self.expires_at_ms = expires_at_ms
        self.line = MAIN_LINE
        self.count = 0
        self.reason: str | None = None
        self.token = b""
        self.locked_until_ms = 0

    def is_locked(self) -> bool:
        return self.token != b""

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms != NEVER_MS and self.expires_at_ms <= now_ms

    def unlock(self) -> None:
        self.token = b""

    def die(self, reason: str | None) -> None:
        self.unlock()
        self.line = DEAD_LETTER_LINE
        self.expires_at_ms = NEVER_MS
        self.reason = reason


class Model:
    """All messages in the order of their numbers."""

    def __init__(self, limit: int, dead_letters_on_expiry: bool) -> None:
        self.messages: list[Modelled] = []
        self._limit = limit
        self._dead_letters_on_expiry = dead_letters_on_expiry

    def available(self, line: int, now_ms: int) -> list[Modelled]:
        return [
            each
            for each in self.messages
            if each.line == line and not each.is_locked() and not each.is_expired(now_ms)
        ]

    def held(self, token: bytes, now_ms: int) -> Modelled | None:
        for each in self.messages:
            if each.token == token and each.locked_until_ms > now_ms:
                return each
        return None

    def locked(self) -> list[Modelled]:
        return [each for each in self.messages if each.is_locked()]

    def forget(self, message: Modelled) -> None:
        self.messages.remove(message)

    def give_back(self, message: Modelled, now_ms: int) -> None:
        """Unlocked: it waits again, or expires on the spot."""
        message.unlock()
        if message.is_expired(now_ms):
            self.expire(message)

    def fail(self, message: Modelled, now_ms: int) -> None:
        """A delivery failed: it counts, and the last one kills."""
        message.count += 1
        if message.line == MAIN_LINE and message.count >= self._limit:
            message.die("MaxDeliveryCountExceeded")
        else:
            self.give_back(message, now_ms)

    def expire(self, message: Modelled) -> None:
        if self._dead_letters_on_expiry:
            message.die("TTLExpiredException")
        else:
            self.forget(message)

    def tick(self, now_ms: int) -> None:
        for message in self.locked():
            if message.locked_until_ms <= now_ms:
                self.fail(message, now_ms)
