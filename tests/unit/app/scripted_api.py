"""An API whose answers are written down beforehand; what is asked is remembered."""

import json
from collections.abc import Mapping

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.client import Answer
from shardbus.app.cli.sas import Credential


class Script:
    """A Transport: answers in turn, the last one again and again."""

    def __init__(self, *answers: Document | Answer) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, Document]] = []

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        document = json.loads(body) if body else {}
        self.asked.append((f"{method} {target.removeprefix('/api/v1/')}", document))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Answer):
            return answer
        return Answer(200, json.dumps(answer).encode())

    def api(self) -> ApiClient:
        return ApiClient(self, "http://bus", Credential(), clock=lambda: 1000.0)

    def lines(self) -> list[str]:
        return [line for line, _ in self.asked]


def refusal(status: int, message: str) -> Answer:
    return Answer(status, json.dumps({"error": {"code": "x", "message": message}}).encode())


def message(number: int) -> Document:
    """A received message, locked."""
    return {"body": str(number), "lock_token": f"t{number}"}
