"""Every setting of the server in one table: for flags, `shardbus.toml`, `SHARDBUS_*` and the docs.

Precedence: flag, then environment, then file, then default.
"""

import difflib
import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn
from urllib.parse import urlsplit

from shardbus.app.server.setting import (
    ENVIRONMENT_PREFIX,
    Kind,
    Setting,
    SettingError,
    Value,
    choice,
    count,
    port,
)
from shardbus.app.server.store_kinds import DEFAULT_STORE, KINDS_OF_STORES, STORES
from shardbus.app.setup.files import FileUnreadable, read_config
from shardbus.app.setup.model import Blueprint, combined
from shardbus.broker.access.auth import DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME
from shardbus.broker.access.claim_grants import (
    CLAIM_GRANTS_MAX,
    DEFAULT_GRANTS,
    ClaimGrant,
    parse_grant,
)

DEFAULT_FILE: Final = Path("shardbus.toml")
KEY_FILE_CHARACTERS_MAX: Final = 4096
URL_CHARACTERS_MAX: Final = 2048
AUDIENCES_MAX: Final = 16
DEFAULT_AUDIENCES: Final = (
    "https://servicebus.azure.net",
    "https://servicebus.azure.net/",
    "https://servicebus.azure.net/.default",
    "https://servicebus.azure.net//.default",
)
"""What SDKs ask for: issuers of the cloud drop `/.default`, others may keep it."""


TABLE: Final[tuple[Setting, ...]] = (
    Setting(
        "host", Kind.TEXT, "127.0.0.1", "Address to listen on; any but loopback requires a key."
    ),
    port("amqp_port", 5672, "AMQP port; 0 chooses a free one."),
    port("http_port", 5300, "HTTP port (management, health); 0 chooses a free one."),
    port("flight_port", 5301, "Port of the bulk lane (Arrow Flight); 0 switches it off."),
    choice(
        "flight_tls",
        ("auto", "on", "off"),
        "auto",
        "TLS on the bulk lane; auto: except on loopback.",
    ),
    port("tls_port", 5671, "Port of AMQP over TLS; 0 switches it off."),
    Setting(
        "tls_cert", Kind.PATH, "", "PEM certificate chain; empty creates a development certificate."
    ),
    Setting("tls_key", Kind.PATH, "", "PEM private key of the certificate."),
    Setting("data_dir", Kind.PATH, "./shardbus-data", "Directory of all durable data."),
    Setting(
        "backup_dir",
        Kind.PATH,
        "",
        "Directory for backups; empty: `backups` in the data directory.",
    ),
    Setting(
        "capture_dir",
        Kind.TEXT,
        "",
        "Directory or URL for captured data of pipelines; empty: `captured` in the data directory.",
    ),
    Setting(
        "spark_master",
        Kind.TEXT,
        "",
        "Spark that runs pipelines, as in spark://host:7077 or sc://host:15002; empty: this "
        "machine.",
    ),
    Setting(
        "spark_conf",
        Kind.TEXTS,
        "",
        "Setting of Spark for pipelines, NAME=VALUE, as in "
        "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0.",
    ),
    Setting(
        "pipeline_code",
        Kind.TEXT,
        "",
        "Directory with code of the operator for pipelines. Where it is set, pipelines may run any "
        "Spark SQL and the functions in it; empty: pipelines cannot run code.",
    ),
    Setting("store", Kind.TEXT, DEFAULT_STORE, f"Kind of the message stores: {KINDS_OF_STORES}."),
    count("brokers", 4, 4_096, "Number of message brokers, each with its own store."),
    Setting(
        "broker_processes",
        Kind.SWITCH,
        False,
        "Run each broker in its own process, which is supervised and restarted when it ends.",
    ),
    Setting(
        "broker_silent_ms",
        Kind.COUNT,
        30_000,
        "A broker process that is silent for this long is killed and restarted.",
        least=2_000,
        most=3_600_000,
    ),
    count(
        "broker_restart_ms",
        500,
        600_000,
        "Delay before a broker process that ended is restarted; doubles up to 30 s.",
    ),
    Setting(
        "real_time",
        Kind.SWITCH,
        False,
        "Schedule the server and its brokers before all ordinary work of the machine, but not the "
        "bulk lane and pipelines; Linux, and needs the right to do so.",
    ),
    Setting(
        "brokers_config",
        Kind.PATH,
        "",
        "For `gateway`: file of broker addresses, unix:PATH or tcp://HOST:PORT, one per "
        "line, in order.",
    ),
    Setting(
        "secret_file",
        Kind.PATH,
        "",
        "For `gateway`: file with the secret that the brokers share with their gateways.",
    ),
    Setting(
        "node_tls",
        Kind.PATH,
        "",
        "For `gateway` and `node`: directory with ca.pem, node.pem and node-key.pem, for mutual "
        "TLS with brokers.",
    ),
    choice("tier", ("basic", "standard", "premium"), "standard", "Tier of the namespace."),
    choice(
        "premium_generation",
        ("newer", "older"),
        "newer",
        "Premium only: newer never partitions entities, older always does, in 2 fragments.",
    ),
    Setting(
        "partitioned_by_default",
        Kind.SWITCH,
        True,
        "Whether an entity is partitioned by default, where the tier allows a choice.",
    ),
    Setting(
        "sas_key",
        Kind.TEXT,
        "",
        f"Key of {DEVELOPMENT_KEY_NAME}; empty means {DEVELOPMENT_KEY}, on loopback only.",
    ),
    Setting(
        "sas_key_file",
        Kind.PATH,
        "",
        "File with that key; other users of the machine can see the value of --sas-key.",
    ),
    Setting(
        "oidc_issuer",
        Kind.TEXT,
        "",
        "URL of the OpenID issuer whose tokens clients may sign in with; empty: keys only.",
    ),
    Setting(
        "oidc_audience",
        Kind.TEXTS,
        ";".join(DEFAULT_AUDIENCES),
        "Audiences, one of which a token of the issuer must be for.",
    ),
    Setting(
        "oidc_grant",
        Kind.TEXTS,
        ";".join(DEFAULT_GRANTS),
        "What claims give: role, scope, group or subject:NAME=Listen, Send or Manage[@ENTITY].",
    ),
    choice(
        "durability",
        ("full", "relaxed"),
        "full",
        "full: an accepted message is fsynced; relaxed: a power cut may lose the latest ones.",
    ),
    count("entities_max", 10_000, 1_000_000, "Maximum number of entities in the namespace."),
    count(
        "partitioned_entities_max",
        100,
        1_000_000,
        "Maximum number of partitioned entities in the namespace; not for Premium.",
    ),
    Setting(
        "fragment_mb_max",
        Kind.COUNT,
        0,
        "Maximum size of one fragment in megabytes, whatever its entity allows; 0: no cap.",
        most=1_000_000,
    ),
    Setting(
        "reserve_mb",
        Kind.COUNT,
        16,
        "Megabytes reserved beside each store for removing messages from a full disk; 0: none.",
        most=100_000,
    ),
    count(
        "connections_max",
        5_000,
        1_000_000,
        "Maximum number of AMQP connections, and a fifth as many over HTTP; each needs a "
        "descriptor.",
    ),
    Setting(
        "throttle_credits_per_s",
        Kind.COUNT,
        0,
        "Throttling: a message costs 1 credit, other requests 10; without credits, "
        "server-busy. 0: off.",
        most=100_000_000,
    ),
    choice(
        "transactions",
        ("compatible", "extended"),
        "compatible",
        "compatible: one partition key per partitioned entity and transaction; extended: any.",
    ),
    count(
        "transaction_messages_max",
        1_000,
        10_000,
        "Maximum messages sent, and settled, in an extended transaction; compatible: 100.",
    ),
    count(
        "transaction_ms", 120_000, 600_000, "Time after which an open transaction is rolled back."
    ),
    choice(
        "log_level", ("debug", "info", "warning", "error"), "info", "Lowest level that is logged."
    ),
)

_ROWS: Final[dict[str, Setting]] = {row.name: row for row in TABLE}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the server: checked, and `sas_key` never empty."""

    host: str
    amqp_port: int
    http_port: int
    flight_port: int
    flight_tls: str
    tls_port: int
    tls_cert: Path | None
    tls_key: Path | None
    data_dir: Path
    backup_dir: Path
    capture_dir: str
    spark_master: str
    spark_conf: tuple[str, ...]
    pipeline_code: str
    store: str
    brokers: int
    broker_processes: bool
    broker_silent_ms: int
    broker_restart_ms: int
    real_time: bool
    brokers_config: Path | None
    secret_file: Path | None
    node_tls: Path | None
    tier: str
    premium_generation: str
    partitioned_by_default: bool
    sas_key: str
    sas_key_file: Path | None
    oidc_issuer: str
    oidc_audience: tuple[str, ...]
    oidc_grant: tuple[ClaimGrant, ...]
    durability: Literal["full", "relaxed"]
    entities_max: int
    partitioned_entities_max: int
    fragment_mb_max: int
    reserve_mb: int
    connections_max: int
    throttle_credits_per_s: int
    transactions: str
    transaction_messages_max: int
    transaction_ms: int
    log_level: str
    setup: Blueprint
    # Not a setting: the command `shardbus emulator` sets it.
    is_emulator: bool = False

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def has_development_key(self) -> bool:
        return self.sas_key == DEVELOPMENT_KEY


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address; of names, only `localhost` is trusted."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_problem(url: str) -> str:
    """Why nothing is fetched from a URL; empty when it may be."""
    try:
        parts = urlsplit(url)
        host, is_port_good = parts.hostname or "", parts.port != 0
    except ValueError:
        return "is not a URL"
    is_text = url.isascii() and url.isprintable() and " " not in url
    if not is_text or not host or not is_port_good or len(url) > URL_CHARACTERS_MAX:
        return "is not a URL"
    if parts.username is not None or parts.fragment:
        return "has more than a URL of a document needs"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        return "is not https, which is needed beyond this machine"
    return ""


def load(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    config: Sequence[str] = (),
    default_file: Path = DEFAULT_FILE,
    is_public_key_allowed: bool = False,
) -> Settings:
    """The settings from all sources, or `SettingError` for the first invalid one.

    `flags` has only the given flags, by setting name. `config` has the files that flags named; else
    `SHARDBUS_CONFIG` lists them, as PATH does; else `default_file` is read if it exists. A later
    file takes precedence. Unknown variables are ignored, because orchestrators invent names such as
    `SHARDBUS_SERVICE_HOST`. The public development key is for loopback addresses, unless it is
    allowed on any address.
    """
    named = environment.get(ENVIRONMENT_PREFIX + "CONFIG", "").split(os.pathsep)
    files = [Path(name) for name in config or named if name]
    gathered = _Gathered(is_public_key_allowed)
    for file in files or ([default_file] if default_file.is_file() else []):
        gathered.add_file(file)
    for row in TABLE:
        if row.variable in environment:
            gathered.add(row, environment[row.variable], f"environment {row.variable}")
        if row.name in flags:
            gathered.add(row, flags[row.name], f"flag {row.flag}")
    return gathered.settings()


class _Gathered:
    """Values from all sources, weakest source first, each with its source."""

    def __init__(self, is_public_key_allowed: bool) -> None:
        self._is_public_key_allowed = is_public_key_allowed
        self._values: dict[str, Value] = {row.name: row.default for row in TABLE}
        self._sources: dict[str, str] = dict.fromkeys(self._values, "default")
        self._blueprints: list[Blueprint] = []

    def add(self, row: Setting, raw: Value, source: str) -> None:
        self._values[row.name] = read_value(row, raw, source)
        self._sources[row.name] = source

    def add_file(self, path: Path) -> None:
        """Add a file's settings, and keep its entities."""
        try:
            config = read_config(path)
        except FileUnreadable as error:
            raise SettingError("config", str(path), error.reason) from error
        self._blueprints.append(config.blueprint)
        source = f"file {path}"
        for key, raw in config.settings.items():
            row = _ROWS.get(key.replace("-", "_"))
            if row is None:
                raise SettingError(key, source, f"the setting does not exist{_nearest(key)}")
            if row.kind is Kind.TEXTS and isinstance(raw, list):
                raw = ";".join(str(text) for text in raw)
            if not isinstance(raw, str | int):
                raise SettingError(row.file_key, source, f"must be a {row.kind.value}")
            self.add(row, raw, source)

    def settings(self) -> Settings:
        self._check_together()
        return Settings(
            host=self._text("host"),
            amqp_port=self._number("amqp_port"),
            http_port=self._number("http_port"),
            flight_port=self._number("flight_port"),
            flight_tls=self._text("flight_tls"),
            tls_port=self._number("tls_port"),
            tls_cert=self._optional_path("tls_cert"),
            tls_key=self._optional_path("tls_key"),
            data_dir=Path(self._text("data_dir")),
            backup_dir=Path(self._text("backup_dir") or Path(self._text("data_dir"), "backups")),
            capture_dir=self._text("capture_dir"),
            spark_master=self._text("spark_master"),
            spark_conf=self._texts("spark_conf"),
            pipeline_code=self._text("pipeline_code"),
            store=self._text("store"),
            brokers=self._number("brokers"),
            broker_processes=self._switch("broker_processes"),
            broker_silent_ms=self._number("broker_silent_ms"),
            broker_restart_ms=self._number("broker_restart_ms"),
            real_time=self._switch("real_time"),
            brokers_config=self._optional_path("brokers_config"),
            secret_file=self._optional_path("secret_file"),
            node_tls=self._optional_path("node_tls"),
            tier=self._text("tier"),
            premium_generation=self._text("premium_generation"),
            partitioned_by_default=self._switch("partitioned_by_default"),
            sas_key=self._text("sas_key") or DEVELOPMENT_KEY,
            sas_key_file=self._optional_path("sas_key_file"),
            oidc_issuer=self._text("oidc_issuer"),
            oidc_audience=self._texts("oidc_audience"),
            oidc_grant=self._grants(),
            durability="relaxed" if self._text("durability") == "relaxed" else "full",
            entities_max=self._number("entities_max"),
            partitioned_entities_max=self._number("partitioned_entities_max"),
            fragment_mb_max=self._number("fragment_mb_max"),
            reserve_mb=self._number("reserve_mb"),
            connections_max=self._number("connections_max"),
            throttle_credits_per_s=self._number("throttle_credits_per_s"),
            transactions=self._text("transactions"),
            transaction_messages_max=self._number("transaction_messages_max"),
            transaction_ms=self._number("transaction_ms"),
            log_level=self._text("log_level"),
            setup=combined(self._blueprints),
        )

    def _check_together(self) -> None:
        self._take_key_file()
        self._check_key()
        self._check_store()
        self._check_spark_conf()
        self._check_certificate()
        self._check_sign_in()
        if not self._text("host"):
            self._refuse("host", "must not be empty")
        if not self._text("data_dir"):
            self._refuse("data_dir", "must not be empty")

    def _take_key_file(self) -> None:
        path = self._text("sas_key_file")
        if not path:
            return
        if self._text("sas_key"):
            self._refuse(
                "sas_key_file",
                f"give either this or sas-key ({self._sources['sas_key']}), not both",
            )
        try:
            with Path(path).open(encoding="utf-8") as file:
                key = file.read(KEY_FILE_CHARACTERS_MAX).strip()
        except (OSError, UnicodeDecodeError) as error:
            self._refuse("sas_key_file", f"{path} cannot be read: {error}")
        if not key:
            self._refuse("sas_key_file", f"{path} is empty")
        self._values["sas_key"], self._sources["sas_key"] = key, f"file {path}"

    def _check_key(self) -> None:
        key, host = self._text("sas_key"), self._text("host")
        if any(character.isspace() or character == ";" for character in key):
            self._refuse("sas_key", "must not contain spaces or semicolons")
        is_allowed = is_loopback(host) or self._is_public_key_allowed
        if key in ("", DEVELOPMENT_KEY) and not is_allowed:
            self._refuse(
                "sas_key",
                f"the development key is public, so it cannot be used on {host}: give your "
                "own key with --sas-key-file, or listen on 127.0.0.1",
            )

    def _check_spark_conf(self) -> None:
        for text in self._texts("spark_conf"):
            if not text.partition("=")[1]:
                self._refuse("spark_conf", f"{text!r} is not NAME=VALUE")

    def _check_store(self) -> None:
        store = self._text("store")
        kind, colon, _ = store.partition(":")
        if not colon or kind not in STORES:
            self._refuse("store", f"{store!r} is not a kind of store; use {KINDS_OF_STORES}")

    def _check_certificate(self) -> None:
        for name, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
            path = self._text(name)
            if path and not self._text(other):
                self._refuse(name, f"requires {_ROWS[other].flag}")
            if path and not Path(path).is_file():
                self._refuse(name, f"the file {path} does not exist")

    def _check_sign_in(self) -> None:
        issuer = self._text("oidc_issuer")
        problem = url_problem(issuer)
        if issuer and ("?" in issuer or problem):
            self._refuse("oidc_issuer", f"{issuer!r} {problem or 'has a query'}")
        for name, most in (("oidc_audience", AUDIENCES_MAX), ("oidc_grant", CLAIM_GRANTS_MAX)):
            count = len(self._texts(name))
            if not 1 <= count <= most:
                self._refuse(name, f"{count} are given; 1 to {most} are taken")
            if not issuer and self._sources[name] != "default":
                self._refuse(name, "needs --oidc-issuer beside it")

    def _grants(self) -> tuple[ClaimGrant, ...]:
        try:
            return tuple(parse_grant(text) for text in self._texts("oidc_grant"))
        except ValueError as error:
            self._refuse("oidc_grant", str(error))

    def _refuse(self, name: str, reason: str) -> NoReturn:
        raise SettingError(name.replace("_", "-"), self._sources[name], reason)

    def _text(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def _texts(self, name: str) -> tuple[str, ...]:
        return tuple(part for text in self._text(name).split(";") if (part := text.strip()))

    def _number(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int) and not isinstance(value, bool), name
        return value

    def _switch(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def _optional_path(self, name: str) -> Path | None:
        text = self._text(name)
        return Path(text) if text else None


def read_value(row: Setting, raw: Value, source: str) -> Value:
    """The value from a source, or `SettingError` when it is invalid."""
    match row.kind:
        case Kind.PORT | Kind.COUNT:
            return _read_number(row, raw, source)
        case Kind.SWITCH:
            return _read_switch(row, raw, source)
        case Kind.CHOICE:
            if raw not in row.choices:
                reason = f"{raw!r} is not one of {', '.join(row.choices)}"
                raise SettingError(row.file_key, source, reason)
            return raw
        case Kind.TEXT | Kind.PATH | Kind.TEXTS:
            if not isinstance(raw, str):
                raise SettingError(row.file_key, source, "must be a text in quotes")
            return raw


def _read_number(row: Setting, raw: Value, source: str) -> int:
    expected = f"a whole number from {row.least} to {row.most}"
    digits = str(raw)
    # Ten digits hold every limit; int() of a huge text would cost quadratic time.
    if isinstance(raw, bool) or not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        raise SettingError(row.file_key, source, f"{raw!r} is not {expected}")
    if not row.least <= int(digits) <= row.most:
        raise SettingError(row.file_key, source, f"{digits} is not {expected}")
    return int(digits)


def _read_switch(row: Setting, raw: Value, source: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    value = words.get(str(raw).lower())
    if value is None:
        raise SettingError(row.file_key, source, f"{raw!r} is neither true nor false")
    return value


def _nearest(key: str) -> str:
    keys = [row.file_key for row in TABLE]
    nearest = difflib.get_close_matches(key.replace("_", "-"), keys, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
