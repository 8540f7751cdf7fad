"""The programs that try the SDKs, feature by feature; `results` keeps what they found.

Each program is told the bus by variables, prints one line of JSON for each feature, and needs no
word of Python. `docs/conformance.md` shows what is in `results`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pytest

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
RESULTS: Final = HERE / "results"
# Where this variable is set, the outcome of a run is kept.
KEEPING: Final = "SHARDBUS_KEEP_RESULTS"

PASSED: Final = "passed"
NOT_OFFERED: Final = "not offered"

RECONNECT: Final = "reconnect"
SOAK: Final = "soak"
PARTITIONED: Final = "-partitioned"
LOADS: Final = (RECONNECT, RECONNECT + PARTITIONED, SOAK, SOAK + PARTITIONED)
FEATURES: Final = {
    "administration": "create, get, update, list and delete entities",
    "send": "send one message",
    "batch": "send a batch as large as the link allows",
    "keyed": "send with partition keys",
    "schedule": "schedule and cancel",
    "receive": "receive in both modes",
    "settle": "complete, abandon, defer, dead-letter",
    "deferred": "receive deferred messages",
    "dead-letters": "receive dead letters",
    "session-accept": "accept a session",
    "session-next": "accept the next session",
    "session-state": "session state",
    "session-renew": "renew a session",
    "session-list": "list sessions",
    "peek": "peek page by page",
    "renew": "renew a lock",
    "auto-renew": "locks renewed by the SDK, many messages in work",
    "prefetch": "prefetch",
    "async": "asynchronous client",
    "push": "messages handed to a callback",
    "session-push": "sessions handed to a callback",
    "rules": "rules of subscriptions",
    "rule-manager": "rules over AMQP",
    "transaction": "transactions",
    "transaction-across": "transactions across entities",
    "duplicates": "duplicate detection",
    "large": "messages of 10 MiB (Premium)",
    "websocket": "WebSocket",
    "tls": "TLS",
    RECONNECT: "the server killed again and again under load, conventional queue",
    RECONNECT + PARTITIONED: "the same, partitioned queue",
    SOAK: "connections broken at random under load, conventional queue",
    SOAK + PARTITIONED: "the same, partitioned queue",
}


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a program says of a feature; of a load, also what it was exposed to, and when."""

    feature: str
    outcome: str
    detail: str
    seconds: int = 0
    kills: int = 0
    breaks: int = 0
    day: str = ""


class Kept(msgspec.Struct):
    """The file of one SDK in `results`."""

    package: str
    version: str
    features: dict[str, Result] = {}


@dataclass(frozen=True)
class Program:
    """An SDK, the file that pins it, and how its program is run."""

    name: str
    package: str
    pin: str
    pattern: str
    built: Path
    features: tuple[str, ...]
    load: tuple[str, ...]
    needs: str
    # Plain AMQP 1.0 cannot create entities, and has no numbers to know a message again by. Features
    # that such a client does not tell of were not tried.
    is_plain: bool = False
    # Only `make test-release` has the time.
    is_slowly_built: bool = False

    @property
    def version(self) -> str:
        found = re.search(self.pattern, (ROOT / self.pin).read_text(encoding="utf-8"))
        assert found is not None, f"{self.pin} does not pin {self.package}"
        return found[1]

    @property
    def key(self) -> str:
        """The name as files, tests and entities have it."""
        return self.name.lower().lstrip(".")

    @property
    def file(self) -> Path:
        return RESULTS / f"{self.key}.json"

    def mode(self, *words: str) -> list[str]:
        """How the program is run for another purpose than its features."""
        return [*self.features[:-1], *words]

    @property
    def missing(self) -> str | None:
        """Why the program cannot be run here; None if it can."""
        command = self.features[0]
        if shutil.which(command) is None:
            return f"there is no {command}; {self.needs}"
        return None if self.built.exists() else f"{self.built.name} is missing; {self.needs}"


def _jvm(name: str) -> tuple[str, ...]:
    build = HERE / name / "build"
    return (
        *("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"),
        *("-cp", f"{build / 'classes'}{os.pathsep}{build / 'lib' / '*'}"),
        "shardbus.conformance.Main",
    )


def _maven(artifact: str) -> str:
    return rf"<artifactId>{artifact}</artifactId>\s*<version>([^<]+)</version>"


_GO: Final = str(HERE / "go" / "build" / "conformance")
_RUST: Final = str(HERE / "rust" / "build" / "debug" / "conformance")
_JS: Final = HERE / "js"
_NET: Final = HERE / "dotnet" / "build"
_PYTHON: Final = (sys.executable, "-m")
PROGRAMS: Final = (
    Program(
        "Python",
        "azure-servicebus",
        "requirements/dev.txt",
        r"(?m)^azure-servicebus==(\S+)",
        Path(sys.executable),
        (*_PYTHON, "tests.conformance.python.features"),
        (*_PYTHON, "tests.conformance.python.load"),
        "run `make build`",
    ),
    Program(
        "JavaScript",
        "@azure/service-bus",
        "tests/conformance/js/package.json",
        r'"@azure/service-bus": "([^"]+)"',
        _JS / "node_modules",
        ("node", str(_JS / "features.mjs")),
        ("node", str(_JS / "load.mjs")),
        "run `make node`",
    ),
    Program(
        "Java",
        "com.azure:azure-messaging-servicebus",
        "tests/conformance/java/pom.xml",
        _maven("azure-messaging-servicebus"),
        HERE / "java" / "build" / "lib",
        (*_jvm("java"), "features"),
        (*_jvm("java"), "load"),
        "run `make java`, which needs a JDK and Maven",
    ),
    Program(
        "Go",
        "azservicebus",
        "tests/conformance/go/go.mod",
        r"azservicebus v(\S+)",
        Path(_GO),
        (_GO, "features"),
        (_GO, "load"),
        "run `make go`, which needs Go",
    ),
    Program(
        ".NET",
        "Azure.Messaging.ServiceBus",
        "tests/conformance/dotnet/package.json",
        r'"sdk": "([^"]+)"',
        _NET / "conformance.dll",
        (str(_NET / "dotnet"), str(_NET / "conformance.dll"), "features"),
        (str(_NET / "dotnet"), str(_NET / "conformance.dll"), "load"),
        "run `make dotnet`, which needs npm, on Linux",
        is_slowly_built=True,
    ),
    Program(
        "JMS",
        "org.apache.qpid:qpid-jms-client",
        "tests/conformance/jms/pom.xml",
        _maven("qpid-jms-client"),
        HERE / "jms" / "build" / "lib",
        (*_jvm("jms"), "features"),
        (*_jvm("jms"), "load"),
        "run `make java`, which needs a JDK and Maven",
        is_plain=True,
    ),
    Program(
        "rhea",
        "rhea",
        "tests/conformance/js/package.json",
        r'"rhea": "([^"]+)"',
        _JS / "node_modules",
        ("node", str(_JS / "rhea_features.mjs")),
        ("node", str(_JS / "rhea_load.mjs")),
        "run `make node`",
        is_plain=True,
    ),
    Program(
        "Proton",
        "python-qpid-proton",
        "requirements/dev.txt",
        r"(?m)^python-qpid-proton==(\S+)",
        Path(sys.executable),
        (*_PYTHON, "tests.conformance.python.proton_features"),
        (*_PYTHON, "tests.conformance.python.proton_load"),
        "run `make build`",
        is_plain=True,
    ),
    Program(
        "Rust",
        "fe2o3-amqp",
        "tests/conformance/rust/Cargo.toml",
        r'fe2o3-amqp = \{ version = "=([^"]+)"',
        Path(_RUST),
        (_RUST, "features"),
        (_RUST, "load"),
        "run `make rust`, which needs cargo",
        is_plain=True,
        is_slowly_built=True,
    ),
)


def program_of(name: str) -> Program:
    return next(each for each in PROGRAMS if each.name == name)


def needed_program_of(name: str) -> Program:
    """The program of an SDK; without it, a test says so and is skipped."""
    program = program_of(name)
    if program.missing is not None:
        pytest.skip(f"the {program.name} SDK is left out: {program.missing}")
    return program


def make_trust_store(store: Path, authorities: Sequence[Path]) -> None:
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


def trusting(authority: Path, store: Path) -> dict[str, str]:
    """The variables by which programs of any SDK but Python's trust an authority."""
    java = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"
    return {
        "SSL_CERT_FILE": str(authority),
        "NODE_EXTRA_CA_CERTS": str(authority),
        "JDK_JAVA_OPTIONS": java,
    }


def results_in(output: bytes) -> list[Result]:
    """The lines of JSON that a program printed."""
    lines = [line for line in output.splitlines() if line.startswith(b"{")]
    return [msgspec.json.decode(line, type=Result) for line in lines]


def run_features(program: Program, variables: Mapping[str, str], timeout_s: float) -> list[Result]:
    done = subprocess.run(
        program.features,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-5000:]
    return results_in(done.stdout)


def kept(program: Program) -> Kept:
    """What the last run that was kept found."""
    return msgspec.json.decode(program.file.read_bytes(), type=Kept)


def keep(program: Program, results: Iterable[Result], tried: Iterable[str] = ()) -> None:
    """Add to the file of an SDK, if this run is to be kept; another version starts it anew.

    Of features that were `tried`, those without a result lose what an earlier run has told.
    """
    if not os.environ.get(KEEPING):
        return
    RESULTS.mkdir(exist_ok=True)
    with program.file.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        found = msgspec.json.decode(text, type=Kept) if text else None
        if found is None or found.version != program.version:
            found = Kept(program.package, program.version)
        for name in tried:
            found.features.pop(name, None)
        found.features |= {result.feature: result for result in results}
        in_order = {name: found.features[name] for name in FEATURES if name in found.features}
        found.features = in_order
        file.truncate(0)
        file.write(json.dumps(msgspec.to_builtins(found), indent=1).encode() + b"\n")
