"""A client of the bulk lane with nothing but pyarrow, as the reference page describes one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as flight

from shardbus.app.cli.sas import Credential, parse_connection_string
from shardbus.broker.access.sas import mint_token
from tests.support.server import Server

Document = dict[str, object]

HOUR_S = 3600
TIMEOUT_S = 60


class FlightClient:
    """One connection; every call shows the same token."""

    def __init__(self, connection: flight.FlightClient, token: str) -> None:
        self._connection = connection
        headers = [(b"authorization", token.encode())] if token else []
        self._options = flight.FlightCallOptions(
            headers=headers,  # type: ignore[arg-type]  # the stubs say str, it wants bytes
            timeout=TIMEOUT_S,
        )

    def showing(self, token: str) -> FlightClient:
        """Another client on the same connection."""
        return FlightClient(self._connection, token)

    def info(self, entity: str, **members: object) -> flight.FlightInfo:
        command = json.dumps({"entity": entity, **members}).encode()
        descriptor = flight.FlightDescriptor.for_command(command)
        return self._connection.get_flight_info(descriptor, self._options)

    def read(self, entity: str, **members: object) -> pa.Table:
        """Everything, fragment after fragment."""
        info = self.info(entity, **members)
        tables = [self._connection.do_get(each.ticket, self._options) for each in info.endpoints]
        return pa.concat_tables([stream.read_all() for stream in tables])

    def rows(self, entity: str, **members: object) -> list[Document]:
        return self.read(entity, **members).to_pylist()

    def stream(self, **ticket: object) -> flight.FlightStreamReader:
        return self._connection.do_get(flight.Ticket(json.dumps(ticket).encode()), self._options)

    def act(self, action: str, entity: str, **body: object) -> Document:
        asked = flight.Action(action, json.dumps({"entity": entity, **body}).encode())
        [result] = self._connection.do_action(asked, self._options)
        answer: Document = json.loads(result.body.to_pybytes())
        return answer

    def fragments(self, entity: str) -> list[Document]:
        return parts(self.act("describe", entity), "fragments")


class Reader:
    """A named reader of an entity, which counts its ordinals."""

    def __init__(self, client: FlightClient, entity: str, name: str, owner: str = "me") -> None:
        self.client = client
        self.entity = entity
        self.name = name
        self._who = {"reader": name, "owner": owner}
        self.last: dict[int, int] = {}

    def open(self) -> Document:
        opened = self.client.act("open", self.entity, **self._who)
        self.last = {number(one): number(one, "last") for one in parts(opened, "fragments")}
        return opened

    def claim(self, count_max: int = 4_096) -> dict[int, int]:
        """One claim in each fragment; the ordinals of those that got something."""
        wanted = [
            {"fragment": fragment, "ordinal": last + 1, "count_max": count_max}
            for fragment, last in self.last.items()
        ]
        answer = self.client.act("claim", self.entity, **self._who, claims=wanted)
        made = [one for one in parts(answer, "claims") if one["is_made"]]
        ordinals = {number(one, "fragment"): number(one, "ordinal") for one in made}
        self.last |= ordinals
        return ordinals

    def read(self, ordinals: dict[int, int], columns: Sequence[str] = ("body",)) -> pa.Table:
        tables = [
            self.client.stream(
                entity=self.entity,
                reader=self.name,
                fragment=fragment,
                ordinals=[ordinal, ordinal],
                columns=list(columns),
            ).read_all()
            for fragment, ordinal in ordinals.items()
        ]
        return pa.concat_tables(tables)

    def complete(self, ordinals: dict[int, int]) -> Document:
        done = [{"fragment": part, "ordinal": ordinal} for part, ordinal in ordinals.items()]
        return self.client.act("complete", self.entity, **self._who, claims=done)


@contextmanager
def flight_client(
    server: Server, *, url: str = "", certificate: bytes | None = None
) -> Iterator[FlightClient]:
    """A client with every right."""
    with flight.connect(
        url or server.flight_url,
        tls_root_certs=certificate,  # type: ignore[arg-type]  # the stubs say str, it wants bytes
    ) as connection:
        yield FlightClient(connection, token_for(server))


def token_for(
    server: Server, credential: Credential | None = None, *, path: str = "", valid_s: int = HOUR_S
) -> str:
    chosen = credential or parse_connection_string(server.connection_string).credential
    resource = f"http://{server.host}:{server.http_port}/{path}"
    return mint_token(resource, chosen.key_name, chosen.key, int(time.time()) + valid_s)


def parts(answer: Document, name: str) -> list[Document]:
    found = answer[name]
    assert isinstance(found, list)
    return found


def number(part: Document, name: str = "number") -> int:
    found = part[name]
    assert isinstance(found, int)
    return found
