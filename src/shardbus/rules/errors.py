"""The failure of a rule on a message, as opposed to the refusal of an expression."""

from __future__ import annotations


class EvaluationError(Exception):
    """A filter or action has no result for this message; the same message would fail again."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
