"""Purges and resubmits through the JSON API, in as many requests as necessary."""

from typing import Final

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.console import counted
from shardbus.app.cli.failures import Interrupted
from shardbus.app.cli.messages.entity_path import whole
from shardbus.app.cli.progress import Progress

PURGE_COUNT: Final = 5_000
RESUBMIT_COUNT: Final = 500


def purge(
    api: ApiClient, path: str, *, before: str | None = None, session_id: str | None = None
) -> int:
    """How many active messages were removed: all that are not locked."""
    body: Document = {"count": PURGE_COUNT}
    if before is not None:
        body["enqueued_before"] = before
    if session_id is not None:
        body["session_id"] = session_id
    purged, progress = 0, Progress("purging")
    try:
        has_more = True
        while has_more:
            answer = api.post(f"entities/{path}/messages/purge", body)
            purged += whole(answer, "purged")
            progress.advance(whole(answer, "purged"))
            # Held sessions keep their messages: a request that removed nothing ends the loop.
            has_more = bool(answer.get("has_more")) and whole(answer, "purged") > 0
    except KeyboardInterrupt as error:
        raise _interrupted("purged", counted(purged, "message"), PURGE_COUNT) from error
    finally:
        progress.end()
    return purged


def resubmit(api: ApiClient, path: str, count: int) -> int:
    """How many dead letters were resubmitted, oldest first, at most `count`.

    The bound keeps messages that become dead letters again from going round for ever.
    """
    done, progress = 0, Progress("resubmitting", count)
    try:
        while done < count:
            body: Document = {"count": min(count - done, RESUBMIT_COUNT)}
            answer = api.post(f"entities/{path}/dead-letters/resubmit", body)
            moved = whole(answer, "resubmitted")
            done += moved
            progress.advance(moved)
            if not moved or not answer.get("has_more"):
                break
    except KeyboardInterrupt as error:
        raise _interrupted("resubmitted", counted(done, "dead letter"), RESUBMIT_COUNT) from error
    finally:
        progress.end()
    return done


def _interrupted(verb: str, done: str, more: int) -> Interrupted:
    return Interrupted(
        f"interrupted: {done} {verb}; the last request may have {verb} up to {more:,} more"
    )


def count_of(api: ApiClient, path: str, name: str) -> int:
    """One of the counts of an entity, over all reachable fragments."""
    runtime = api.get(f"entities/{path}").get("runtime")
    return whole(dict(runtime) if isinstance(runtime, dict) else {}, name)
