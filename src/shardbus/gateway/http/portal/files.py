"""The files of the portal, found once at the start, and the policy under which browsers run them.

A page may load scripts and styles from this bus only, and connect to nothing else. No script can
turn text into markup or code (trusted types), no other page can frame it, and it sends no referrer.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, final

from shardbus.core.errors import NOT_FOUND, Refused
from shardbus.gateway.http.server.message import TEXT, HttpRequest, HttpResponse
from shardbus.gateway.http.server.refusal import shown

PATH: Final = "portal"
_INDEX: Final = "index.html"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
# A browser asks each time whether a file is still the same: a new bus never runs old scripts.
_CACHING: Final = ("Cache-Control", "no-cache")


@final
class PortalFile:
    """A file with its type and the tag by which browsers recognise it."""

    def __init__(self, content: bytes, content_type: str) -> None:
        self.content = content
        self.content_type = content_type
        self.tag = f'"{sha256(content).hexdigest()[:32]}"'


@final
class PortalFiles:
    """Answers requests below /portal/ from a fixed list; a path never reaches the disk."""

    def __init__(self) -> None:
        self._files = dict(_found(files(__package__) / "static", ""))

    def names(self) -> list[str]:
        return sorted(self._files)

    def has(self, request: HttpRequest) -> bool:
        """Whether a request is for the portal.

        A queue may be named "portal" too: management always sends its api-version, and messages
        are sent and received with other methods.
        """
        is_read = request.method in ("GET", "HEAD") and "api-version" not in request.query
        return is_read and (request.path == PATH or request.path.startswith(f"{PATH}/"))

    def respond(self, request: HttpRequest) -> HttpResponse:
        name = request.path.removeprefix(PATH).removeprefix("/") or _INDEX
        file = self._files.get(name)
        if file is None:
            raise Refused(NOT_FOUND, f"The portal has no file {shown(name)}: open /portal/.")
        tags = request.headers.get("if-none-match", "").split(",")
        is_known = any(tag.strip().removeprefix("W/") in (file.tag, "*") for tag in tags)
        response = (
            HttpResponse(304, file.content_type)
            if is_known
            else HttpResponse(200, file.content_type, file.content)
        )
        response.headers += [("ETag", file.tag), _CACHING, *HEADERS]
        return response


def redirect() -> HttpResponse:
    """The answer to a browser that opens the bus itself."""
    response = HttpResponse(307, TEXT, f"The portal is at /{PATH}/.\n")
    # The same address without a browser is a feed: a cache must keep the two apart.
    response.headers += [("Location", f"/{PATH}/"), ("Vary", "Accept"), _CACHING, *HEADERS]
    return response


def _found(directory: Traversable, path: str) -> list[tuple[str, PortalFile]]:
    found: list[tuple[str, PortalFile]] = []
    for entry in directory.iterdir():
        name = f"{path}{entry.name}"
        suffix = name[name.rfind(".") :]
        if entry.is_dir():
            found += _found(entry, f"{name}/")
        elif suffix in _TYPES:
            found.append((name, PortalFile(entry.read_bytes(), _TYPES[suffix])))
    return found
