"""What the container of the official emulator is told, as settings of this bus."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shardbus.app.server.setting import SettingError
from shardbus.app.server.settings import Settings

log = logging.getLogger(__name__)

CONFIG_FILE: Final = Path("/ServiceBus_Emulator/ConfigFiles/Config.json")
"""Where its compose file puts the `Config.json`."""
CONFIG_VARIABLE: Final = "CONFIG_PATH"
PORT_VARIABLES: Final = {"http_port": "EMULATOR_HTTP_PORT", "amqp_port": "EMULATOR_AMQP_PORT"}
EVERY_ADDRESS: Final = "0.0.0.0"


def emulator_sources(
    flags: Mapping[str, str],
    config: Sequence[str],
    environment: Mapping[str, str],
    mounted: Path = CONFIG_FILE,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The flags and files, with those that the emulator's variables stand for where none is given.

    `ACCEPT_EULA`, `SQL_SERVER` and `MSSQL_SA_PASSWORD` are not needed and ignored.
    """
    meant = dict(flags)
    if "host" not in meant and "SHARDBUS_HOST" not in environment:
        meant["host"] = EVERY_ADDRESS
    for name, variable in PORT_VARIABLES.items():
        is_given = name in meant or f"SHARDBUS_{name.upper()}" in environment
        if environment.get(variable) and not is_given:
            meant[name] = environment[variable]
    return meant, tuple(config) or _config(environment, mounted)


def warn(settings: Settings) -> None:
    """Say who can use the bus, if that is anybody."""
    if settings.has_development_key and not settings.is_loopback:
        log.warning(
            "the key is public: anybody who can reach %s can do everything; publish the ports of "
            "the container to 127.0.0.1, or give the bus its own key with SHARDBUS_SAS_KEY_FILE",
            settings.host,
        )


def _config(environment: Mapping[str, str], mounted: Path) -> tuple[str, ...]:
    named = environment.get(CONFIG_VARIABLE, "")
    if named and not Path(named).is_file():
        raise SettingError("config", f"environment {CONFIG_VARIABLE}", f"{named} is not a file")
    if named:
        return (named,)
    # A mount of a file that does not exist makes a directory.
    if mounted.is_dir():
        raise SettingError("config", str(mounted), "is a directory: the mounted file is missing")
    return (str(mounted),) if mounted.is_file() else ()
