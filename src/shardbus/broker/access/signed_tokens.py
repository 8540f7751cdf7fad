"""Tokens that clients show again and again: read once, and their signatures computed once.

What is remembered of a token never changes: its fields, and which key made its signature. Whether
that key is a key of a rule now, which rights the rule gives, what the token is for and whether it
has expired is decided each time. So nothing has to be forgotten when rules or keys change.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

from shardbus.broker.access.sas import SasToken, parse_token

TOKENS_KEPT_MAX: Final = 1_000
"""Beyond that, the token that was not shown for the longest time is forgotten."""
KEPT_CHARACTERS_MAX: Final = 1_024
"""A longer token is read each time: the longest name of an entity makes one of about 500."""


@final
class SignedTokens:
    """Remembers tokens that were good; a stranger cannot fill it."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, SasToken] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def read(self, text: str) -> SasToken:
        """The token, well-formed, with nothing about it verified; Refused when it is none."""
        known = self._known.get(text)
        return parse_token(text) if known is None else known

    def keep(self, text: str, token: SasToken) -> None:
        """Remember a token whose signature, scope and expiry are good."""
        if len(text) > KEPT_CHARACTERS_MAX:
            return
        self._known[text] = token
        self._known.move_to_end(text)
        if len(self._known) > TOKENS_KEPT_MAX:
            self._known.popitem(last=False)
