"""Whether the counters of a fragment are those of what its store holds."""

from shardbus.core.fragment.change import Counters
from shardbus.core.message import ACTIVE, DEFERRED, DELAYED, SCHEDULED
from shardbus.stores.base.store import FragmentId, MessageStore
from tests.simulation.journal import Journal
from tests.simulation.records import Place
from tests.simulation.sending import Violation


def check_conservation(store: MessageStore, fragment: FragmentId, journal: Journal) -> None:
    """The stored counters are those of the stored messages and states, on every line.

    The size of a record that became unreadable is not known; it stays counted, and is not checked.
    """
    counters = store.load(fragment).counters
    for line in range(len(counters.lines)):
        _check_line(store, fragment, line, counters, journal)
    states = journal.states_in(fragment).values()
    size_bytes = sum(map(len, states))
    if fragment in journal.with_damaged_states:
        size_bytes = counters.state_bytes
    found = (len(states), size_bytes)
    if found != (counters.states, counters.state_bytes):
        raise Violation(
            f"{fragment}: counters say {counters.states} states of {counters.state_bytes} bytes, "
            f"there are {found[0]} of {found[1]}"
        )


def _check_line(
    store: MessageStore, fragment: FragmentId, line: int, counters: Counters, journal: Journal
) -> None:
    counted = counters.lines[line]
    page = store.browse(fragment, line, start=0, count_max=1 << 30, bytes_max=1 << 40)
    states = [entry.state for entry in page.entries]
    # The store cannot tell the state of what it cannot read.
    states += [journal.records[Place(fragment, number)].state for number in page.damaged]
    found = (
        states.count(ACTIVE),
        states.count(DEFERRED),
        states.count(SCHEDULED) + states.count(DELAYED),
        sum(entry.size_bytes for entry in page.entries),
    )
    has_damage = bool(page.damaged) or counters.set_aside > 0
    size_bytes = found[3] if has_damage else counted.size_bytes
    expected = (counted.count, counted.deferred, counted.scheduled, size_bytes)
    if found != expected:
        raise Violation(
            f"{fragment} line {line}: counters say {expected} (active, deferred, scheduled, "
            f"bytes), the store holds {found}"
        )
