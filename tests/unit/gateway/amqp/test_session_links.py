"""Session links and the entity, the tokens and the limits that they live by."""

import pytest

from shardbus.codec.types import Uint, Value
from shardbus.core.namespace.access import LISTEN, AccessRule
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import anonymous, plain
from tests.unit.gateway.amqp.holders import accepted, link_of


@pytest.fixture
def sq(bench: Bench) -> str:
    bench.create_sessions("sq")
    return "sq"


@pytest.mark.parametrize("is_waiting", [True, False])
@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ("ReceiveDisabled", "com.microsoft:entity-disabled"),
        ("Disabled", "com.microsoft:entity-disabled"),
        ("deleted", "amqp:not-found"),
    ],
)
def test_an_entity_that_is_disabled_or_deleted_ends_session_links_and_waits(
    bench: Bench, sq: str, is_waiting: bool, change: str, condition: str
) -> None:
    client = bench.client()
    link = client.session_receiver(sq, None if is_waiting else "one", 10)
    bench.pass_s()
    if change == "deleted":
        bench.run(bench.namespace.delete(sq))
    else:
        bench.set_status(sq, change)
    bench.pass_s()

    assert client.detach_error(link).condition == condition


def test_disabling_releases_the_sessions_that_were_held(bench: Bench, sq: str) -> None:
    bench.send_to(sq, "one", b"1")
    accepted(bench, sq, "one", 10)
    bench.set_status(sq, "Disabled")
    bench.pass_s()
    bench.set_status(sq, "Active")

    again = accepted(bench, sq, "one", 10)

    assert again.bodies(link_of(again)) == [b"1"]


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_token_that_expires_ends_the_wait_and_the_hold(
    bench: Bench, sq: str, is_waiting: bool
) -> None:
    """R34."""
    client = bench.client(anonymous())
    cbs = client.sender("$cbs", "cbs")
    client.receiver("$cbs", 10, name="cbs back", target="cbs")
    bench.pass_s()
    properties: dict[str, Value] = {
        "operation": "put-token",
        "type": "jwt",
        "name": f"sb://localhost/{sq}",
    }
    client.ask(cbs, bench.token(f"sb://localhost/{sq}", valid_s=20), properties, reply_to="cbs")
    bench.pass_s()
    link = client.session_receiver(sq, None if is_waiting else "one", 10)
    bench.pass_s(25)

    assert client.detach_error(link).condition == "amqp:unauthorized-access"


def test_waiting_needs_the_right_to_listen(bench: Bench, sq: str) -> None:
    """R34."""
    bench.run(bench.namespace.set_rules([AccessRule("hear", LISTEN, "hear-key")]))
    client = bench.client(plain(b"\0hear\0hear-key"))
    link = client.session_receiver(sq, "one")
    bench.pass_s()
    assert client.is_opened(link)

    stranger = bench.client(anonymous())
    link = stranger.session_receiver(sq, "one")
    bench.pass_s()
    assert stranger.detach_error(link).condition == "amqp:unauthorized-access"


def test_more_receivers_than_an_entity_may_have_are_told_to_come_again() -> None:
    bench = Bench(receivers_max=3)
    bench.create_sessions("sq")
    client = bench.client()
    waiting = client.session_receiver("sq", None, name="waiting")
    held = client.session_receiver("sq", "one", name="held")
    dead = client.receiver("sq/$DeadLetterQueue", name="dead")
    beyond = client.session_receiver("sq", "two", name="beyond")
    bench.pass_s()
    elsewhere = client.receiver("q", name="elsewhere")
    bench.pass_s()

    assert client.detach_error(beyond).condition == "com.microsoft:server-busy"
    assert client.is_opened(elsewhere)

    for link in (waiting, held, dead):
        link.detach()
    client.flush()
    bench.pass_s()
    again = [client.session_receiver("sq", f"{n}", name=f"again {n}") for n in range(3)]
    bench.pass_s()
    assert all(client.is_opened(link) for link in again)
    bench.close()


def test_a_wait_that_ends_in_a_refusal_makes_room_for_the_next() -> None:
    bench = Bench(receivers_max=1)
    bench.create_sessions("sq")
    client = bench.client()
    first = client.session_receiver("sq", None, name="first", wait_ms=Uint(1000))
    bench.pass_s(2)
    second = client.session_receiver("sq", "one", name="second")
    bench.pass_s()

    assert client.detach_error(first).condition == "com.microsoft:timeout"
    assert client.is_opened(second)
    bench.close()
