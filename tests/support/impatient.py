"""The real server with a twentieth of its patience, so that tests of time limits are quick.

Run it as `python impatient.py serve ...`. Nothing else of it is changed.
"""

from types import ModuleType
from typing import Final

from shardbus.app.cli.main import main
from shardbus.gateway.admission import newcomers as reception
from shardbus.gateway.amqp.connection import protocol
from shardbus.gateway.http.server import connection
from shardbus.gateway.listening import listener, websocket

SCALE: Final = 20
_PATIENCE: Final[dict[ModuleType, tuple[str, ...]]] = {
    listener: ("SECURED_MS_MAX", "SHUTDOWN_MS_MAX"),
    reception: ("SILENT_MS_MAX", "SECURED_MS_MAX", "SWEEP_MS"),
    connection: ("REQUEST_MS_MAX", "IDLE_MS_MAX", "WRITE_MS_MAX", "LINGER_MS_MAX"),
    websocket: ("CLOSE_MS_MAX", "LINGER_MS_MAX"),
    protocol: ("GOODBYE_MS", "NO_TOKEN_MS", "NO_LINK_MS", "LINKS_GONE_MS"),
}

if __name__ == "__main__":
    for module, names in _PATIENCE.items():
        for name in names:
            setattr(module, name, getattr(module, name) // SCALE)
    main()
