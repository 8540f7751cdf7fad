"""Whether the bus serves, and which broker or fragment does not (R3)."""

import json

import pytest

from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.server.message import HttpResponse
from tests.unit.gateway.http.web import Web

PATHS = ("/health", "/api/v1/health")


def ask(web: Web, path: str = PATHS[1], method: str = "GET") -> HttpResponse:
    return web.fetch(method, path)


def document(response: HttpResponse) -> dict[str, object]:
    value: dict[str, object] = json.loads(response.body)
    return value


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", PATHS)
def test_health_is_open(web: Web, path: str, method: str) -> None:
    assert web.fetch(method, path, token="").status == 200


@pytest.mark.parametrize("path", PATHS)
def test_a_stranger_is_told_how_the_bus_is_and_nothing_of_what_is_inside(
    web: Web, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R34."""
    web.send("many")
    handle = web.bus.find("many")
    assert handle is not None
    monkeypatch.setattr(handle.runners[3], "state", "unavailable")
    monkeypatch.setattr(handle.runners[3], "_reason", "/srv/b0.db: disk full")
    web.reasons = ["many, fragment 3: /srv/b0.db: disk full"]

    shown = web.fetch("GET", path, token="")

    assert document(shown)["status"] == "degraded"
    assert document(shown).keys() == {"status", "message"}
    for secret in (b"many", b"b0", b"disk", b"/"):
        assert secret not in shown.body
    web.outage = "broker b0 is out: no route to 10.0.0.7"
    gone = web.fetch("GET", path, token="")
    assert (gone.status, document(gone)["status"]) == (503, "unavailable")
    assert b"b0" not in gone.body


@pytest.mark.parametrize("path", PATHS)
def test_what_is_wrong_is_told_to_who_may_see_the_metrics(path: str) -> None:
    """R34."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("reader", LISTEN, "r")]
    web, opened = Web(), Web(is_open=True)
    web.create("guarded", spec=spec)
    web.run(
        web.namespace.set_rules([AccessRule("probe", LISTEN, "k"), AccessRule("in", SEND, "s")])
    )
    web.reasons = opened.reasons = ["broker-2 does not answer"]

    def reasons(one: Web, token: str) -> object:
        return document(one.fetch("GET", path, token=token)).get("reasons")

    assert reasons(opened, "") == web.reasons
    assert reasons(web, web.token()) == web.reasons
    assert reasons(web, web.token(key_name="probe", key="k")) == web.reasons
    for token in (
        web.token(key="wrong"),
        web.token(key_name="in", key="s"),
        web.token("sb://shardbus/guarded", key_name="reader", key="r"),
        "nonsense",
    ):
        assert web.fetch("GET", path, token=token).status == 401
    web.close()
    opened.close()


def test_a_healthy_bus_tells_of_its_brokers(web: Web) -> None:
    web.send("many")

    shown = document(ask(web))

    # wording: as the emulator says it
    assert (shown["status"], shown["message"]) == ("healthy", "Service is healthy.")
    assert shown["reasons"] == []
    assert shown["brokers"] == [
        {
            "name": "b0",
            "state": "available",
            "reason": "",
            "fragments_in_use": 16,
            "fragments_out": 0,
            "out": [],
        }
    ]


def test_the_plain_path_says_it_as_the_emulator_does(web: Web) -> None:
    shown = document(ask(web, "/health"))

    assert shown == {"status": "healthy", "message": "Service is healthy."}


def test_what_is_wrong_is_named_and_the_rest_serves(web: Web) -> None:
    """R3."""
    web.reasons = ["broker-2 does not answer"]

    response = ask(web)

    shown = document(response)
    assert (response.status, shown["status"]) == (200, "degraded")
    assert shown["reasons"] == ["broker-2 does not answer"]
    assert document(ask(web, "/health")) == shown


def test_a_fragment_that_is_out_is_named_with_its_broker(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3."""
    web.send("many")
    handle = web.bus.find("many")
    assert handle is not None
    fragment = handle.runners[3]
    monkeypatch.setattr(fragment, "state", "unavailable")
    monkeypatch.setattr(fragment, "_reason", "disk full")

    response = ask(web)

    [broker] = json.loads(response.body)["brokers"]
    assert response.status == 200
    assert (broker["state"], broker["fragments_out"]) == ("limited", 1)
    assert broker["out"] == [{"entity": "many", "number": 3, "reason": "disk full"}]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_when_no_broker_serves_the_bus_is_unavailable(web: Web, path: str, method: str) -> None:
    web.outage = "broker b0 is out: no route"
    web.reasons = [web.outage]

    response = ask(web, path, method)

    assert response.status == 503
    shown = document(response)
    assert (shown["status"], shown["message"]) == ("unavailable", web.outage)


def test_a_broker_of_which_no_fragment_serves_does_not_serve(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.send("q")
    handle = web.bus.find("q")
    assert handle is not None
    monkeypatch.setattr(handle.runners[0], "state", "unavailable")

    assert ask(web).status == 503


def test_a_broker_of_which_nothing_is_used_counts_as_serving(web: Web) -> None:
    response = ask(web)

    [broker] = json.loads(response.body)["brokers"]
    assert (response.status, broker["fragments_in_use"], broker["state"]) == (200, 0, "available")
