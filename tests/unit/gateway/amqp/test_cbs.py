"""Tokens over $cbs: how answers find their way, what is accepted, and what happens at the end."""

import uuid

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.link import Link
from shardbus.broker.fragment.alarm import LOOK_MS_MAX
from shardbus.codec.types import Int, Ulong, Uuid, Value
from shardbus.codec.value import encode
from shardbus.core.namespace.access import LISTEN, AccessRule
from shardbus.gateway.amqp.management.responses import PENDING_MAX
from shardbus.message.sections import DecodedMessage
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client, anonymous, plain

AUDIENCE = "sb://shardbus/q"


class Counter:
    """A client's two $cbs links, made the way the Python SDK makes them."""

    def __init__(self, bench: Bench, client: Client) -> None:
        self.client = client
        self._bench = bench
        self.requests = client.sender("$cbs", "cbs requests")
        self.responses = client.receiver("$cbs", 100, name="cbs responses", target="$cbs")
        bench.pass_s()

    def put(
        self, token: Value, audience: Value = AUDIENCE, *, message_id: Value = "1"
    ) -> DecodedMessage:
        properties = {"operation": "put-token", "type": "jwt", "name": audience}
        return self.ask(token, properties, message_id=message_id)

    def ask(
        self, body: Value, properties: dict[str, Value], *, message_id: Value = "1"
    ) -> DecodedMessage:
        before = len(self.client.answers(self.responses))
        self.client.ask(self.requests, body, properties, message_id=message_id)
        self._bench.pass_s()
        answers = self.client.answers(self.responses)[before:]
        [answer] = answers
        return answer


@pytest.fixture
def counter(bench: Bench) -> Counter:
    return Counter(bench, bench.client(anonymous()))


def status_of(answer: DecodedMessage) -> Value:
    return answer.application_properties["status-code"]


def test_a_client_without_a_sasl_layer_proves_itself_by_a_token(bench: Bench) -> None:
    """R34, R36: so comes the JavaScript SDK that has a token and no key."""
    config = ConnectionConfig(container_id="client", sasl_mechanism="", idle_timeout_ms=0)
    client = bench.client(config)
    stranger = client.receiver("q", name="before")
    counter = Counter(bench, client)
    bench.pass_s()

    answer = counter.put(bench.token(AUDIENCE))
    link = client.receiver("q", name="after")
    bench.pass_s()

    assert client.detach_error(stranger).condition == "amqp:unauthorized-access"
    assert status_of(answer) == Int(202)
    assert client.is_opened(link)


def test_a_token_opens_what_it_names(bench: Bench, counter: Counter) -> None:
    """R34."""
    answer = counter.put(bench.token(AUDIENCE))
    links = [counter.client.receiver("q"), counter.client.sender("many")]
    bench.pass_s()

    assert status_of(answer) == Int(202)
    assert counter.client.is_opened(links[0])
    assert counter.client.detach_error(links[1]).condition == "amqp:unauthorized-access"


def test_the_status_has_hyphens_and_no_error_condition(bench: Bench, counter: Counter) -> None:
    good = counter.put(bench.token())
    bad = counter.put("nonsense")

    assert set(good.application_properties) == {"status-code", "status-description"}
    assert set(bad.application_properties) == {"status-code", "status-description"}
    assert isinstance(good.application_properties["status-code"], Int)
    assert isinstance(bad.application_properties["status-description"], str)


@pytest.mark.parametrize("message_id", [Uuid(uuid.UUID(int=7).bytes), "seven", Ulong(7), b"7"])
def test_the_correlation_id_is_the_message_id_with_its_type(
    bench: Bench, counter: Counter, message_id: Value
) -> None:
    answer = counter.put(bench.token(), message_id=message_id)
    other = counter.put("nonsense", message_id=message_id)

    assert answer.head.correlation_id_raw == encode(message_id)
    assert other.head.correlation_id_raw == encode(message_id)


def asked(bench: Bench, client: Client, requests: Link, reply_to: str | None) -> None:
    properties = {"operation": "put-token", "name": AUDIENCE}
    client.ask(requests, bench.token(), properties, reply_to=reply_to)
    bench.pass_s()


def test_without_reply_to_the_answer_goes_to_the_same_session(bench: Bench) -> None:
    """The Python SDK's way."""
    client = bench.client(anonymous())
    other_session = client.connection.begin_session()
    elsewhere = client.receiver("$cbs", 10, name="elsewhere", session=other_session)
    requests = client.sender("$cbs")
    here = client.receiver("$cbs", 10, name="here")
    bench.pass_s()

    asked(bench, client, requests, None)

    assert len(client.answers(here)) == 1
    assert client.answers(elsewhere) == []


def test_reply_to_may_be_the_name_of_the_response_link(bench: Bench) -> None:
    """The JavaScript SDK's way."""
    client = bench.client(anonymous())
    requests = client.sender("$cbs")
    client.receiver("$cbs", 10, name="cbs-first")
    named = client.receiver("$cbs", 10, name="cbs-second")
    bench.pass_s()

    asked(bench, client, requests, "cbs-second")

    assert len(client.answers(named)) == 1


def test_reply_to_may_be_the_target_of_the_response_link(bench: Bench) -> None:
    """Java's and .NET's way."""
    client = bench.client(anonymous())
    requests = client.sender("$cbs")
    client.receiver("$cbs", 10, name="first", target="another")
    named = client.receiver("$cbs", 10, name="second", target="cbs-client-reply-to")
    bench.pass_s()

    asked(bench, client, requests, "cbs-client-reply-to")

    assert len(client.answers(named)) == 1


def test_of_two_equal_targets_the_one_on_the_same_session_gets_the_answer(bench: Bench) -> None:
    """Java names its response link the same way on every session."""
    client = bench.client(anonymous())
    other_session = client.connection.begin_session()
    client.receiver(
        "$cbs", 10, name="elsewhere", target="cbs-client-reply-to", session=other_session
    )
    requests = client.sender("$cbs")
    here = client.receiver("$cbs", 10, name="here", target="cbs-client-reply-to")
    bench.pass_s()

    asked(bench, client, requests, "cbs-client-reply-to")

    assert len(client.answers(here)) == 1


def test_an_answer_waits_for_credit(bench: Bench) -> None:
    client = bench.client(anonymous())
    requests = client.sender("$cbs")
    responses = client.receiver("$cbs", 0)
    bench.pass_s()

    asked(bench, client, requests, None)
    before = len(client.answers(responses))
    client.grant(responses, 1)
    bench.pass_s()

    assert (before, len(client.answers(responses))) == (0, 1)


def test_a_response_link_without_answers_is_drained(bench: Bench) -> None:
    client = bench.client(anonymous())
    responses = client.receiver("$cbs", 10)
    bench.pass_s()

    client.grant(responses, 10, drain=True)
    bench.pass_s()

    assert (responses.credit, responses.drain) == (0, False)


def test_of_answers_that_nobody_takes_only_the_latest_are_kept(bench: Bench) -> None:
    client = bench.client(anonymous())
    requests = client.sender("$cbs")
    responses = client.receiver("$cbs", 0)
    bench.pass_s()

    for number in range(PENDING_MAX + 10):
        client.ask(requests, "nonsense", {}, message_id=Ulong(number))
        bench.pass_s(0.001)
    client.grant(responses, 1000)
    bench.pass_s()

    ids = [answer.head.correlation_id for answer in client.answers(responses)]
    assert ids == [str(number) for number in range(10, PENDING_MAX + 10)]


def test_answers_are_settled_and_requests_accepted(bench: Bench, counter: Counter) -> None:
    counter.put(bench.token())

    [delivery] = counter.client.received(counter.responses)
    assert delivery.settled
    [state] = counter.client.outcomes(counter.requests).values()
    assert type(state).__name__ == "Accepted"


def test_a_request_without_a_way_back_is_accepted_and_answered_to_nobody(bench: Bench) -> None:
    client = bench.client(anonymous())
    requests = client.sender("$cbs")
    bench.pass_s()

    asked(bench, client, requests, "nobody")

    assert len(client.outcomes(requests)) == 1
    assert not client.is_closed()


def test_forged_expired_and_misdirected_tokens_are_unauthorized(
    bench: Bench, counter: Counter
) -> None:
    """R34."""
    forged = bench.token(AUDIENCE, key="another key")
    expired = bench.token(AUDIENCE, valid_s=-1)
    unknown = bench.token(AUDIENCE, key_name="nobody")
    elsewhere = bench.token("sb://shardbus/many")

    answers = [counter.put(token) for token in (forged, expired, unknown, elsewhere)]

    assert [status_of(answer) for answer in answers] == [Int(401)] * 4
    link = counter.client.receiver("q")
    bench.pass_s()
    assert counter.client.detach_error(link).condition == "amqp:unauthorized-access"


def test_what_is_no_token_is_a_bad_request(counter: Counter) -> None:
    put: dict[str, Value] = {"operation": "put-token", "name": AUDIENCE}
    answers = [
        counter.put("nonsense"),
        counter.put("SharedAccessSignature sr=a&sig=b"),
        counter.put(b"bytes"),
        counter.put(None),
        counter.put(["a", "list"]),
        counter.put("nonsense", Int(3)),
        counter.ask("nonsense", {"operation": "put-token"}),
        counter.ask("nonsense", {**put, "operation": "take-token"}),
        counter.ask("nonsense", {}),
    ]

    assert [status_of(answer) for answer in answers] == [Int(400)] * len(answers)
    assert not counter.client.is_closed()


def test_when_a_token_ends_so_do_the_links_that_lived_by_it(bench: Bench, counter: Counter) -> None:
    """R34."""
    client = counter.client
    counter.put(bench.token("sb://shardbus/q", valid_s=60), "sb://shardbus/q")
    counter.put(bench.token("sb://shardbus/many", valid_s=600), "sb://shardbus/many")
    mortal = [
        client.sender("q"),
        client.receiver("q", 10),
        client.receiver("q/$management", name="management"),
    ]
    surviving = client.receiver("many", 10, name="other")
    bench.pass_s(58)
    assert all(link.is_attached for link in mortal)

    bench.pass_s(3)

    assert {client.detach_error(link).condition for link in mortal} == {"amqp:unauthorized-access"}
    assert surviving.is_attached
    assert counter.requests.is_attached
    bench.fill("q", b"not for them")
    assert bench.left("q") == [b"not for them"]


def test_a_token_ends_within_a_bound_of_its_moment_however_the_clock_is_set(
    bench: Bench, counter: Counter
) -> None:
    """R34: shown while the clock was behind, it must not be good for that much longer."""
    token = bench.token(valid_s=1_800)
    bench.clock.wall.ahead_ms -= 3_600_000
    counter.put(token)
    link = counter.client.receiver("q", 10)
    bench.pass_s(1)
    assert link.is_attached

    bench.clock.wall.ahead_ms += 2 * 3_600_000
    bench.pass_s(LOOK_MS_MAX / 1000 + 1)

    assert counter.client.detach_error(link).condition == "amqp:unauthorized-access"


def test_a_renewed_token_keeps_the_links(bench: Bench, counter: Counter) -> None:
    """R34."""
    counter.put(bench.token(valid_s=60))
    link = counter.client.receiver("q", 10)
    bench.pass_s(30)
    counter.put(bench.token(valid_s=120))
    bench.pass_s(60)
    assert link.is_attached

    bench.pass_s(70)

    assert counter.client.detach_error(link).condition == "amqp:unauthorized-access"


def test_after_the_end_of_a_token_a_new_one_opens_links_again(
    bench: Bench, counter: Counter
) -> None:
    counter.put(bench.token(valid_s=10))
    counter.client.receiver("q", name="first")
    bench.pass_s(20)
    counter.put(bench.token(valid_s=10))
    again = counter.client.receiver("q", name="second")
    bench.pass_s()

    assert again.is_attached


def test_an_entity_rule_reaches_its_entity_alone(bench: Bench, counter: Counter) -> None:
    """R34."""
    spec = bench.namespace.get("q").spec.copy()
    spec.access_rules = [AccessRule("hear", LISTEN, "hear-key")]
    bench.run(bench.namespace.update_queue("q", spec))

    good = counter.put(bench.token(AUDIENCE, key_name="hear", key="hear-key"))
    wide = counter.put(bench.token(key_name="hear", key="hear-key"), "sb://shardbus/many")

    assert [status_of(good), status_of(wide)] == [Int(202), Int(401)]


def test_plain_with_the_key_gives_its_rights_for_the_whole_connection(bench: Bench) -> None:
    client = bench.client()
    links = [client.sender("q"), client.receiver("many", 1)]
    bench.pass_s(500)

    assert all(link.is_attached for link in links)


@pytest.mark.parametrize(
    "response", [b"\0RootManageSharedAccessKey\0wrong", b"\0nobody\0SAS_KEY_VALUE", b"", b"a\0b"]
)
def test_plain_with_a_wrong_key_is_not_let_in(bench: Bench, response: bytes) -> None:
    """R34."""
    client = bench.client(plain(response))

    assert client.close_error().condition == "amqp:unauthorized-access"
    assert client.transport.is_closed
    assert bench.server.connections == 0
