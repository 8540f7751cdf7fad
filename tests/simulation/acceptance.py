"""Which message ids were accepted when: inside the window none is accepted twice."""

from collections.abc import Sequence
from typing import NamedTuple

from shardbus.core.fragment.change import Remember
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.limits import DIGEST_BYTES
from shardbus.stores.base.store import FragmentId
from tests.simulation.sending import Sending, Violation


class Identity(NamedTuple):
    """What makes two messages of a fragment the same: the id, and the key if it is partitioned."""

    fragment: FragmentId
    message_id: str
    key: str | None


class Acceptances:
    """Every acceptance of an id, in the order of commits."""

    def __init__(self) -> None:
        self._accepted_at_ms: dict[Identity, list[int]] = {}

    def accepted(
        self,
        fragment: FragmentId,
        rules: FragmentRules,
        sendings: Sequence[Sending],
        remembered: Sequence[Remember],
    ) -> None:
        """A commit stored these messages; it must remember their ids, and only theirs."""
        known = [sending for sending in sendings if sending.message.message_id is not None]
        digests = sum(len(change.digests) // DIGEST_BYTES for change in remembered)
        if digests != (len(known) if rules.duplicate_window_ms else 0):
            raise Violation(f"{fragment}: {digests} ids remembered of {len(known)} accepted")
        if not rules.duplicate_window_ms or not known:
            return
        [at_ms] = {change.at_ms for change in remembered}
        for sending in known:
            self._accept(sending, _identity(fragment, rules, sending), rules, at_ms)

    def check_dropped(
        self,
        fragment: FragmentId,
        rules: FragmentRules,
        sending: Sending,
        from_ms: int,
        to_ms: int,
    ) -> None:
        """It was dropped between two moments: its id had been accepted, less than a window ago."""
        if sending.message.message_id is None:
            raise Violation(f"message {sending.mark} has no id, and was dropped as a duplicate")
        accepted = self._accepted_at_ms.get(_identity(fragment, rules, sending), [])
        window_ms = rules.duplicate_window_ms
        if not any(at_ms <= to_ms and from_ms < at_ms + window_ms for at_ms in accepted):
            raise Violation(
                f"message {sending.mark} was dropped between {from_ms} and {to_ms}, but "
                f"{sending.message.message_id!r} was accepted at {accepted}"
            )

    def _accept(
        self, sending: Sending, identity: Identity, rules: FragmentRules, at_ms: int
    ) -> None:
        earlier = self._accepted_at_ms.setdefault(identity, [])
        if earlier and at_ms < earlier[-1] + rules.duplicate_window_ms:
            raise Violation(
                f"message {sending.mark} is a duplicate: {identity.message_id!r} was accepted "
                f"at {earlier[-1]} and again at {at_ms}"
            )
        earlier.append(at_ms)


def _identity(fragment: FragmentId, rules: FragmentRules, sending: Sending) -> Identity:
    message_id = sending.message.message_id
    assert message_id is not None
    return Identity(fragment, message_id, sending.key if rules.is_partitioned else None)
