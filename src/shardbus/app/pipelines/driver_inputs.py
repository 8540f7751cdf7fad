"""The inputs of a driver: its environment and its definition. `driver_keeper` starts the driver."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from shardbus.app.pipelines.definition import Definition
from shardbus.app.server.flight_child import flight_url, is_secure
from shardbus.app.server.setting import ENVIRONMENT_PREFIX
from shardbus.app.server.settings import Settings
from shardbus.broker.access.sas import mint_token
from shardbus.core.namespace.address import parse_address

MODULE: Final = (sys.executable, "-m", "shardbus_spark.pipelines")
PROGRAM: Final = (*MODULE, "--ends-with-stdin")
CHECK: Final = (*MODULE, "--check")
"""Reads a definition from its standard input, and reports mistakes in its texts."""
LIBRARIES: Final = ("shardbus_spark", "pyspark", "pyarrow")
TOKEN_S: Final = 24 * 3600
# A driver gets a new token well before the present one expires.
RENEW_MS: Final = 20 * 3600 * 1000


@final
@dataclass(frozen=True, slots=True)
class DriverAccess:
    """The address of the bulk lane, the rule that signs for it, and the operator's settings of
    Spark, NAME=VALUE.
    """

    url: str
    ca_file: str
    key_name: str
    key: str
    spark_conf: tuple[str, ...] = ()

    def environment(
        self, definition: Definition, inherited: Mapping[str, str], now_ms: int
    ) -> dict[str, str]:
        """The environment of a driver: without the settings of the bus, which may contain the key,
        but with a token for each of its entities and one day.
        """
        task = definition.task
        kept = without_settings(inherited)
        own = {
            "SHARDBUS_FLIGHT_URL": self.url,
            "SHARDBUS_TOKEN": self._token(task.opened_entity, now_ms),
        }
        if task.target_entity:
            own["SHARDBUS_TARGET_TOKEN"] = self._token(task.target_entity, now_ms)
        if task.more_entities:
            tokens = {
                entity: self._token(parse_address(entity).name, now_ms)
                for entity in task.more_entities
            }
            own["SHARDBUS_ENTITY_TOKENS"] = json.dumps(tokens)
        if self.spark_conf:
            # Not in the definition, which users see.
            own["SHARDBUS_SPARK_CONF"] = json.dumps(self.spark_conf)
        if self.ca_file:
            own["SHARDBUS_TLS_CA"] = self.ca_file
        return {**kept, **own}

    def _token(self, entity: str, now_ms: int) -> str:
        scope = f"sb://localhost/{entity}"
        return mint_token(scope, self.key_name, self.key, now_ms // 1000 + TOKEN_S)


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the settings of the bus, which may contain the key."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(ENVIRONMENT_PREFIX)
    }


def access_to_lane(settings: Settings, key_name: str) -> DriverAccess:
    """The address of the bulk lane on this machine."""
    is_near = settings.is_loopback or settings.host in ("0.0.0.0", "::")
    has_own_authority = is_secure(settings) and settings.tls_cert is None
    return DriverAccess(
        flight_url(settings, "localhost" if is_near else settings.host),
        str((settings.data_dir / "tls" / "ca.pem").absolute()) if has_own_authority else "",
        key_name,
        settings.sas_key,
        settings.spark_conf,
    )


def missing_libraries(libraries: Sequence[str] = LIBRARIES) -> list[str]:
    """The libraries that must be installed before a driver can run."""
    # Otherwise libraries installed since the last check are not found.
    importlib.invalidate_caches()
    return [library for library in libraries if importlib.util.find_spec(library) is None]


def location(settings: Settings, path: str) -> str:
    """The location of a pipeline's path: below the directory, or URL, of captured data."""
    root = settings.capture_dir or str(settings.data_dir / "captured")
    if "://" in root:
        return f"{root.rstrip('/')}/{path}"
    return str(Path(root).absolute() / path)


def job(
    settings: Settings, definition: Definition, computed: Mapping[str, str]
) -> dict[str, object]:
    """The definition as the driver reads it."""
    told = {**definition.to_document(), **computed}
    for name in definition.task.for_people:
        del told[name]
    document = {
        **told,
        "path": location(settings, definition.task.path) if definition.task.path else "",
        "spark_master": settings.spark_master,
    }
    if definition.work_path:
        document["work"] = location(settings, definition.work_path)
    return document


def forget_work(settings: Settings, definition: Definition) -> None:
    """Remove the directory of a driver, unless it is on another machine."""
    if definition.work_path and "://" not in settings.capture_dir:
        shutil.rmtree(location(settings, definition.work_path), ignore_errors=True)


def inherited_environment() -> Mapping[str, str]:
    return os.environ
