"""The page of limits says what the code does."""

import re
from typing import Final

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.app.backups import kept
from shardbus.app.cli.entities import atom
from shardbus.app.server import descriptors, fetching, front, issuer, settings
from shardbus.broker.access import bearer, claim_grants, sas, slowdown
from shardbus.broker.backup import backup
from shardbus.broker.backup import part as backup_part
from shardbus.broker.fragment import alarm, outlet
from shardbus.broker.operations import browse, staging
from shardbus.broker.routing import batches, outbox, router
from shardbus.codec.limits import FLOWS_WAITING_MAX, NESTING_MAX, SASL_FRAME_SIZE_MAX
from shardbus.core import limits as core_limits
from shardbus.core.limits import (
    DECIDE_MS_MAX,
    KEYS_BARRED_MS,
    PROMISE_LATE_MS,
    SHORT_STATE_BYTES_MAX,
)
from shardbus.gateway.admission import admission as places_of_connections
from shardbus.gateway.admission import amqp as amqp_admission
from shardbus.gateway.admission import holdings, newcomers
from shardbus.gateway.admission import http as http_admission
from shardbus.gateway.amqp.connection import protocol, totals
from shardbus.gateway.amqp.links import attach, inbound, outbound, receivers
from shardbus.gateway.amqp.management import cbs, responses
from shardbus.gateway.amqp.transactions import open as transactions
from shardbus.gateway.flight.reading import kept_stores
from shardbus.gateway.flight.server import admission, bus, places
from shardbus.gateway.flight.writing import pieces
from shardbus.gateway.http.api.bulk import piece_parts
from shardbus.gateway.http.api.bulk import readers as api_readers
from shardbus.gateway.http.atom import markup
from shardbus.gateway.http.observing import readers as reader_metrics
from shardbus.gateway.http.server import connection, counts, head, message, refusal_log
from shardbus.gateway.listening import tls, websocket_frames
from shardbus.rules import limits as rule_limits
from shardbus.stores.base import backup as base_backup
from shardbus.stores.base import catalogue as base_catalogue
from shardbus.stores.postgres import writer as postgres_writer
from shardbus.stores.sqlite import snapshot
from tests.docs.pages import REFERENCE

KB: Final = 1024
MB: Final = 1024 * 1024
SECOND: Final = 1000
CONFIG: Final = ConnectionConfig()
CONNECTIONS_MAX: Final = 5_000
RESERVE_MB: Final = 16
SAID: Final = {
    "fragments of a queue or topic that is repartitioned": [
        core_limits.ENTITY_FRAGMENTS_MAX,
        core_limits.ENTITY_FRAGMENTS_KEPT_MAX,
    ],
    "message ids that are carried over": [core_limits.CARRIED_IDS_MAX],
    "the wait of a send for the new map": [router.HELD_MS_MAX // SECOND],
    "producers whose last batch": [
        core_limits.PRODUCERS_MAX,
        core_limits.PRODUCER_KEPT_MS // 86_400_000,
    ],
    "producers that published once": [
        core_limits.PRODUCERS_MAX,
        core_limits.PRODUCER_ONCE_KEPT_MS // 60_000,
    ],
    "batches of a producer whose fingerprints": [
        core_limits.FINGERPRINTS_MAX,
        core_limits.FINGERPRINT_CHARACTERS_MAX,
    ],
    "lines of fragments that forward": [
        core_limits.TRANSFER_MARKS_MAX,
        core_limits.TRANSFER_MARK_KEPT_MS // 86_400_000,
    ],
    "a write whose connection to PostgreSQL broke": [
        int(postgres_writer.SETTLE_S),
        postgres_writer.ATTEMPTS_MAX,
    ],
    "AMQP connections, WebSockets": [CONNECTIONS_MAX],
    "HTTP connections |": [descriptors.HTTP_LEAST],
    "connections that have sent nothing": [newcomers.SILENT_MAX],
    "connections in a TLS handshake": [newcomers.SECURED_MAX],
    "connections beyond the limit": [places_of_connections.TURNED_AWAY_MAX],
    "file descriptors": [descriptors.RESERVED_MAX],
    "from connecting to the first byte": [newcomers.SILENT_MS_MAX // SECOND],
    "a TLS handshake, and from it": [newcomers.SECURED_MS_MAX // SECOND],
    "from connecting to the first valid token": [protocol.NO_TOKEN_MS // SECOND],
    "a connection with a token that never": [protocol.NO_LINK_MS // SECOND],
    "a connection whose links have all": [protocol.LINKS_GONE_MS // SECOND],
    "a sender without messages": [attach.LINK_IDLE_MS // SECOND // 60],
    "a client that sends nothing": [2 * CONFIG.idle_timeout_ms // SECOND],
    "the idle-time-out that a client": [protocol.IDLE_TIMEOUT_MS_MIN],
    "an HTTP request, from its first": [connection.REQUEST_MS_MAX // SECOND],
    "an HTTP connection between": [connection.IDLE_MS_MAX // SECOND],
    "an HTTP answer, until": [connection.WRITE_MS_MAX // SECOND],
    "reading after": [
        connection.LINGER_MS_MAX // SECOND,
        connection.LINGER_BYTES_MAX // MB,
    ],
    "a closing error": [
        protocol.GOODBYE_MS // SECOND,
        protocol.EXPELLED_GOODBYE_MS // SECOND,
    ],
    "positions in a partitioned entity": [browse.PLACES_MAX],
    "the wait for a moment": [alarm.LOOK_MS_MAX // SECOND],
    "the wait of a promised": [DECIDE_MS_MAX // SECOND],
    "keys of messages that are promised": [
        PROMISE_LATE_MS // SECOND,
        KEYS_BARRED_MS // SECOND,
    ],
    "the decision about a batch": [batches.DECIDE_MS // SECOND],
    "entities with their own samples": [counts.ENTITIES_MAX],
    "fragments of readers": [reader_metrics.READER_FRAGMENTS_MAX],
    "lines in the log": [refusal_log.OF_PEER_MAX, refusal_log.LINES_MAX],
    "bytes before the first token": [amqp_admission.STRANGER_BYTES_MAX // KB],
    "sessions |": [protocol.STRANGER_SESSIONS_MAX, CONFIG.channel_max + 1],
    "links | 64": [protocol.STRANGER_LINKS_MAX, CONFIG.links_max],
    "requests under way (": [protocol.STRANGER_REQUESTS_MAX, protocol.REQUESTS_MAX],
    "open transactions | 4": [
        transactions.STRANGER_OPEN_MAX,
        transactions.OPEN_MAX,
        transactions.BYTES_MAX // MB,
    ],
    "bytes written that": [
        protocol.STRANGER_WRITE_BYTES_MAX // KB,
        protocol.UNREAD_BYTES_MAX // MB,
    ],
    "bytes of its messages that are not": [protocol.PENDING_BYTES_MAX // MB],
    "unfinished messages": [front.BUFFERED_BYTES_LEAST // MB],
    "a frame |": [
        CONFIG.accepted_frame_size // KB,
        CONFIG.max_frame_size // KB,
        SASL_FRAME_SIZE_MAX // KB,
    ],
    "credit that the bus gives": [inbound.CREDIT, CONFIG.incoming_window],
    "credit that the bus is given": [CONFIG.unsettled_max],
    "tokens |": [cbs.GRANTS_MAX],
    "answers that wait": [responses.PENDING_MAX, responses.PENDING_BYTES_MAX // MB],
    "flows that wait": [FLOWS_WAITING_MAX],
    "values inside values": [NESTING_MAX],
    "a token request": [attach.TOKEN_BYTES_MAX // KB],
    "bytes of strangers": [amqp_admission.STRANGERS_BYTES_MAX // MB],
    "links | 200": [totals.LINKS_MAX],
    "receivers of an entity": [receivers.RECEIVERS_MAX],
    "requests under way |": [totals.REQUESTS_MAX],
    "open transactions | 20": [totals.TRANSACTIONS_MAX, totals.TRANSACTION_BYTES_MAX // MB],
    "bytes received that are not stored": [totals.PENDING_BYTES_MAX // MB],
    "messages whose last frame": [
        totals.UNFINISHED_BYTES_MAX // MB,
        holdings.PROGRESS_BYTES // KB,
    ],
    "bytes sent that are not read": [
        totals.UNREAD_BYTES_MAX // MB,
        holdings.PROGRESS_BYTES // KB,
    ],
    "messages and answers that wait for": [outbound.WAITING_BYTES_MAX // MB],
    "answers that are not read": [
        http_admission.ANSWERS_BYTES_MAX // MB,
        holdings.PROGRESS_BYTES // KB,
    ],
    "wrong keys": [slowdown.WAITING_MAX, slowdown.WAITING_OF_PEER_MAX],
    "a token of either kind": [sas.TOKEN_CHARACTERS_MAX],
    "grants for the claims": [claim_grants.CLAIM_GRANTS_MAX, settings.AUDIENCES_MAX],
    "keys of the issuer": [
        bearer.ISSUER_KEYS_MAX,
        bearer.RSA_BITS_MIN,
        bearer.RSA_BITS_MAX,
        fetching.DOCUMENT_BYTES_MAX // KB,
        issuer.FETCH_MS_MAX // SECOND,
    ],
    "reading the keys": [issuer.REFRESH_MS // SECOND, issuer.ASK_AGAIN_MS // SECOND],
    "the age of keys": [issuer.KEYS_AGE_MS_MAX // 3_600_000],
    "names in a certificate": [tls.HOSTS_MAX],
    "clocks of issuer and bus": [bearer.SKEW_S],
    "request line and headers": [head.HEADER_BYTES_MAX // KB],
    "a body": [head.BODY_BYTES_MAX // MB],
    "bodies being received": [http_admission.BODIES_BYTES_MAX // MB],
    "fields in the query": [message.QUERY_FIELDS_MAX],
    "elements of an XML document": [markup.ELEMENTS_MAX, markup.DEPTH_MAX],
    "elements of an XML answer": [atom.ELEMENTS_MAX, markup.DEPTH_MAX],
    "a WebSocket message": [websocket_frames.MESSAGE_BYTES_MAX // MB],
    "unfinished creations and deletions": [base_catalogue.UNFINISHED_MAX],
    "free space beyond": [RESERVE_MB, SHORT_STATE_BYTES_MAX // KB],
    "standstill of all stores": [backup.HOLD_MS_MAX // SECOND, backup.HOLD_ATTEMPTS],
    "the log of a store being": [snapshot.LOG_BYTES_MAX // MB // KB],
    "a part of a backup": [backup_part.FORSAKEN_MS // SECOND],
    "space that stays free": [base_backup.SPARE_BYTES // MB],
    "backups that the server": [kept.RECORDS_MAX],
    "a batch": [inbound.BATCH_MESSAGES_MAX],
    "deferred messages received": [
        core_limits.DEFERRED_COUNT_MAX,
        core_limits.DEFERRED_BYTES_MAX // MB,
    ],
    "redelivered messages locked": [core_limits.PAGE_BYTES_MAX // MB],
    "SQL filters": [rule_limits.SQL_RULES_MAX],
    "correlation filters": [rule_limits.CORRELATION_RULES_MAX],
    "rules with actions of a subscription": [rule_limits.ACTION_RULES_MAX],
    "rules with actions of a topic": [rule_limits.TOPIC_ACTION_RULES_MAX],
    "rules of a topic that set": [
        rule_limits.REWRITTEN_BYTES_MAX // MB,
        rule_limits.REWRITING_RULES_LEAST,
    ],
    "properties that an action": [core_limits.MODIFIED_BYTES_MAX // KB],
    "a send whose outcome": [outbox.DOUBT_MS_MAX // SECOND],
    "gateways that sent to a fragment": [
        core_limits.TICKET_SENDERS_MAX,
        core_limits.TICKETS_KEPT_MS // SECOND // 60,
    ],
    "unanswered sends of a gateway": [core_limits.TICKET_GAPS_MAX, core_limits.TICKET_REPLIES_MAX],
    "calls with a valid token": [admission.CALLS_OPEN_MAX, admission.CALLS_OPEN_OF_RULE_MAX],
    "streams being read": [places.STREAMS_MAX, places.YIELDS_AFTER_S, places.WAITS_S_MAX],
    "stages of a fragment": [core_limits.STAGES_MAX],
    "the part of one publication": [
        core_limits.WHOLE_BYTES_MAX // MB,
        core_limits.WHOLE_COUNT_MAX,
        core_limits.BITE_BYTES_MAX // MB,
        core_limits.BITE_COUNT_MAX,
        outlet.GATHERED_MAX,
        outlet.GATHERED_BYTES_MAX // MB,
    ],
    "pieces of a stage": [core_limits.STAGE_PIECES_MAX, core_limits.STAGE_PIECE_BYTES_MAX // MB],
    "bytes of stages that are checked": [core_limits.CHECKED_BYTES_MAX // MB],
    "the wait for a publication": [staging.WAIT_MS // SECOND],
    "message ids that a fragment remembers": [core_limits.REMEMBERED_MAX],
    "the wait for the first batch": [places.FIRST_S_MAX],
    "the wait for later": [places.SILENT_S_MAX],
    "connections |": [places.CONNECTIONS_MAX, places.SILENT_S_MAX],
    "requests to the bus about": [bus.CALLS_MAX, slowdown.WAITING_OF_PEER_MAX, bus.WAIT_S],
    "requests that wait for a change": [bus.WAITS_MAX, api_readers.WAIT_MS_MAX // 1000],
    "a message being written": [pieces.MESSAGE_BYTES_MAX // MB],
    "parts of messages": [
        piece_parts.GATHERED_BYTES_MAX // MB,
        piece_parts.PIECES_MAX,
        piece_parts.PARTS_MAX,
        piece_parts.IDLE_MS_MAX // SECOND,
    ],
    "the same for the tokens": [
        piece_parts.CLIENT_BYTES_MAX // MB,
        piece_parts.CLIENT_PIECES_MAX,
    ],
    "stores that stay open": [kept_stores.KEPT_MAX, kept_stores.KEPT_S_MAX],
    "valid tokens": [admission.ADMITTED_MAX, admission.ADMITTED_S],
}


@pytest.mark.parametrize("start", SAID)
def test_a_row_has_the_numbers_of_the_code(start: str) -> None:
    page = (REFERENCE / "limits.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith(f"| {start}")]

    numbers = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", row)}
    assert set(SAID[start]) <= numbers


def test_the_default_of_the_reserve_is_on_the_page() -> None:
    [row] = [row for row in settings.TABLE if row.name == "reserve_mb"]

    assert row.default == RESERVE_MB


def test_the_default_of_connections_is_on_the_page() -> None:
    [row] = [row for row in settings.TABLE if row.name == "connections_max"]

    assert row.default == CONNECTIONS_MAX
