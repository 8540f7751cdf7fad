"""Whether a node and the nodes of the cluster that it joins would let each other in.

A node that has the database but no certificate of the cluster's authority would be given slots that
no gateway reaches. So every broker tells in its row which authorities it trusts, and who trusts
none of them does not join.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from shardbus.app.cli.failures import CommandError
from shardbus.app.server.node_tls import authority_in
from shardbus.core.cluster.terms import SILENCE_MS
from shardbus.stores.base.sight import SeenMember, Sight

TRUSTS: Final = "trusts"
_SHOWN_DIGITS: Final = 16


def trusted_in(directory: Path | None) -> list[str]:
    """The fingerprints of the authorities of a node, in its files of TLS; none without them.

    There are several while an authority is replaced.
    """
    if directory is None:
        return []
    found = x509.load_pem_x509_certificates(authority_in(directory).read_bytes())
    return sorted({each.fingerprint(hashes.SHA256()).hex()[:_SHOWN_DIGITS] for each in found})


def refuse_strangers(sight: Sight, name: str, trusted: Sequence[str]) -> None:
    """CommandError, and nothing is changed, if brokers that live would not let this node in."""
    for member in sight.members:
        theirs = _trusted_by(member)
        is_other = member.name != name and member.beat_age_ms < SILENCE_MS
        if not is_other or theirs is None or set(theirs) & set(trusted) or theirs == trusted:
            continue
        mine = f"trusts {', '.join(trusted)}" if trusted else "has no --node-tls"
        raise CommandError(
            f"node {member.name!r} of this cluster {_words(theirs)}, and this node {mine}: they "
            "would not let each other in, and the slots of this node would be out of reach. "
            "Nothing was changed. Give it a certificate of the cluster's authority: `shardbus "
            "cluster cert --ca ...`"
        )


def _words(theirs: list[str]) -> str:
    return f"trusts the authority {', '.join(theirs)}" if theirs else "has no --node-tls"


def _trusted_by(member: SeenMember) -> list[str] | None:
    """None: it does not tell, as builds before this one."""
    try:
        document: object = json.loads(member.about)
    except ValueError:
        return None
    found = document.get(TRUSTS) if isinstance(document, dict) else None
    return [str(each) for each in found] if isinstance(found, list) else None
