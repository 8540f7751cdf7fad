"""States of sessions as clients see them: a read gives the last write that they know to be done."""

from shardbus.core.errors import Refused, Unavailable
from tests.simulation.sending import Violation, one_spelling


class Write:
    """An attempt to set a state; it ends done, refused, or unknown and then perhaps much later."""

    def __init__(self, state: bytes | None, began: int) -> None:
        self.state = state
        self.began = began
        self.ended: int | None = None
        self.is_done = False
        self.is_refused = False


class Registers:
    """Orders what clients do by a counter: virtual time is too coarse for it."""

    def __init__(self) -> None:
        self._steps = 0
        self._writes: dict[tuple[int, str], list[Write]] = {}

    def write(self, entity_id: int, session_id: str, state: bytes | None) -> Write:
        write = Write(state, self.step())
        session = (entity_id, one_spelling(session_id))
        self._writes.setdefault(session, [_nothing_yet()]).append(write)
        return write

    def written(self, write: Write, failure: Refused | Unavailable | None) -> None:
        if failure is None:
            write.is_done, write.ended = True, self.step()
        elif isinstance(failure, Refused) or not failure.is_unknown:
            write.is_refused = True

    def step(self) -> int:
        self._steps += 1
        return self._steps

    def read(self, entity_id: int, session_id: str, state: bytes | None, began: int) -> None:
        """A read that began at a step has just told a state."""
        writes = self._writes.get((entity_id, one_spelling(session_id)), [_nothing_yet()])
        # The last writes that were done for certain before the read began.
        done = [w for w in writes if w.is_done and w.ended is not None and w.ended < began]
        for write in writes:
            is_past = write.ended is not None and any(d.began > write.ended for d in done)
            if write.state == state and not write.is_refused and not is_past:
                return
        raise Violation(f"session {session_id!r} of entity {entity_id} has the state {state!r}")


def _nothing_yet() -> Write:
    write = Write(None, 0)
    write.ended = 0
    return write
