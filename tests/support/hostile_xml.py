"""Documents made to cost more than they weigh, each as large as a request may be."""

from collections.abc import Callable

from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import ATOM

BODY_BYTES = 1024 * 1024


def filled(inside: Callable[[int], str]) -> bytes:
    """A document as large as a request may be."""
    head = f'<entry xmlns="{ATOM}"><content><QueueDescription xmlns="{CONNECT}">'
    tail = "</QueueDescription></content></entry>"
    return (head + inside(BODY_BYTES - len(head) - len(tail) - 100) + tail).encode()


def repeated(piece: str) -> Callable[[int], str]:
    return lambda size: piece * (size // len(piece))


def around(start: str, end: str) -> Callable[[int], str]:
    return lambda size: start + "x" * (size - len(start) - len(end)) + end


LARGE = {
    "text": filled(around("<UserMetadata>", "</UserMetadata>")),
    "name": filled(around("<", "/>")),
    "attribute": filled(around('<a b="', '"/>')),
    "namespace": filled(around('<a xmlns="', '"/>')),
    "namespace of many": filled(
        lambda size: f'<a xmlns="{"x" * (size - 20_000)}">{"<b/>" * 4900}</a>'
    ),
    "namespaces": filled(
        lambda size: "<a " + "".join(f' xmlns:a{n}="u"' for n in range(size // 18)) + "/>"
    ),
    "attributes": filled(
        lambda size: "<a " + "".join(f' a{n}="u"' for n in range(size // 13)) + "/>"
    ),
    "comment": filled(around("<!--", "-->")),
    "comments": filled(repeated("x<!---->")),
    "instructions": filled(repeated("x<?a?>")),
    "references": filled(lambda size: f"<a>{'&#65;' * (size // 5 - 4)}</a>"),
    "sections": filled(lambda size: f"<a>{'<![CDATA[x]]>' * (size // 13 - 2)}</a>"),
    "elements": filled(repeated("<a/>")),
    "depth": filled(repeated("<a>")),
    "rules": filled(repeated("<AuthorizationRules/>")),
    "forward": filled(around("<ForwardTo>sb://h/", "</ForwardTo>")),
    "laughs": b"<!DOCTYPE a [<!ENTITY a '" + b"ha" * 1000 + b"'>]><a>" + b"&a;" * 100_000 + b"</a>",
    "nested laughs": (
        "<!DOCTYPE a [<!ENTITY e0 'ha'>"
        + "".join(f"<!ENTITY e{n + 1} '{f'&e{n};' * 10}'>" for n in range(12))
        + "]><a>&e12;</a>"
    ).encode(),
    "parameter entity": b'<!DOCTYPE a [<!ENTITY % b SYSTEM "http://127.0.0.1:1/"> %b;]><a/>',
    "external": b'<!DOCTYPE a SYSTEM "http://127.0.0.1:1/a.dtd"><a/>',
    "utf-16": filled(around("<UserMetadata>", "</UserMetadata>"))
    .decode()[:500_000]
    .encode("utf-16"),
}
