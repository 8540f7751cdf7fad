"""Which links are let in, and how the others are turned away."""

import re
from contextlib import closing

import pytest

from shardbus.amqp.outcomes import ACCEPTED
from shardbus.amqp.termini import Coordinator, Source, Target
from shardbus.codec.types import Described, Ulong, Value
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.tier import PREMIUM, STANDARD
from tests.unit.amqp.frames_seen import names
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import RECEIVE_AND_DELETE, anonymous, plain

TRACKED = r" TrackingId:[0-9a-f-]{36}_G0, SystemTracker:shardbus, Timestamp:[0-9T:-]{19}$"


def dynamic_source() -> Source:
    source = Source()
    source.dynamic = True
    return source


def session_source(address: str) -> Source:
    source = Source()
    source.address = address
    source.filters = {"com.microsoft:session-filter": None}
    return source


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("nowhere", "nowhere"),
        ("/NoWhere", "NoWhere"),
        ("amqps://localhost:5672/no/where", "no/where"),
        ("nowhere/$management", "nowhere"),
        ("nowhere/$DeadLetterQueue", "nowhere"),
    ],
)
def test_an_unknown_entity_is_refused_in_the_words_that_sdks_match(
    bench: Bench, address: str, named: str
) -> None:
    client = bench.client()
    link = client.receiver(address)
    bench.pass_s()

    error = client.detach_error(link)

    assert error.condition == "amqp:not-found"
    text = rf"^The messaging entity 'sb://[^']+/{named}' could not be found\."
    assert re.match(text + TRACKED, error.description)


def test_a_refusal_is_an_attach_without_termini_and_a_detach_in_one_write(bench: Bench) -> None:
    client = bench.client()
    client.sender("nowhere")
    bench.pass_s()

    [refusal] = [data for data in client.transport.writes if "attach" in names(data)]

    assert [name for name in names(refusal) if name != "begin"] == ["attach", "detach"]
    [attach] = client.frames("attach")
    assert (attach.field(5), attach.field(6)) == (None, None)
    [detach] = client.frames("detach")
    assert detach.field(1) is True


def test_a_refused_link_leaves_the_others_alone(bench: Bench) -> None:
    client = bench.client()
    good = client.sender("q", "good")
    client.receiver("nowhere", 10, name="bad")
    bench.pass_s()

    ids = client.send(good, b"still here")
    bench.pass_s()

    assert client.outcomes(good) == {ids[0]: ACCEPTED}
    assert not client.is_closed()


@pytest.mark.parametrize("address", ["q", "q/$DeadLetterQueue", "q/$management", "nowhere"])
def test_without_a_claim_no_link_is_let_in_and_nobody_learns_what_exists(
    bench: Bench, address: str
) -> None:
    """R34."""
    client = bench.client(anonymous())
    link = client.receiver(address)
    bench.pass_s()

    error = client.detach_error(link)

    assert error.condition == "amqp:unauthorized-access"
    named = address.split("/", 1)[0]
    text = (
        r"^Unauthorized access\. 'Listen' claim\(s\) are required to perform this operation\. "
        rf"Resource: 'sb://[^']+/{named}'\."
    )
    assert re.match(text + TRACKED, error.description)


def test_a_rule_without_the_right_is_refused_for_what_it_lacks(bench: Bench) -> None:
    """R34."""
    rules = [AccessRule("hear", LISTEN, "hear-key"), AccessRule("say", SEND, "say-key")]
    bench.run(bench.namespace.set_rules(rules))
    hearing = bench.client(plain(b"\0hear\0hear-key"))
    saying = bench.client(plain(b"\0say\0say-key"))

    refused = [hearing.sender("q"), saying.receiver("q")]
    heard = [hearing.receiver("q"), hearing.receiver("q/$management", name="management")]
    said = [saying.sender("q"), saying.receiver("q/$management", name="management")]
    bench.pass_s()

    errors = [
        client.detach_error(link) for client, link in zip((hearing, saying), refused, strict=True)
    ]
    assert {error.condition for error in errors} == {"amqp:unauthorized-access"}
    assert [error.description.split("'")[1] for error in errors] == ["Send", "Listen"]
    assert all(hearing.is_opened(link) for link in heard)
    assert all(saying.is_opened(link) for link in said)


@pytest.mark.parametrize("address", ["q/$DeadLetterQueue", "q/$Transfer/$DeadLetterQueue"])
def test_nobody_sends_to_a_dead_letter_queue(bench: Bench, address: str) -> None:
    client = bench.client()
    link = client.sender(address)
    bench.pass_s()

    assert client.detach_error(link).condition == "amqp:not-allowed"


def test_a_dead_letter_queue_can_be_received_from(bench: Bench) -> None:
    client = bench.client()
    link = client.receiver("q/$deadletterqueue", 1)
    bench.pass_s()

    assert client.is_opened(link)


@pytest.mark.parametrize("source", [dynamic_source(), Source(), ""])
def test_a_link_must_name_its_address(bench: Bench, source: str | Source) -> None:
    client = bench.client()
    link = client.receiver(source)
    bench.pass_s()

    assert client.detach_error(link).condition == "com.microsoft:argument-error"


def test_a_sender_without_a_target_address_is_refused(bench: Bench) -> None:
    client = bench.client()
    link = client.sender(Target())
    bench.pass_s()

    assert client.detach_error(link).condition == "com.microsoft:argument-error"


def test_an_endless_address_is_refused(bench: Bench) -> None:
    client = bench.client()
    link = client.receiver("q" * 5000)
    bench.pass_s()

    assert client.detach_error(link).condition == "com.microsoft:argument-error"


def test_a_session_receiver_is_refused_by_a_queue_without_sessions(bench: Bench) -> None:
    client = bench.client()
    link = client.receiver(session_source("q"))
    bench.pass_s()

    error = client.detach_error(link)

    assert error.condition == "amqp:not-allowed"
    assert "non-sessionful entity" in error.description


def test_a_transaction_coordinator_is_a_target_that_is_echoed(bench: Bench) -> None:
    client = bench.client()
    link = client.sender(Coordinator())
    bench.pass_s()

    assert isinstance(link.remote_target, Coordinator)
    assert link.credit > 0


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        ("Disabled", ["sender", "receiver"]),
        ("SendDisabled", ["sender"]),
        ("ReceiveDisabled", ["receiver"]),
    ],
)
def test_a_disabled_entity_refuses_what_is_disabled(
    bench: Bench, status: str, refused: list[str]
) -> None:
    bench.set_status("q", status)
    client = bench.client()
    links = [client.sender("q"), client.receiver("q")]
    bench.pass_s()

    closed = [link for link in links if not client.is_opened(link)]

    assert [link.name for link in closed] == refused
    conditions = {client.detach_error(link).condition for link in closed}
    assert conditions == {"com.microsoft:entity-disabled"}


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ("Disabled", ["sender", "receiver", "dead letters"]),
        ("SendDisabled", ["sender"]),
        ("ReceiveDisabled", ["receiver", "dead letters"]),
    ],
)
def test_disabling_an_entity_detaches_the_links_it_concerns(
    bench: Bench, status: str, ended: list[str]
) -> None:
    client = bench.client()
    links = [
        client.sender("q"),
        client.receiver("q", 10),
        client.receiver("q/$DeadLetterQueue", 10, name="dead letters"),
        client.sender("many", "other sender"),
        client.receiver("many", 10, name="other receiver"),
        # Its operations are refused one by one: some may still be done.
        client.receiver("q/$management", 10, name="management"),
    ]
    bench.pass_s()
    bench.set_status("q", status)
    bench.pass_s()

    closed = [link for link in links if not link.is_attached]

    assert [link.name for link in closed] == ended
    conditions = {client.detach_error(link).condition for link in closed}
    assert conditions == {"com.microsoft:entity-disabled"}


def test_deleting_an_entity_detaches_its_links_and_no_others(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    gone = [
        client.sender("q"),
        client.receiver("q", 10),
        client.receiver("q/$management", 10, name="management"),
    ]
    elsewhere = other.receiver("q", 10)
    kept = [client.sender("many", "other sender"), client.receiver("many", 1, name="other")]
    bench.pass_s()

    bench.run(bench.namespace.delete("q"))
    bench.pass_s()

    assert {client.detach_error(link).condition for link in gone} == {"amqp:not-found"}
    assert other.detach_error(elsewhere).condition == "amqp:not-found"
    # The phrase by which the JavaScript and Java SDKs know it.
    assert "could not be found" in client.detach_error(gone[0]).description
    assert all(link.is_attached for link in kept)
    client.send(kept[0], b"goes on")
    bench.pass_s()
    assert client.bodies(kept[1]) == [b"goes on"]


@pytest.mark.parametrize(("tier", "message_kb"), [(STANDARD, 256), (PREMIUM, 2048)])
def test_a_sender_is_told_how_large_messages_may_be_and_batches_only_in_premium(
    tier: str, message_kb: int
) -> None:
    """Where batches have no limit of their own, SDKs go by that of messages."""
    with closing(Bench(tier=tier)) as bench:
        spec = bench.namespace.get("q").spec.copy()
        spec.message_kb_max = message_kb
        bench.run(bench.namespace.update_queue("q", spec))
        client = bench.client()
        link = client.sender("q")
        bench.pass_s()

        assert link.remote_max_message_size == message_kb * 1024
        [attach] = client.frames("attach")
        properties = attach.field(13) or {}
        assert isinstance(properties, dict)
        told = {key.value: value.value for key, value in properties.items()}
        size = {"com.microsoft:max-message-batch-size": 1024 * 1024}
        assert told == ({} if tier == STANDARD else size)


def test_a_receiver_is_told_no_limit_of_ours() -> None:
    """R36: the Go SDK would take it for its own limit, and drop the link at a larger message."""
    with closing(Bench(tier=PREMIUM)) as bench:
        client = bench.client()
        link = client.receiver("q")
        bench.pass_s()

        assert client.is_opened(link)
        assert link.remote_max_message_size == 0


def test_an_address_is_echoed_to_the_letter(bench: Bench) -> None:
    client = bench.client()
    link = client.receiver("amqps://localhost:5672/Q")
    bench.pass_s()

    assert client.is_opened(link)
    assert link.remote_source is not None
    assert link.remote_source.address == "amqps://localhost:5672/Q"


def filtered_source(name: str, value: Value) -> Source:
    source = Source()
    source.address = "q"
    source.filters = {name: value}
    return source


def copying_source() -> Source:
    source = Source()
    source.address = "q"
    source.distribution_mode = "copy"
    return source


@pytest.mark.parametrize(
    "source",
    [
        filtered_source("apache.org:selector-filter:string", "color = 'red'"),
        filtered_source("jms-selector", Described(Ulong(0x468C00000004), "color = 'red'")),
        copying_source(),
    ],
    ids=["a selector", "a described selector", "copies"],
)
def test_a_receiver_that_wants_what_we_do_not_do_is_refused_and_loses_nothing(
    bench: Bench, source: Source
) -> None:
    """R36: a filter that is ignored gives a receiver what it did not ask for."""
    bench.fill("q", b"blue")
    client = bench.client()
    link = client.receiver(source, 10, modes=RECEIVE_AND_DELETE)
    bench.pass_s()

    assert client.detach_error(link).condition == "amqp:not-allowed"
    assert bench.left("q") == [b"blue"]
