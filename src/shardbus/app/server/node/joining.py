"""Checks, before a node joins, that it and the cluster trust each other, and agree on the time.

A node with access to the database but without a certificate of the cluster's authority would get
slots that no gateway can reach. So every broker writes into its row which authorities it trusts,
and a node that trusts none of them does not join.

Messages expire and become due by the clock of the broker that owns their slot. A slot that moves to
a machine whose clock is an hour ahead would lose an hour of every message's life.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from shardbus.app.cli.failures import CommandError
from shardbus.app.server.node.tls import authority_in
from shardbus.core.cluster.terms import SILENCE_MS
from shardbus.stores.base.sight import SeenMember, Sight

TRUSTS: Final = "trusts"
_SHOWN_DIGITS: Final = 16
# Far more than the difference between synchronized clocks.
APART_MS_MAX: Final = 60_000


def trusted_in(directory: Path | None) -> list[str]:
    """The fingerprints of the authorities in the TLS files of a node; none without such files.

    There are several while an authority is replaced.
    """
    if directory is None:
        return []
    found = x509.load_pem_x509_certificates(authority_in(directory).read_bytes())
    return sorted({each.fingerprint(hashes.SHA256()).hex()[:_SHOWN_DIGITS] for each in found})


def refuse_strangers(sight: Sight, name: str, trusted: Sequence[str]) -> None:
    """CommandError, and nothing is changed, if running brokers would refuse this node."""
    for member in sight.members:
        theirs = _trusted_by(member)
        is_other = member.name != name and member.beat_age_ms < SILENCE_MS
        if not is_other or theirs is None or set(theirs) & set(trusted) or theirs == trusted:
            continue
        mine = f"trusts {', '.join(trusted)}" if trusted else "has no --node-tls"
        raise CommandError(
            f"node {member.name!r} of this cluster {_words(theirs)}, and this node {mine}: they "
            "would refuse each other's connections, and no gateway could reach the slots of this "
            "node. Nothing was changed. Give it a certificate of the cluster's authority: "
            "`shardbus cluster cert --ca ...`"
        )


def clock_problem(shown: str, database_ms: int, now_ms: int) -> str:
    """How the clock of this machine differs from that of a database; empty if it does not."""
    apart_ms = now_ms - database_ms
    if abs(apart_ms) <= APART_MS_MAX:
        return ""
    which = "ahead of" if apart_ms > 0 else "behind"
    return (
        f"the clock of this machine is {abs(apart_ms) // 1000} s {which} that of {shown}: messages "
        "would expire and become due at other times than on other nodes. Synchronize both clocks, "
        "with NTP for example"
    )


def refuse_clock(shown: str, sight: Sight, now_ms: int) -> None:
    """CommandError if the clock differs from that of the database."""
    problem = clock_problem(shown, sight.time_ms, now_ms)
    if problem:
        raise CommandError(f"{problem}, and start this node again; it has not joined the cluster")


def _words(theirs: list[str]) -> str:
    return f"trusts the authority {', '.join(theirs)}" if theirs else "has no --node-tls"


def _trusted_by(member: SeenMember) -> list[str] | None:
    """None if the row has no such value, as in a row of an earlier build."""
    try:
        document: object = json.loads(member.about)
    except ValueError:
        return None
    found = document.get(TRUSTS) if isinstance(document, dict) else None
    return [str(each) for each in found] if isinstance(found, list) else None
