"""The JSON API against its own description: Schemathesis asks what that allows, and what not.

Whatever is asked, the answer has a status, a type and a form that the description names, and is no
failure of the bus. That a request of the right form is accepted is not expected: whether there is
such an entity, or such a lock, no schema says.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import requests
import schemathesis
from azure.servicebus.management import ServiceBusAdministrationClient
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from shardbus.app.cli.sas import parse_connection_string
from shardbus.broker.access.sas import mint_token
from shardbus.gateway.http.messaging.requests import WAIT_MS_MAX
from shardbus.gateway.http.observing import readers
from shardbus.gateway.http.observing.metrics import TABLE
from shardbus.gateway.readings import AMQP_REFUSED, AMQP_REQUESTS, FLIGHT_UP
from shardbus.message.sections import encode_batch, encode_data_message
from tests.support.server import Server, running_server

if TYPE_CHECKING:
    from schemathesis.specs.openapi.schemas import OpenApiCase, OpenApiOperation

EXAMPLES = 15
"""Of each operation and mode, all of them in half a minute."""
WAIT_SHORT_MS = 5
OCTETS = "application/octet-stream"
LOCK_LONG = timedelta(minutes=5)
NAMES = (
    "plain",
    "parted",
    "sessions",
    "news",
    "news/Subscriptions/all",
    "plain/$DeadLetterQueue",
    "parted/$Transfer/$DeadLetterQueue",
)
SEED = 6

UNMEANT = [positive_data_acceptance, ignored_auth]
"""Checks of what no schema can say here, and of what `tests/unit/gateway/http` checks better."""

CONFIG = SchemathesisConfig.from_dict(
    {
        "checks": {
            # What is longer than a text may be can be longer than a request may be.
            "negative_data_rejection": {
                "expected-statuses": [400, 401, 403, 404, 405, 409, 413, "5xx"]
            }
        }
    }
)


class Bus:
    """A running bus with some of everything in it, and its description."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = f"http://{server.host}:{server.http_port}"
        credential = parse_connection_string(server.connection_string).credential
        expires_at_s = int(time.time()) + 3600
        self.token = mint_token(self.url, credential.key_name, credential.key, expires_at_s)
        self.session = requests.Session()
        self.session.trust_env = False
        self.to_settle: list[str] = []
        self.to_renew: list[str] = []
        self.session_token = ""
        self.scheduled = 0
        self.jobs: list[str] = []
        self.deferred = 0

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        status: int = 200,
    ) -> dict[str, object]:
        answer = self.session.request(
            method,
            f"{self.url}/api/v1/{path}",
            headers={"Authorization": self.token},
            data=None if body is None else json.dumps(body),
            timeout=20,
        )
        assert answer.status_code == status, answer.text
        document: dict[str, object] = answer.json()
        return document

    def fill(self) -> None:
        """Messages everywhere, some of them locked, one dead, and rules."""
        with ServiceBusAdministrationClient.from_connection_string(
            self.server.connection_string,
            connection_verify=str(self.server.ca_file),
            retry_total=0,
        ) as administration:
            administration.create_queue("plain", enable_partitioning=False, lock_duration=LOCK_LONG)
            administration.create_queue("parted", enable_partitioning=True)
            administration.create_queue("sessions", requires_session=True, lock_duration=LOCK_LONG)
            administration.create_topic("news")
            administration.create_subscription("news", "all")
        for word in ("changed", "gone"):
            self.ask("PUT", f"queues/{word}", {}, status=201)
            self.ask("PUT", f"topics/{word}-topic", {}, status=201)
            self.ask("PUT", f"topics/changed-topic/subscriptions/{word}", {}, status=201)
            self.ask("PUT", f"entities/news%2FSubscriptions%2Fall/rules/{word}", {})
        for rule in ("access-rules/reader", "access-rules/spare"):
            self.ask("PUT", rule, {"rights": ["Listen"]})
            self.ask("PUT", f"entities/plain/{rule}", {"rights": ["Listen"]})
        for name in ("kept", "spare"):
            self.ask("PUT", f"pipelines/{name}", {"entity": "plain", "path": name})
        self.ask("PUT", "queues/recorded", {"lifecycle": True}, status=201)
        figures = {"kind": "lifecycle", "entity": "recorded", "path": "figures"}
        self.ask("PUT", "pipelines/figures", figures)
        self.ask("PUT", "pipelines/causes", {"kind": "triage", "entity": "plain"})
        messages = [{"body": f"{number}", "session_id": "s"} for number in range(20)]
        for name in ("plain", "parted", "sessions", "news"):
            self.ask("POST", f"entities/{name}/messages", {"messages": messages})
        later = {"messages": [{"body": "later", "scheduled_at": "2090-01-01T00:00:00Z"}]}
        [self.scheduled] = self._numbers(self.ask("POST", "entities/plain/messages", later))
        deferred = self.ask("POST", "entities/plain/messages/receive", {})
        self.deferred = int(str(self._first(deferred, "sequence_number")))
        settlement = {"action": "defer", "lock_tokens": [self._first(deferred, "lock_token")]}
        self.ask("POST", "entities/plain/messages/settle", settlement)
        for _ in range(2):
            job = self.ask("POST", "entities/plain/jobs", {"action": "export"}, status=201)
            self.jobs.append(str(job["id"]))
            while self.ask("GET", f"entities/plain/jobs/{job['id']}")["state"] == "running":
                time.sleep(0.05)
        dead, *self.to_settle = self._lock("plain", 3)
        self.to_renew = self._lock("plain", 2)
        settlement = {"action": "dead_letter", "lock_tokens": [dead]}
        self.ask("POST", "entities/plain/messages/settle", settlement)
        held = self.ask("POST", "entities/sessions/messages/receive", {})["session"]
        assert isinstance(held, dict)
        self.session_token = held["lock_token"]

    def _numbers(self, sent: dict[str, object]) -> list[int]:
        numbers = sent["sequence_numbers"]
        assert isinstance(numbers, list)
        return numbers

    def _first(self, received: dict[str, object], member: str) -> object:
        messages = received["messages"]
        assert isinstance(messages, list)
        found: object = messages[0][member]
        return found

    def _lock(self, name: str, count: int) -> list[str]:
        received = self.ask("POST", f"entities/{name}/messages/receive", {"count": count})
        messages = received["messages"]
        assert isinstance(messages, list)
        return [message["lock_token"] for message in messages]


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    with running_server(tmp_path_factory.mktemp("openapi") / "data") as server:
        bus = Bus(server)
        bus.fill()
        yield bus
        bus.session.close()


def operations(bus: Bus) -> list[OpenApiOperation]:
    """All there is. The token is ours to send: without it nothing but 401 would be seen."""
    description = bus.ask("GET", "openapi.json")
    paths = description["paths"]
    assert isinstance(paths, dict)
    for path in paths.values():
        for operation in path.values():
            operation["security"] = []
    schema = schemathesis.openapi.from_dict(description, config=CONFIG)
    found = list(schema.get_all_operations())
    assert all(isinstance(result, Ok) for result in found)
    # Starting a pipeline starts a Spark, which is for tests of its own.
    return [
        result.ok()
        for result in found
        if isinstance(result, Ok) and not result.ok().path.endswith("/start")
    ]


def name_something(case: OpenApiCase, name: str, bus: Bus) -> None:
    """Let a request get further than to an entity or rule that does not exist."""
    variables, path = case.path_parameters, case.operation.path
    chosen = {"put": "made", "patch": "changed", "delete": "gone"}.get(case.operation.method, "")
    if "name" in variables:
        if path.endswith("/topics/{name}"):
            variables["name"] = f"{chosen}-topic" if chosen else "news"
        elif "/topics/" in path:
            variables["name"] = "changed-topic"
        elif path.endswith("/queues/{name}"):
            variables["name"] = chosen or name
        elif "/rules" in path:
            variables["name"] = "news/Subscriptions/all"
        else:
            variables["name"] = "plain" if "/access-rules" in path else name
    if "pipeline" in variables:
        shown = {"hours": "figures", "report": "causes"}.get(path.rpartition("/")[2], "kept")
        variables["pipeline"] = {"delete": "spare", "put": "made"}.get(case.operation.method, shown)
    if "backup" in variables:
        variables["backup"] = "nightly"
    name_parts(case, chosen, bus)


def name_parts(case: OpenApiCase, chosen: str, bus: Bus) -> None:
    """Name what belongs to the entity."""
    variables, path = case.path_parameters, case.operation.path
    if "job" in variables:
        variables["name"] = "plain"
        variables["job"] = bus.jobs[case.operation.method == "delete"]
    if "number" in variables:
        variables["number"] = "10"
    if "subscription" in variables:
        variables["subscription"] = chosen or "changed"
    if path.endswith("/rules/{rule}") and "access" not in path:
        variables["rule"] = chosen or "changed"
    elif "rule" in variables:
        variables["rule"] = "spare" if case.operation.method == "delete" else "reader"


def hold_something(case: OpenApiCase, bus: Bus) -> None:
    """Let a request get further than to a lock that nobody holds."""
    if not isinstance(case.body, dict):
        return
    if case.body.get("entity") == "orders":
        case.body["entity"] = "plain"
    if "session_id" in case.body and "/sessions/" in case.operation.path:
        # That one is free; `s` is held.
        case.path_parameters["name"], case.body["session_id"] = "sessions", "free"
    if isinstance(case.body.get("numbers"), list) and "/deferred/" in case.operation.path:
        case.path_parameters["name"], case.body["numbers"] = "plain", [bus.deferred]
    if isinstance(case.body.get("numbers"), list) and "/scheduled/" in case.operation.path:
        case.path_parameters["name"], case.body["numbers"] = "plain", [bus.scheduled]
    if "lock_tokens" in case.body:
        is_renewal = case.operation.path.endswith("/renew")
        case.path_parameters["name"] = "plain"
        case.body["lock_tokens"] = [*(bus.to_renew if is_renewal else bus.to_settle)]
    if "session_lock_token" in case.body:
        case.path_parameters["name"] = "sessions"
        case.body["session_lock_token"] = bus.session_token


def shorten(case: OpenApiCase) -> None:
    """Nobody is to wait for messages that do not come."""
    wait_ms = case.body.get("wait_ms") if isinstance(case.body, dict) else None
    # What is too long stays so: it is refused.
    if isinstance(case.body, dict) and isinstance(wait_ms, int) and 0 <= wait_ms <= WAIT_MS_MAX:
        case.body["wait_ms"] = min(wait_ms, WAIT_SHORT_MS)


def call(bus: Bus, case: OpenApiCase) -> int:
    """Ask, and hold the answer against the description; its status."""
    response = case.call(
        base_url=bus.url,
        session=bus.session,
        headers={"Authorization": bus.token},
        timeout=20,
    )
    case.validate_response(response, excluded_checks=UNMEANT)
    return response.status_code


def example_of(operation: OpenApiOperation) -> OpenApiCase:
    """What the description shows, about entities that there are."""
    variables = dict.fromkeys(re.findall(r"{(\w+)}", operation.path), "")
    raw = operation.definition.raw
    if "requestBody" not in raw:
        return operation.Case(path_parameters=variables)
    content = raw["requestBody"]["content"]
    if OCTETS in content:
        batch = encode_batch([encode_data_message(b"staged")])
        return operation.Case(path_parameters=variables, body=batch, media_type=OCTETS)
    body = content["application/json"]["example"]
    return operation.Case(
        path_parameters=variables, body=copy.deepcopy(body), media_type="application/json"
    )


# There are no orphans, which come of lost catalogues, and no repartition that was cut off.
WITHOUT_CAUSE = {
    "/api/v1/orphans/remove": 404,
    "/api/v1/orphans/recover": 404,
    "/api/v1/entities/{name}/repartition/cancel": 400,
}


def test_the_examples_of_the_description_work(bus: Bus) -> None:
    for operation in operations(bus):
        case = example_of(operation)
        name_something(case, "plain", bus)
        hold_something(case, bus)
        shorten(case)

        success = int(next(iter(operation.definition.raw["responses"])))
        status = WITHOUT_CAUSE.get(operation.path, success)
        assert (operation.label, call(bus, case)) == (operation.label, status)


def test_a_running_bus_fills_every_metric_that_needs_no_accident(bus: Bus) -> None:
    """R29."""
    families = bus.ask("GET", "metrics")["families"]
    assert isinstance(families, list)

    filled = {family["name"] for family in families if family["samples"]}

    # Nor has anybody a reader, nor is this a node of a cluster.
    empty = {AMQP_REFUSED, AMQP_REQUESTS, FLIGHT_UP, readers.CLAIMED, readers.LAG}
    of_clusters = {name for name, _, _ in TABLE if name.startswith("shardbus_cluster_")}
    assert {name for name, _, _ in TABLE} - filled <= empty | of_clusters


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_every_answer_is_as_the_description_says(bus: Bus, mode: GenerationMode) -> None:
    """No status, type or form that is not named there, and none that says that we failed."""

    def check(operation: OpenApiOperation) -> None:
        @seed(SEED)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(
            case=operation.as_strategy(generation_mode=mode),
            name=st.sampled_from(NAMES),
            is_known=st.sampled_from([True, True, True, False]),
        )
        def run(case: OpenApiCase, name: str, is_known: bool) -> None:
            if is_known:
                name_something(case, name, bus)
            if is_known and mode.is_positive:
                hold_something(case, bus)
            shorten(case)
            call(bus, case)

        run()

    for operation in operations(bus):
        if mode.is_positive or operation.body or operation.query:
            check(operation)

    assert bus.server.is_running
    assert "Traceback" not in bus.server.output
