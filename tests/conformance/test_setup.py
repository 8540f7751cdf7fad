"""Namespaces from files: a bus that starts with them, and commands that apply and export them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.support.commands import run
from tests.support.server import Server, running_server, serve_and_fail

WAIT_S: Final = 20

# In the words of the emulator's own example, with partitioning beside it.
CONFIG: Final = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    },
                    {"Name": "single", "Properties": {"EnablePartitioning": False}},
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {"DefaultMessageTimeToLive": "PT1H"},
                        "Subscriptions": [
                            {
                                "Name": "by-property",
                                "Properties": {"MaxDeliveryCount": 3},
                                "Rules": [
                                    {
                                        "Name": "red",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"Properties": {"colour": "red"}},
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": "by-sql",
                                "Rules": [
                                    {
                                        "Name": "large",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "amount > 5"},
                                            "Action": {"SqlExpression": "SET size = 'large'"},
                                        },
                                    }
                                ],
                            },
                            {"Name": "everything", "Properties": {"ForwardTo": "single"}},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("setup") / "Config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def set_up(config: Path) -> Iterator[Server]:
    with running_server(config.with_name("data"), "--config", str(config)) as server:
        yield server


def administration(server: Server) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=str(server.ca_file), retry_total=0
    )


def received(client: ServiceBusClient, *path: str) -> list[ServiceBusMessage]:
    """The first messages of a queue or of a subscription, completed."""
    if len(path) == 2:
        receiver = client.get_subscription_receiver(*path)
    else:
        receiver = client.get_queue_receiver(*path)
    with receiver:
        messages = receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
        for message in messages:
            receiver.complete_message(message)
    return list(messages)


def test_the_emulators_file_as_it_is_makes_a_bus_that_the_sdk_uses(set_up: Server) -> None:
    """R5, R30, R31: partitioned unless the file says otherwise; rules filter and act."""
    with administration(set_up) as admin:
        queue, single = admin.get_queue("queue.1"), admin.get_queue("single")
        rules = [rule.name for rule in admin.list_rules("topic.1", "by-property")]
    with ServiceBusClient.from_connection_string(set_up.connection_string) as client:
        with client.get_queue_sender("queue.1") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_topic_sender("topic.1") as sender:
            news = ServiceBusMessage("news", application_properties={"colour": "red", "amount": 7})
            sender.send_messages(news)
        plain = received(client, "queue.1")
        red = received(client, "topic.1", "by-property")
        large = received(client, "topic.1", "by-sql")
        forwarded = received(client, "single")

    assert (queue.enable_partitioning, single.enable_partitioning) == (True, False)
    assert (queue.max_delivery_count, rules) == (3, ["red"])
    assert [str(message) for message in (*plain, *red, *forwarded)] == ["hello", "news", "news"]
    assert [(message.application_properties or {})[b"size"] for message in large] == [b"large"]


def test_started_again_with_its_file_a_bus_keeps_what_it_has(set_up: Server, config: Path) -> None:
    """R5: created entities are kept, and what was changed meanwhile is as the file says again."""
    with (
        ServiceBusClient.from_connection_string(set_up.connection_string) as client,
        client.get_queue_sender("single") as sender,
    ):
        sender.send_messages(ServiceBusMessage("kept"))
    changed = run(set_up, "queue", "update", "queue.1", "--max-delivery-count", "9")
    drift = run(set_up, "apply", str(config), "--dry-run")

    set_up.restart()

    after = run(set_up, "apply", str(config), "--dry-run")
    with ServiceBusClient.from_connection_string(set_up.connection_string) as client:
        messages = received(client, "single")
    assert changed[0] == 0
    assert (drift[0], "MaxDeliveryCount: 9 -> 3" in drift[1]) == (5, True)
    assert (after[0], after[1].splitlines()[-1]) == (0, "nothing to do")
    assert [str(message) for message in messages] == ["kept"]


@pytest.mark.parametrize("form", ["arm", "emulator", "toml"])
def test_a_namespace_that_was_exported_is_no_difference(
    set_up: Server, tmp_path: Path, form: str
) -> None:
    """R31."""
    out = str(tmp_path / ("out.toml" if form == "toml" else "out.json"))

    exported = run(set_up, "export", "--form", form, "--out", out)
    again = run(set_up, "apply", out)

    assert exported[0] == 0, exported
    assert (again[0], again[1].splitlines()[-1]) == (0, "0 of 0 changes made"), again


def test_a_template_is_applied_exported_and_applied_again(set_up: Server, tmp_path: Path) -> None:
    """R31, R34: partitioning, sizes, access rules and parameters of an ARM template."""
    kind = "Microsoft.ServiceBus/namespaces"
    queues = {"type": f"{kind}/queues", "apiVersion": "2022-10-01-preview"}
    document = {
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "parameters": {
            "bus": {"type": "string", "defaultValue": "[uniqueString(resourceGroup().id)]"},
            "isSpread": {"type": "bool", "defaultValue": False},
        },
        "resources": [
            {
                **queues,
                "name": "[concat(parameters('bus'), '/arm-spread')]",
                "properties": {"enablePartitioning": True, "maxSizeInMegabytes": 2048},
            },
            {
                **queues,
                "name": "[concat(parameters('bus'), '/arm-chosen')]",
                "properties": {"enablePartitioning": "[parameters('isSpread')]"},
                "resources": [
                    {
                        "type": "authorizationRules",
                        "name": "listener",
                        "properties": {"rights": ["Listen"]},
                    }
                ],
            },
        ],
    }
    template, out = tmp_path / "template.json", tmp_path / "out.json"
    template.write_text(json.dumps(document), encoding="utf-8")

    applied = run(set_up, "apply", str(template))
    second = run(set_up, "apply", str(template), "--dry-run")
    blocked = run(set_up, "apply", str(template), "--parameter", "isSpread=true")
    exported = run(set_up, "export", "--form", "arm", "--out", str(out))
    again = run(set_up, "apply", str(out), "--dry-run")
    shown = json.loads(run(set_up, "queue", "show", "arm-spread", "--json")[1])
    single = json.loads(run(set_up, "queue", "show", "arm-chosen", "--json")[1])

    assert (applied[0], applied[1].splitlines()[-1]) == (0, "3 of 3 changes made"), applied
    assert (second[0], again[0], exported[0]) == (0, 0, 0), (second, again, exported)
    assert blocked[0] == 1
    assert "EnablePartitioning is fixed at creation" in blocked[1]
    assert (shown["fragment_count"], shown["size_max_mb"]) == (16, 32_768)
    assert single["fragment_count"] == 1


def test_what_cannot_be_keeps_the_bus_from_starting_and_is_named(tmp_path: Path) -> None:
    """R6: a file that wants an existing queue otherwise partitioned."""
    file = tmp_path / "bus.toml"
    file.write_text('[[queue]]\nname = "q"\npartitioning = true\n', encoding="utf-8")
    data, options = tmp_path / "data", ("--brokers", "1", "--config", str(file))
    with running_server(data, *options) as server:
        server.stop()
    file.write_text('[[queue]]\nname = "q"\npartitioning = false\n', encoding="utf-8")

    ports = ("--amqp-port", "0", "--http-port", "0", "--tls-port", "0")
    code, output = serve_and_fail("--data-dir", str(data), *ports, *options)

    assert code == 1, output
    assert "bus.toml, line 1: queue[0]: queue q: EnablePartitioning is fixed" in output
    assert "ready" not in output


def test_brokers_of_their_own_are_set_up_too(tmp_path: Path) -> None:
    """R31."""
    file = tmp_path / "bus.toml"
    file.write_text(
        'brokers = 2\n[[queue]]\nname = "q"\nlock-duration = "5s"\n'
        '[[topic]]\nname = "t"\n[[topic.subscription]]\nname = "s"\n',
        encoding="utf-8",
    )
    with running_server(tmp_path / "data", "--broker-processes", "--config", str(file)) as server:
        drift = run(server, "apply", str(file), "--dry-run")
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_topic_sender("t") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
            messages = received(client, "t", "s")

    assert drift[0] == 0, drift
    assert [str(message) for message in messages] == ["hello"]
