"""Every SDK that there is, feature by feature; what is left out here is said, and fails in CI."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from tests.conformance.sdk_programs import (
    FEATURES,
    NOT_OFFERED,
    PASSED,
    PROGRAMS,
    RECONNECT,
    ROOT,
    SOAK,
    Program,
    Result,
    keep,
    kept,
    results_in,
    run_features,
)
from tests.support.breaking import BreakingProxy
from tests.support.server import Server, free_port, running_server

FEATURES_S: Final = 400.0
# How long a load may take to end: it waits 90 s for what was accepted.
ENDING_S: Final = 200.0
KILLS: Final = 10
SOAK_S: Final = float(os.environ.get("SHARDBUS_SOAK_S", "20"))
BREAK_S: Final = 2.0

_numbers = itertools.count(1)

each_sdk = pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name.lower())


@dataclass(frozen=True)
class Buses:
    """A bus of the standard tier, one of the premium tier, and how clients trust them."""

    standard: Server
    premium: Server
    directory: Path

    def variables(self, prefix: str) -> dict[str, str]:
        standard = self.standard
        by_tls = standard.connection_string.replace(
            f":{standard.amqp_port}", f":{standard.tls_port}"
        ).replace("UseDevelopmentEmulator=true;", "")
        bundle = str(self.directory / "ca.pem")
        store = f"-Djavax.net.ssl.trustStore={self.directory / 'trust.p12'}"
        return {
            "SHARDBUS_CONNECTION_STRING": standard.connection_string,
            "SHARDBUS_TLS_CONNECTION_STRING": by_tls,
            "SHARDBUS_PREMIUM_CONNECTION_STRING": self.premium.connection_string,
            "SHARDBUS_PREFIX": prefix,
            "SHARDBUS_CA_FILE": bundle,
            "SSL_CERT_FILE": bundle,
            "NODE_EXTRA_CA_CERTS": bundle,
            "JDK_JAVA_OPTIONS": f"{store} -Djavax.net.ssl.trustStorePassword=changeit",
        }


@pytest.fixture(scope="module")
def buses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buses]:
    directory = tmp_path_factory.mktemp("sdks")
    options = ("--partitioned-entities-max", "1000", "--brokers", "2")
    with (
        running_server(directory / "a", "--tls-port", str(free_port()), *options) as standard,
        running_server(directory / "b", "--tier", "premium", "--brokers", "1") as premium,
    ):
        authorities = [standard.ca_file, premium.ca_file]
        bundle = b"".join(each.read_bytes() for each in authorities)
        (directory / "ca.pem").write_bytes(bundle)
        _make_trust_store(directory / "trust.p12", authorities)
        yield Buses(standard, premium, directory)


def _make_trust_store(store: Path, authorities: list[Path]) -> None:
    """The form in which Java is told whom to trust; a guide gives the same line."""
    keytool = shutil.which("keytool")
    for number, authority in enumerate(authorities if keytool is not None else ()):
        assert keytool is not None
        subprocess.run(
            [
                *(keytool, "-importcert", "-noprompt", "-alias", str(number)),
                *("-file", str(authority), "-keystore", str(store)),
                *("-storetype", "PKCS12", "-storepass", "changeit"),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )


def need(program: Program) -> None:
    if program.missing is not None:
        pytest.skip(f"the {program.name} SDK is left out: {program.missing}")


@each_sdk
def test_what_an_sdk_offers_works(program: Program, buses: Buses) -> None:
    """R36: each feature, on conventional and partitioned entities where both have it."""
    need(program)
    variables = buses.variables(f"{program.name.lower()}{next(_numbers)}")
    if program.is_jms:
        _make_jms_entities(buses, variables["SHARDBUS_PREFIX"])

    results = run_features(program, variables, FEATURES_S)

    keep(program, results)
    expected = {RECONNECT, SOAK}
    assert sorted(each.feature for each in results) == sorted(set(FEATURES) - expected)
    assert [each for each in results if each.outcome not in (PASSED, NOT_OFFERED)] == []
    _check_offered(program, results)


def _check_offered(program: Program, results: list[Result]) -> None:
    """What the table says of an SDK is what it does now."""
    shown = kept(program)
    assert shown.version == program.version, "run `make sdks` and `make docs`"
    for result in results:
        assert shown.features[result.feature].outcome == result.outcome, result


@pytest.mark.release
@each_sdk
def test_no_client_needs_a_restart_when_the_server_is_killed_ten_times(
    program: Program, tmp_path: Path
) -> None:
    """R36, R37: nothing accepted is lost, nothing completed returns."""
    need(program)
    with running_server(tmp_path / "data", "--brokers", "2") as server:
        queue = _make_load_queue(program, server)
        with _load(program, RECONNECT, queue, server.connection_string, server) as load:
            for _ in range(KILLS):
                time.sleep(random.uniform(1.0, 2.0))
                server.kill()
                server.start()
            result = _ended(load)

    keep(program, [result])
    assert result.outcome == PASSED, result


@pytest.mark.release
@each_sdk
def test_connections_that_break_at_random_lose_nothing(program: Program, tmp_path: Path) -> None:
    """R36, R37: twenty seconds of it, or as many as SHARDBUS_SOAK_S says."""
    need(program)
    with (
        running_server(tmp_path / "data", "--brokers", "2") as server,
        BreakingProxy(server.amqp_port) as proxy,
    ):
        queue = _make_load_queue(program, server)
        through = server.connection_string.replace(f":{server.amqp_port}", f":{proxy.port}")
        with _load(program, SOAK, queue, through, server) as load:
            end = time.monotonic() + SOAK_S
            while time.monotonic() < end:
                time.sleep(random.uniform(0.5, BREAK_S))
                proxy.break_one()
            result = _ended(load)
        broken = proxy.broken

    keep(program, [result])
    assert result.outcome == PASSED, result
    assert broken >= 5


@contextmanager
def _load(
    program: Program, feature: str, queue: str, connection_string: str, server: Server
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that sends and completes until its standard input ends."""
    variables = {
        "SHARDBUS_CONNECTION_STRING": connection_string,
        "SHARDBUS_PREFIX": "load",
        "SHARDBUS_CA_FILE": str(server.ca_file),
    }
    errors = server.data_dir.with_name("load.err")
    with errors.open("wb") as log:
        load = subprocess.Popen(
            [*program.load, feature, queue],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        yield load
    except BaseException as failure:
        # Java and Go tell where they are.
        load.send_signal(signal.SIGQUIT)
        time.sleep(1)
        failure.add_note(f"errors of the load:\n{errors.read_text(errors='replace')[-20_000:]}")
        raise
    finally:
        load.kill()
        load.communicate()


def _ended(load: subprocess.Popen[bytes]) -> Result:
    output, _ = load.communicate(timeout=ENDING_S)
    results = results_in(output)
    assert len(results) == 1, output
    return results[0]


def _make_load_queue(program: Program, server: Server) -> str:
    with _administration(server) as administration:
        administration.create_queue(
            "load",
            enable_partitioning=False,
            lock_duration=timedelta(seconds=10),
            max_delivery_count=2000,
            requires_duplicate_detection=program.is_jms,
        )
    return "load"


def _make_jms_entities(buses: Buses, prefix: str) -> None:
    """JMS finds its entities, as it does in the cloud."""
    with _administration(buses.standard) as administration:
        for kind in ("conventional", "partitioned", "results"):
            administration.create_queue(
                f"{prefix}-{kind}",
                enable_partitioning=kind == "partitioned",
                lock_duration=timedelta(seconds=5),
                max_delivery_count=3,
            )
        topic = f"{prefix}-topic"
        administration.create_topic(topic)
        administration.create_subscription(topic, "red")
        administration.delete_rule(topic, "red", "$Default")
        administration.create_rule(topic, "red", "red", filter=SqlRuleFilter("colour = 'red'"))
    with _administration(buses.premium) as administration:
        administration.create_queue(f"{prefix}-large", max_message_size_in_kilobytes=20480)


def _administration(server: Server) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=str(server.ca_file)
    )
