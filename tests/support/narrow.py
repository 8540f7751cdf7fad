"""The real server with little room, so that tests of what all clients share need not fill it.

Run it as `python narrow.py serve ...`. Nothing else of it is changed.
"""

from typing import Final

from shardbus.app.cli.main import main
from shardbus.gateway.admission import http as crowd
from shardbus.gateway.amqp.connection import totals

ROOM_BYTES: Final = 32 * 1024 * 1024

if __name__ == "__main__":
    for module, name in (
        (totals, "UNFINISHED_BYTES_MAX"),
        (totals, "UNREAD_BYTES_MAX"),
        (crowd, "ANSWERS_BYTES_MAX"),
    ):
        setattr(module, name, ROOM_BYTES)
    main()
