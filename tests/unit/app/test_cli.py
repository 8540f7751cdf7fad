"""The command line: what it prints, in both forms, and how it ends."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from shardbus import __version__
from shardbus.app.cli.access import access_from
from shardbus.app.cli.main import main
from tests.unit.app.namespace import Namespace

NOBODY = "http://127.0.0.1:1"
KEY = "SharedAccessKeyName=n;SharedAccessKey=k"
EMULATOR = f"Endpoint=sb://bus:5672;{KEY};UseDevelopmentEmulator=true"
NAMESPACE = f"Endpoint=sb://bus:443;{KEY}"


class Handler(BaseHTTPRequestHandler):
    """Hands every request to the namespace of the server."""

    namespace: Namespace

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        answer = self.namespace.ask(self.command, self.path, dict(self.headers.items()), body)
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Silence: the base class writes every request to standard error."""


@pytest.fixture
def namespace() -> Namespace:
    return Namespace()


@pytest.fixture
def endpoint(namespace: Namespace) -> Iterator[str]:
    handler = type("BoundHandler", (Handler,), {"namespace": namespace})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def test_version_as_json_is_one_document_with_the_version_and_the_build() -> None:
    document = json.loads(run("version", "--json").stdout)

    assert document["version"] == __version__
    assert isinstance(document["compiled"], bool)


def test_version_for_people_is_one_line() -> None:
    assert run("version").stdout.startswith(f"shardbus {__version__} (")


def test_create_sends_what_was_asked_for_and_shows_the_queue(
    namespace: Namespace, endpoint: str
) -> None:
    """R5, R31"""
    result = run(
        "queue", "create", "orders", "--endpoint", endpoint, "--no-partitioning", "--size-gb", "5",
        "--lock-duration", "30s", "--dead-letter-on-expiration", "--json",
    )  # fmt: skip

    assert (result.exit_code, result.stderr) == (0, "")
    assert namespace.queues["orders"] == {
        "LockDuration": "PT30S",
        "MaxSizeInMegabytes": "5120",
        "DeadLetteringOnMessageExpiration": "true",
        "EnablePartitioning": "false",
    }
    document = json.loads(result.stdout)
    assert (document["name"], document["fragment_count"]) == ("orders", 1)


def test_a_bare_create_leaves_every_choice_to_the_bus(namespace: Namespace, endpoint: str) -> None:
    """R5: the default is the bus's own, for every client the same."""
    assert run("queue", "create", "orders", "--endpoint", endpoint).exit_code == 0

    assert namespace.queues["orders"] == {}


def test_show_tells_the_maximum_size_as_size_times_fragments(
    namespace: Namespace, endpoint: str
) -> None:
    """R9"""
    namespace.fragment_count = 16
    namespace.queues["orders"] = {"MaxSizeInMegabytes": "81920", "EnablePartitioning": "true"}

    result = run("queue", "show", "orders", "--endpoint", endpoint)

    assert "80 GB (5 GB x 16 fragments)" in result.stdout


def test_list_shows_a_line_for_each_queue_and_as_json_an_array(
    namespace: Namespace, endpoint: str
) -> None:
    namespace.queues = {"a": {"MaxSizeInMegabytes": "1024"}, "b": {}}

    lines = run("queue", "list", "--endpoint", endpoint).stdout.splitlines()
    document = json.loads(run("queue", "list", "--endpoint", endpoint, "--json").stdout)

    assert [line.split()[0] for line in lines] == ["NAME", "a", "b"]
    assert [queue["name"] for queue in document] == ["a", "b"]


def test_update_changes_one_property_and_delete_removes_the_queue(
    namespace: Namespace, endpoint: str
) -> None:
    namespace.queues["orders"] = {"LockDuration": "PT1M", "MaxDeliveryCount": "10"}
    at = ("--endpoint", endpoint)

    assert run("queue", "update", "orders", "--max-delivery-count", "3", *at).exit_code == 0
    assert namespace.queues["orders"] == {"LockDuration": "PT1M", "MaxDeliveryCount": "3"}

    assert run("queue", "delete", "orders", "--yes", *at).stdout == "deleted orders\n"
    assert namespace.queues == {}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["queue", "show", "absent"], 4, "there is no queue absent"),
        (["queue", "update", "absent"], 2, "nothing to change"),
        (["queue", "create", "q", "--lock-duration", "soon"], 2, "--lock-duration: 'soon'"),
        (["queue", "list", "--connection-string", "x"], 2, "has no value"),
        (["queue", "list", "--connection-string", "x=y", "--key", "k"], 2, "not both"),
    ],
)
def test_a_failure_goes_to_standard_error_with_its_exit_code(
    endpoint: str, words: list[str], code: int, message: str
) -> None:
    result = run(*words, "--endpoint", endpoint)

    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_a_failure_as_json_is_still_one_document() -> None:
    result = run("queue", "list", "--endpoint", NOBODY, "--json")

    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"]["kind"] == "unavailable"


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ({}, "http://127.0.0.1:5300"),
        ({"connection_string": EMULATOR}, "http://bus:5672"),
        ({"connection_string": EMULATOR.replace(":5672", "")}, "http://bus:5300"),
        ({"connection_string": NAMESPACE}, "https://bus:443"),
        ({"connection_string": EMULATOR, "endpoint": "http://other:1"}, "http://other:1"),
    ],
)
def test_the_management_api_is_found_beside_the_address_of_a_connection_string(
    options: dict[str, str], endpoint: str
) -> None:
    assert access_from(options).endpoint == endpoint


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tier", "gold"], "setting tier (flag --tier)"),
        (["--host", "0.0.0.0"], "give your own key"),
        (["--config", "absent.toml"], "cannot be read"),
        (["--broker-restart-ms", "0"], "1 to 600000"),
    ],
)
def test_serve_refuses_a_bad_setting_before_it_starts(words: list[str], message: str) -> None:
    result = run("serve", *words)

    assert result.exit_code == 2
    assert message in result.stderr
