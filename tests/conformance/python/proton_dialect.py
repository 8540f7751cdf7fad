"""What the dialect adds to AMQP, by Proton: annotations, filters, requests and transactions."""

from __future__ import annotations

import time
import uuid
from typing import Final

from proton import Array, Data, Delivery, Event, Message, Sender, symbol, timestamp
from proton.handlers import TransactionHandler
from proton.reactor import Filter, Transaction
from proton.utils import BlockingConnection, BlockingReceiver

from tests.conformance.python.proton_world import (
    TIMEOUT_S,
    Requests,
    Scenario,
    Unsettled,
    annotation,
    array,
    connect,
    entity,
    longs,
    messages_in,
    moment,
    number_of,
    on_both,
    one,
    receiver,
    send,
    token_of,
)
from tests.conformance.python.world import same

SCHEDULED: Final = symbol("x-opt-scheduled-enqueue-time")
SESSION_FILTER: Final = symbol("com.microsoft:session-filter")
# By which the bus lists the sessions that have messages or a state.
ALL_SESSIONS_MS: Final = 253_402_300_800_000
PAGE: Final = 2


def schedule(kind: str) -> None:
    """By the annotation; `$management` shows the number, by which it is cancelled."""
    connection = connect()
    requests = Requests(connection, entity(kind))
    for body, wait_s in (("never", 3600.0), ("soon", 1.0)):
        message = Message(body=body)
        message.annotations = {SCHEDULED: moment(time.time() + wait_s)}
        send(connection, entity(kind), message)
    never = next(each for each in requests.peek(0, 10) if each.body == "never")
    same("state", annotation(never, "x-opt-message-state"), 2)
    requests.ask("cancel-scheduled-message", {"sequence-numbers": longs(number_of(never))})
    link = receiver(connection, entity(kind))
    same("body", one(link).body, "soon")
    link.accept()
    requests.wait_until_empty()
    connection.close()


def deferred(kind: str) -> None:
    connection = connect()
    send(connection, entity(kind), Message(body="later"))
    link = receiver(connection, entity(kind))
    number = number_of(one(link))
    assert link.fetcher is not None
    link.fetcher.unsettled[0].local.undeliverable = True
    link.settle(Delivery.MODIFIED)
    asked = {"sequence-numbers": longs(number), "receiver-settle-mode": 0}
    answer = Requests(connection, entity(kind)).ask("receive-by-sequence-number", asked)
    same("bodies", [each.body for each in messages_in(answer)], ["later"])
    connection.close()


def peek(kind: str) -> None:
    connection = connect()
    wanted = {str(number) for number in range(5)}
    send(connection, entity(kind), *(Message(body=body) for body in sorted(wanted)))
    requests = Requests(connection, entity(kind))
    found, start = list[str](), 0
    while page := requests.peek(start, PAGE):
        assert len(page) <= PAGE, f"{len(page)} messages in a page of {PAGE}"
        found += [str(each.body) for each in page]
        start = number_of(page[-1]) + 1
    same("bodies", sorted(found), sorted(wanted))
    link = receiver(connection, entity(kind), credit=len(wanted))
    for _ in wanted:
        one(link)
        link.accept()
    connection.close()


def renew(kind: str) -> None:
    connection = connect()
    send(connection, entity(kind), Message(body="x"))
    link = receiver(connection, entity(kind))
    message = one(link)
    tokens = array(Data.UUID, token_of(message))
    answer = Requests(connection, entity(kind)).ask("renew-lock", {"lock-tokens": tokens})
    times = answer["expirations"]
    assert isinstance(times, Array)
    before = annotation(message, "x-opt-locked-until")
    assert isinstance(before, int)
    assert times.elements[0] > before, f"{times.elements[0]} is not after {before}"
    link.accept()
    connection.close()


def accepted(connection: BlockingConnection, kind: str, session: str | None) -> BlockingReceiver:
    wish = Filter({SESSION_FILTER: session})  # type: ignore[dict-item]  # described or not
    options = [Unsettled(), wish]
    return connection.create_receiver(entity(f"sessions-{kind}"), credit=1, options=options)


def session_of(link: BlockingReceiver) -> str:
    """The session that the bus says the link has."""
    told = link.link.remote_source.filter
    told.rewind()
    assert told.next()
    found: dict[object, object] = told.get_dict()
    return str(found[SESSION_FILTER])


def session_accept(kind: str) -> None:
    connection = connect()
    sent = [Message(body=f"of {name}", group_id=name) for name in ("one", "two")]
    send(connection, entity(f"sessions-{kind}"), *sent)
    for name in ("two", "one"):
        link = accepted(connection, kind, name)
        same("session", session_of(link), name)
        same("body", one(link).body, f"of {name}")
        link.accept()
        link.close()  # type: ignore[no-untyped-call]  # it has no types
    connection.close()


def session_next(kind: str) -> None:
    connection = connect()
    send(connection, entity(f"sessions-{kind}"), Message(body="x", group_id="any"))
    link = accepted(connection, kind, None)
    same("session", session_of(link), "any")
    same("body", one(link).body, "x")
    link.accept()
    connection.close()


def session_state(kind: str) -> None:
    connection = connect()
    link = accepted(connection, kind, "state")
    requests = Requests(connection, entity(f"sessions-{kind}"))
    session: dict[str, object] = {"session-id": "state"}
    requests.ask("set-session-state", session | {"session-state": b"half"}, link.link.name)
    state = requests.ask("get-session-state", session, link.link.name)["session-state"]
    assert isinstance(state, bytes | memoryview)
    same("state", bytes(state), b"half")
    requests.ask("set-session-state", session | {"session-state": None}, link.link.name)
    connection.close()


def session_renew(kind: str) -> None:
    connection = connect()
    link = accepted(connection, kind, "renewed")
    requests = Requests(connection, entity(f"sessions-{kind}"))
    until = []
    for _ in range(2):
        asked: dict[str, object] = {"session-id": "renewed"}
        until.append(requests.ask("renew-session-lock", asked, link.link.name)["expiration"])
        time.sleep(0.05)
    first, second = until
    assert isinstance(first, timestamp) and isinstance(second, timestamp)
    assert second > first > time.time() * 1000, f"{first}, then {second}"
    connection.close()


def session_list(kind: str) -> None:
    connection = connect()
    name = f"listed-{uuid.uuid4()}"
    send(connection, entity(f"sessions-{kind}"), Message(body="x", group_id=name))
    requests = Requests(connection, entity(f"sessions-{kind}"))
    asked = {"last-updated-time": timestamp(ALL_SESSIONS_MS), "skip": 0, "top": 100}
    listed = requests.ask("get-message-sessions", asked)["sessions-ids"]
    assert isinstance(listed, Array)
    same("sessions", list(listed.elements), [name])
    link = accepted(connection, kind, name)
    one(link)
    link.accept()
    connection.close()


def rule_manager() -> str:
    connection = connect()
    requests = Requests(connection, f"{entity('topic')}/Subscriptions/red")
    description = {"sql-filter": {"expression": "colour = 'green'"}}
    requests.ask("add-rule", {"rule-name": "green", "rule-description": description})
    same("rules", _rules(requests), 2)
    requests.ask("remove-rule", {"rule-name": "green"})
    same("rules", _rules(requests), 1)
    connection.close()
    return "rules added, listed and removed by requests"


def _rules(requests: Requests) -> int:
    listed = requests.ask("enumerate-rules", {"skip": 0, "top": 100})["rules"]
    assert isinstance(listed, list)
    return len(listed)


def duplicates(kind: str) -> None:
    connection = connect()
    name = entity(f"ids-{kind}")
    send(connection, name, *(Message(body=number, id="same") for number in range(3)))
    send(connection, name, Message(body="other", id="other"))
    link = receiver(connection, name, credit=2)
    found = []
    for _ in range(2):
        found.append(one(link).body)
        link.accept()
    same("bodies", sorted(map(str, found)), ["0", "other"])
    Requests(connection, name).wait_until_empty()
    connection.close()


class Ends(TransactionHandler):
    """Remembers how far a transaction is."""

    def __init__(self) -> None:
        self.transaction: Transaction | None = None
        self.end = ""

    def on_transaction_declared(self, event: Event) -> None:
        self.transaction = event.transaction

    def on_transaction_committed(self, event: Event) -> None:
        self.end = "committed"

    def on_transaction_aborted(self, event: Event) -> None:
        self.end = "aborted"

    def on_transaction_commit_failed(self, event: Event) -> None:
        self.end = "failed"

    def on_transaction_declare_failed(self, event: Event) -> None:
        self.end = "not declared"


def keyed(body: str) -> Message:
    """In a transaction, a partitioned entity wants one key."""
    message = Message(body=body)
    message.annotations = {symbol("x-opt-partition-key"): "one"}
    return message


def move(source: str, target: str, *, is_commit: bool) -> None:
    """One message taken and another sent, all or nothing."""
    connection = connect()
    send(connection, source, keyed("old"))
    link = receiver(connection, source)
    sender = connection.create_sender(target).link
    one(link)
    assert link.fetcher is not None and connection.conn is not None and isinstance(sender, Sender)
    taken = link.fetcher.unsettled.popleft()
    ends = Ends()
    connection.container.declare_transaction(connection.conn, handler=ends)
    connection.wait(lambda: bool(ends.transaction or ends.end), timeout=TIMEOUT_S)
    assert ends.transaction is not None, ends.end
    ends.transaction.send(sender, keyed("new"))
    ends.transaction.accept(taken)
    if is_commit:
        ends.transaction.commit()
    else:
        ends.transaction.abort()
    connection.wait(lambda: bool(ends.end), timeout=TIMEOUT_S)
    same("end", ends.end, "committed" if is_commit else "aborted")
    connection.close()
    # Another connection: one that has sent in a transaction may not receive from its target.
    connection = connect()
    after = receiver(connection, target if is_commit else source)
    same("body", one(after).body, "new" if is_commit else "old")
    after.accept()
    for name in {source, target}:
        Requests(connection, name).wait_until_empty()
    connection.close()


def transaction(kind: str) -> None:
    for is_commit in (True, False):
        move(entity(kind), entity(kind), is_commit=is_commit)


def across(kind: str) -> None:
    for is_commit in (True, False):
        move(entity(kind), entity("results"), is_commit=is_commit)


DIALECT: Final[dict[str, Scenario]] = {
    "schedule": on_both(schedule),
    "deferred": on_both(deferred),
    "session-accept": on_both(session_accept),
    "session-next": on_both(session_next),
    "session-state": on_both(session_state),
    "session-renew": on_both(session_renew),
    "session-list": on_both(session_list),
    "peek": on_both(peek),
    "renew": on_both(renew),
    "rule-manager": rule_manager,
    "transaction": on_both(transaction),
    "transaction-across": on_both(across),
    "duplicates": on_both(duplicates),
}
