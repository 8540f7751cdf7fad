"""Whoever keeps pipelines, as tests of the JSON API have it."""

from shardbus.core.errors import NOT_FOUND, Refused
from shardbus.gateway.http.api_call import Members
from shardbus.gateway.http.documents_schema import Document


class Kept:
    """One pipeline that remembers what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def all(self) -> list[Document]:
        return [self.show("archive")]

    def show(self, name: str) -> Document:
        if name != "archive":
            raise Refused(NOT_FOUND, "There is no such pipeline.")
        return {"name": name, "state": "running", "progress": {"rows_total": 7}}

    async def create(self, name: str, wanted: Members) -> Document:
        self.asked.append(f"create {name} of {wanted.text('entity')} at {wanted.text('path')}")
        return self.show(name)

    async def start(self, name: str) -> Document:
        self.asked.append(f"start {name}")
        return self.show(name)

    async def stop(self, name: str) -> Document:
        self.asked.append(f"stop {name}")
        return self.show(name)

    async def delete(self, name: str) -> None:
        self.asked.append(f"delete {name}")

    def log(self, name: str) -> list[str]:
        return ["one", "two", "three"]
