"""Sign-in with tokens of an issuer over AMQP and HTTP, in virtual time (R34)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from shardbus.amqp.events import SaslFailed
from shardbus.amqp.sasl import AUTH_FAILED, TEMPORARY
from shardbus.app.server.issuer import ASK_AGAIN_MS, REFRESH_MS, Issuer
from shardbus.broker.access.bearer import SKEW_S
from shardbus.broker.access.claim_grants import DEFAULT_GRANTS, parse_grant
from shardbus.broker.access.sign_in import SignIn, Terms
from shardbus.broker.fragment.alarm import LOOK_MS_MAX
from shardbus.codec.types import Int
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.server.message import HttpResponse
from tests.support.issuer import (
    AUDIENCE,
    OWNER,
    RECEIVER,
    SENDER,
    TestKey,
    claims_of,
    key_set,
    part,
    rsa_key,
)
from tests.unit.app.test_issuer import ONE, TWO, URL, WHERE, Net
from tests.unit.gateway.amqp.client import Client, anonymous, plain
from tests.unit.gateway.amqp.test_cbs import Counter, status_of
from tests.unit.gateway.http.web import Web

GRANTS: Final = (*DEFAULT_GRANTS, "role:clerk=Manage@many", "role:reader=Listen@q")
Q: Final = "sb://bus/q"
UNAUTHORIZED: Final = "amqp:unauthorized-access"


class SignInWeb(Web):
    """A bus that takes tokens of an issuer, whose documents are in `net`."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.issuer = Issuer(URL, self.clock, self.net.fetch)
        self.issuer.watch(self.server.check_access_again)
        self.issuer.watch(self.site.check_access_again)
        terms = Terms(URL, [AUDIENCE], [parse_grant(text) for text in GRANTS])
        self.bus.authorizer.sign_in = SignIn(terms, self.issuer, self.clock)
        self.running = self.loop.create_task(self.issuer.run())
        self.pass_s(1)

    def jwt(self, *roles: str, key: TestKey = ONE, **others: object) -> str:
        return key.sign(claims_of(URL, self.clock.now_ms() / 1000, *roles, **others))

    def bearer(
        self, method: str, target: str, text: str, headers: dict[str, str] | None = None
    ) -> HttpResponse:
        body = b"x" if method == "POST" else b""
        return self.fetch(method, target, body, headers or {}, token=f"Bearer {text}")

    def counter(self) -> Counter:
        return Counter(self, self.client(anonymous()))

    def close(self) -> None:
        self.running.cancel()
        self.pass_s()
        super().close()


@pytest.fixture
def web() -> Iterator[SignInWeb]:
    web = SignInWeb()
    yield web
    web.close()


def sasl_codes(client: Client) -> list[int]:
    return [event.code for event in client.events if isinstance(event, SaslFailed)]


def test_a_token_put_over_amqp_gives_what_its_roles_give(web: SignInWeb) -> None:
    counter = web.counter()

    answer = counter.put(web.jwt(SENDER), Q)
    sender, receiver = counter.client.sender("q"), counter.client.receiver("q")
    web.pass_s()

    assert status_of(answer) == Int(202)
    assert sender.is_attached
    assert counter.client.detach_error(receiver).condition == UNAUTHORIZED


def test_a_token_shown_over_plain_gives_what_its_roles_give(web: SignInWeb) -> None:
    """R38: so signs in JMS, which has no `$cbs`."""
    client = web.client(plain(b"\0$jwt\0" + web.jwt(SENDER, "reader").encode()))
    web.pass_s()
    sender, reader, other = client.sender("q"), client.receiver("q"), client.receiver("many")
    web.pass_s()

    assert sender.is_attached
    assert reader.is_attached
    assert client.detach_error(other).condition == UNAUTHORIZED


def test_links_of_a_token_shown_over_plain_end_with_it(web: SignInWeb) -> None:
    now_s = web.clock.now_ms() // 1000
    client = web.client(plain(b"\0$jwt\0" + web.jwt(OWNER, exp=now_s + 60).encode()))
    web.pass_s()
    link = client.receiver("q")

    web.pass_s(60 + SKEW_S - 5)
    assert link.is_attached
    web.pass_s(5 + LOOK_MS_MAX / 1000)

    assert client.detach_error(link).condition == UNAUTHORIZED


def test_a_long_token_fits_into_plain_and_a_longer_one_ends_the_connection(web: SignInWeb) -> None:
    """As long as `$cbs` accepts, which is more than other keys may have here."""
    fits = web.jwt(OWNER, more="x" * 5_000)
    assert 6_000 < len(fits) < 8_192
    client = web.client(plain(b"\0$jwt\0" + fits.encode()))
    longer = web.client(plain(b"\0$jwt\0" + b"x" * 9_300))
    web.pass_s()

    link = client.receiver("q")
    web.pass_s()

    assert link.is_attached
    assert longer.transport.is_closing()


@pytest.mark.parametrize(
    "made",
    [
        lambda web: web.jwt(OWNER, aud="https://vault.azure.net"),
        lambda web: web.jwt("nobody"),
        lambda web: web.jwt(OWNER, exp=1),
        lambda web: TestKey("one", TWO.private).sign(claims_of(URL, 1, OWNER)),
        lambda web: "not.a.token",
        lambda web: "\u00e9",
        lambda web: "",
    ],
)
def test_a_bad_token_over_plain_opens_nothing(
    web: SignInWeb, made: Callable[[SignInWeb], str]
) -> None:
    client = web.client(plain(b"\0$jwt\0" + made(web).encode()))
    web.pass_s()

    assert sasl_codes(client) == [AUTH_FAILED]


def test_a_signature_is_no_token_for_plain(web: SignInWeb) -> None:
    """It may be a guess: it is answered as a wrong key is, and counted with them."""
    client = web.client(plain(b"\0$jwt\0" + web.token().encode()))
    web.pass_s(60)

    assert sasl_codes(client) == [AUTH_FAILED]
    assert client.protocol.counts.keys_refused == 1


def test_without_keys_plain_is_told_to_try_again(web: SignInWeb) -> None:
    token = web.jwt(OWNER)
    web.issuer._known = None
    web.net.is_up = False

    client = web.client(plain(b"\0$jwt\0" + token.encode()))
    web.pass_s()

    assert sasl_codes(client) == [TEMPORARY]


def test_links_end_when_the_token_does_and_a_minute_of_skew(web: SignInWeb) -> None:
    counter = web.counter()
    client = counter.client
    now_s = web.clock.now_ms() // 1000
    counter.put(web.jwt(OWNER, exp=now_s + 60), Q)
    counter.put(web.jwt(OWNER), "sb://bus/many")
    ends, stays = client.receiver("q"), client.receiver("many")

    web.pass_s(60 + SKEW_S - 5)
    assert ends.is_attached
    web.pass_s(5 + LOOK_MS_MAX / 1000)

    assert client.detach_error(ends).condition == UNAUTHORIZED
    assert stays.is_attached


def test_links_end_when_the_issuer_withdraws_the_key(web: SignInWeb) -> None:
    """And so does a request that waits."""
    web.net.documents[WHERE] = key_set(ONE, TWO)
    web.pass_s(REFRESH_MS / 1000 + 1)
    counter, other = web.counter(), web.counter()
    counter.put(web.jwt(OWNER, key=ONE), Q)
    other.put(web.jwt(OWNER, key=TWO), Q)
    ends, stays = counter.client.receiver("q"), other.client.receiver("q")
    web.pass_s()
    request = web.request(
        "DELETE", "/many/messages/head?timeout=60", token=f"Bearer {web.jwt(OWNER)}"
    )
    web.net.documents[WHERE] = key_set(TWO)
    web.pass_s(REFRESH_MS / 1000 - 5)
    waiting = web.start(request)
    web.pass_s(1)
    was_waiting = not waiting.done()

    web.pass_s(6)

    assert was_waiting
    assert waiting.done()
    assert counter.client.detach_error(ends).condition == UNAUTHORIZED
    assert stays.is_attached


def test_a_new_key_is_learnt_while_its_first_token_waits(web: SignInWeb) -> None:
    web.net.documents[WHERE] = key_set(TWO)
    web.pass_s(ASK_AGAIN_MS / 1000)
    counter = web.counter()
    fetched = len(web.net.asked)

    counter.client.ask(
        counter.requests,
        web.jwt(OWNER, key=TWO),
        {"operation": "put-token", "type": "jwt", "name": Q},
        message_id="1",
    )
    over_http = web.bearer("GET", "/q", web.jwt(OWNER, key=TWO))
    web.pass_s()

    [answer] = counter.client.answers(counter.responses)
    assert (status_of(answer), over_http.status) == (Int(202), 200)
    assert len(web.net.asked) == fetched + 2, "both waited for one answer"
    assert web.bearer("GET", "/q", web.jwt(OWNER, key=ONE)).status == 401


def test_without_keys_the_answer_is_to_try_again(web: SignInWeb) -> None:
    web.issuer._known = None
    web.net.is_up = False
    counter = web.counter()

    answer = counter.put(web.jwt(OWNER), Q)
    over_http = web.bearer("GET", "/q", web.jwt(OWNER))

    assert (status_of(answer), over_http.status) == (Int(503), 503)
    assert web.fetch("GET", "/q").status == 200, "keys of the bus go on being good"


def test_each_part_of_the_http_side_takes_the_token(web: SignInWeb) -> None:
    owner = web.jwt(OWNER)

    statuses = [
        web.bearer("GET", "/q", owner).status,
        web.bearer("GET", "/$Resources/queues", owner).status,
        web.bearer("POST", "/q/messages", owner).status,
        web.bearer("DELETE", "/q/messages/head?timeout=0", owner).status,
        web.bearer("GET", "/api/v1/namespace", owner).status,
        web.bearer("GET", "/api/v1/health", owner).status,
    ]

    assert statuses == [200, 200, 201, 200, 200, 200]


def test_a_role_opens_over_http_what_it_is_for(web: SignInWeb) -> None:
    sender, receiver, clerk, reader = map(web.jwt, (SENDER, RECEIVER, "clerk", "reader"))

    assert web.bearer("POST", "/q/messages", sender).status == 201
    assert web.bearer("POST", "/q/messages", receiver).status == 401
    assert web.bearer("DELETE", "/q/messages/head?timeout=0", receiver).status == 200
    assert web.bearer("DELETE", "/q/messages/head?timeout=0", sender).status == 401
    assert web.bearer("GET", "/q", sender).status == 401
    assert web.bearer("GET", "/many", clerk).status == 200
    for target in ("/q", "/$Resources/queues", "/api/v1/namespace"):
        assert web.bearer("GET", target, clerk).status == 401
    assert web.bearer("POST", "/many/messages", reader).status == 401
    told = web.bearer("POST", "/q/messages", receiver).body.decode()
    assert "'Send' claim(s) are required" in told


def test_what_a_token_is_good_for_is_told(web: SignInWeb) -> None:
    now_s = web.clock.now_ms() // 1000

    told = json.loads(web.bearer("GET", "/api/v1/token", web.jwt("clerk", exp=now_s + 60)).body)

    assert told["rule"] == "oidc:00000000-0000-0000-0000-000000000001"
    assert (told["entity"], told["resource"]) == ("many", "")
    assert told["rights"] == ["Manage", "Send", "Listen"]


def test_a_second_token_lets_an_entity_forward(web: SignInWeb) -> None:
    """The administration client shows one for the destination, and calls it a bearer's."""
    body = (
        b'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        b'<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/'
        b'connect"><ForwardTo>q</ForwardTo></QueueDescription></content></entry>'
    )

    def put(second: str) -> int:
        return web.fetch(
            "PUT",
            "/new?api-version=2021-05",
            body,
            {"ServiceBusSupplementaryAuthorization": f"Bearer {second}"},
            token=f"Bearer {web.jwt(OWNER)}",
        ).status

    assert put(web.jwt(RECEIVER)) == 401
    assert put(web.jwt(SENDER)) == 201


BAD: Final[dict[str, Callable[[SignInWeb], str]]] = {
    "unsigned": lambda web: (
        f"{part({'alg': 'none', 'kid': 'one'})}.{part(claims_of(URL, 0, OWNER))}."
    ),
    "of another key": lambda web: web.jwt(OWNER, key=rsa_key("one")),
    "of an unknown key": lambda web: web.jwt(OWNER, key=rsa_key("three")),
    "for somebody else": lambda web: web.jwt(OWNER, aud="https://vault.azure.net"),
    "of another issuer": lambda web: web.jwt(OWNER, iss="https://evil.example"),
    "expired": lambda web: web.jwt(OWNER, exp=web.clock.now_ms() // 1000 - SKEW_S),
    "not yet valid": lambda web: web.jwt(OWNER, nbf=web.clock.now_ms() // 1000 + SKEW_S + 9),
    "without a role": lambda web: web.jwt(),
    "of a role for another entity": lambda web: web.jwt("clerk"),
    "huge": lambda web: web.jwt(OWNER, more="x" * 9_000),
    "garbage": lambda web: "eyJhbGciOiJSUzI1NiJ9.e30.AAAA",
}
MALFORMED: Final = ("huge",)


@pytest.mark.parametrize("made", BAD)
def test_a_bad_token_opens_nothing_and_is_told_to_nobody(
    web: SignInWeb, made: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = BAD[made](web)
    counter = web.counter()

    answer = counter.put(text, Q)
    link = counter.client.sender("q")
    web.pass_s()
    responses = [
        web.bearer(method, target, text)
        for method, target in (("GET", "/q"), ("POST", "/q/messages"), ("GET", "/api/v1/namespace"))
    ]

    assert status_of(answer) == Int(400 if made in MALFORMED else 401)
    assert counter.client.detach_error(link).condition == UNAUTHORIZED
    assert [response.status for response in responses] == [401] * 3
    assert ("WWW-Authenticate", "Bearer") in responses[0].headers
    told = [str(answer.application_properties), caplog.text]
    told += [response.body.decode() for response in responses]
    for piece in text.split("."):
        assert len(piece) < 8 or not any(piece in each for each in told)


def test_a_client_without_rights_stays_a_stranger(web: SignInWeb) -> None:
    """It keeps none of the room that those have who may do something."""
    counter = web.counter()

    answer = counter.put(web.jwt("Reader"), Q)
    web.pass_s(25)

    assert status_of(answer) == Int(401)
    assert counter.client.is_closed()


def test_subscriptions_are_reached_by_the_role_for_their_topic(web: SignInWeb) -> None:
    web.run(web.namespace.delete("many"))
    web.create_topic("many", spec=EntitySpec())
    web.subscribe("many", "s")
    counter = web.counter()

    answer = counter.put(web.jwt("clerk"), "sb://bus/many/Subscriptions/s")
    link = counter.client.receiver("many/Subscriptions/s")
    web.pass_s()

    assert status_of(answer) == Int(202)
    assert link.is_attached
