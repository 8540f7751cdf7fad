"""Peeking through the JSON API, page by page."""

from collections.abc import Iterator
from typing import Final

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.messages.entity_path import documents

PAGE_COUNT: Final = 250


def browse(
    api: ApiClient,
    path: str,
    *,
    count: int | None,
    start: int | None = None,
    session_id: str | None = None,
) -> Iterator[list[Document]]:
    """Messages in pages, at most `count`, None: all. The pages end with the messages."""
    left, cursor = count, None
    while left is None or left > 0:
        top = PAGE_COUNT if left is None else min(left, PAGE_COUNT)
        page = api.get(
            f"entities/{path}/messages",
            from_=start if cursor is None else None,
            top=top,
            session=session_id,
            cursor=cursor,
        )
        messages = documents(page, "messages")
        if messages:
            yield messages
        following = page.get("next")
        if not isinstance(following, str):
            return
        cursor = following
        left = None if left is None else left - len(messages)
