"""How a rule fails on a message, as opposed to how an expression is refused."""

from __future__ import annotations


class EvaluationError(Exception):
    """A filter or action has no result for this message; the same message fails again."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
