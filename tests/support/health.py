"""What a running server says of itself."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Final

from tests.support.server import Server

WAIT_S: Final = 20.0


def health(server: Server) -> list[str]:
    """What `/health` says is wrong."""
    url = f"http://{server.host}:{server.http_port}/health"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=WAIT_S) as response:
            document = json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            document = json.loads(error.read())
    reasons = [str(reason) for reason in document.get("reasons", [])]
    assert (document["status"] == "healthy") == (not reasons)
    return reasons
