"""Redrives the letters of a group, repaired if requested, by jobs of the server."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import click

from shardbus.app.cli.access import Options, text_option
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.completion import complete_entity
from shardbus.app.cli.console import Console, Json, counted
from shardbus.app.cli.failures import CommandError, Interrupted, NotFound, Refused, Usage
from shardbus.app.cli.messages.entity_path import documents, texts, whole
from shardbus.app.cli.progress import Progress
from shardbus.app.cli.tables import shortened, terminal_width

CHUNK_COUNT: Final = 5_000
"""Letters of one job: the most that a killed command leaves in progress."""
SAMPLES_MAX: Final = 5
RATE_MAX: Final = 1_000_000
POLL_S: Final = 0.3
_ENDED: Final = ("done", "stopped", "failed")
_WARNINGS_MAX: Final = 10
_AGAIN: Final = "the same command continues"
_EXPIRED: Final = "TTLExpiredException"
_EXPIRING: Final = (
    "These letters had expired. They are sent with their time to live, and expire again when it is "
    "over: --repair 'SET sys.TimeToLive = NULL' sends them without one."
)


@dataclass(frozen=True, slots=True)
class RedriveOrder:
    """What to do with the letters of a group."""

    edit: Document
    rate_max: int
    is_applied: bool
    target: str = ""


def redrive_options() -> list[click.Parameter]:
    return [
        click.Option(["--group"], metavar="ID", help="Redrive the letters of this group."),
        click.Option(
            ["--repair"],
            metavar="ACTION",
            help="Change properties first, in the language of rule actions: "
            "SET name = expression; SET sys.Label = 'x'; REMOVE name.",
        ),
        click.Option(
            ["--body-set"],
            multiple=True,
            metavar="PATH=JSON",
            help="Set a value in the JSON body first, as in $.customer.id=7; may be repeated.",
        ),
        click.Option(
            ["--body-repair"],
            metavar="ACTION",
            help="Change members of the JSON body first, as --repair changes properties: "
            "SET total = price * quantity; SET [customer.id] = 7; REMOVE debug.",
        ),
        click.Option(
            ["--to", "target"],
            metavar="ENTITY",
            shell_complete=complete_entity,
            help="Redrive to this queue, topic or TOPIC/Subscriptions/NAME; one subscription alone "
            "needs Manage on its topic.  [default: the queue or topic of the letters]",
        ),
        click.Option(
            ["--undo"],
            metavar="ID",
            help="Make the redriven letters of this group dead letters again where they are now, "
            "unless they have been received; without Spark.",
        ),
        click.Option(
            ["--apply/--dry-run", "is_applied"],
            help="Redrive, or only show what would be done.  [default: --dry-run]",
        ),
        click.Option(
            ["--rate"],
            type=click.IntRange(1, RATE_MAX),
            metavar="N",
            help="Maximum number of letters to redrive per second.",
        ),
    ]


def read_order(group: str, body_set: tuple[str, ...], options: Options) -> RedriveOrder | None:
    """The order; None if nothing is to be redriven. Usage if options contradict each other."""
    repair, rate = text_option(options, "repair"), options.get("rate")
    body_repair, target = text_option(options, "body_repair"), text_option(options, "target")
    is_applied = bool(options.get("is_applied"))
    has_repairs = repair is not None or body_repair is not None or bool(body_set)
    if text_option(options, "undo") is not None:
        if group or has_repairs or target is not None:
            raise Usage("--undo only moves letters back: leave out the other options")
        return None
    if not group:
        if has_repairs or target is not None or is_applied or rate is not None:
            raise Usage(
                "--repair, --body-set, --body-repair, --to, --apply and --rate are for one group: "
                "choose it with --group; without it, the command lists the groups"
            )
        return None
    edit: Document = {}
    if repair is not None:
        edit["action"] = repair
    if body_repair is not None:
        edit["body_action"] = body_repair
    if body_set:
        edit["body_set"] = dict(map(_value_at, body_set))
    return RedriveOrder(
        edit, rate if isinstance(rate, int) else 0, is_applied, (target or "").strip("/")
    )


def mark_of(group: str) -> str:
    """The mark that identifies the redriven letters of a group."""
    return f"triage-{group}"


def undo(api: ApiClient, entities: Sequence[str], group: str, order: Options) -> Document:
    """Make redriven letters of a group dead letters again, unless they have been received."""
    done = skipped = 0
    warnings: list[str] = []
    for entity in entities:
        job: Document = {"action": "undo", "mark": mark_of(group)}
        if isinstance(rate := order.get("rate"), int):
            job["rate_max"] = rate
        ended = _ended(api, f"entities/{entity}/jobs", job)
        done += whole(ended, "done")
        skipped += whole(ended, "skipped")
        warnings += _new_warnings(ended, warnings)
    return {
        "group": group,
        "undone": done,
        "skipped": skipped,
        "warnings": list[Json](warnings),
    }


def _ended(api: ApiClient, path: str, order: Document) -> Document:
    job = api.post(path, order)
    one = f"{path}/{job.get('id')}"
    while job.get("state") not in _ENDED:
        time.sleep(POLL_S)
        job = api.get(one)
    if job.get("state") != "done":
        raise Refused(
            str(job.get("error") or f"job {job.get('id')} of the server was {job.get('state')}")
        )
    api.delete(one)
    return job


def found_group(report: Document, group: str) -> Document:
    for each in documents(report, "groups"):
        if each.get("id") == group:
            return each
    raise NotFound(
        f"there is no group {group} among the dead letters (any more): without --group the "
        "command lists the groups"
    )


class Redrive:
    """One group. The server moves each letter in a transaction: repeating the command duplicates
    nothing, and interrupting it loses nothing.
    """

    def __init__(
        self,
        api: ApiClient,
        order: RedriveOrder,
        group: Document,
        numbers: Callable[[], Iterator[int]],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._order = order
        self._group = group
        self._line = f"entities/{group.get('entity')}/$DeadLetterQueue"
        self._numbers = numbers
        self._pause = pause
        self._done = 0
        self._skipped = 0
        self._warnings = [_EXPIRING] if _is_expiring(group, order) else []

    def run(self, console: Console) -> int:
        return self._apply(console) if self._order.is_applied else self._show(console)

    def _show(self, console: Console) -> int:
        """Check everything that a redrive needs, and show samples; nothing changes."""
        some = next(self._chunks(SAMPLES_MAX), [])
        if not some:
            raise NotFound(
                f"the group {self._group.get('id')} has no letters left: without --group the "
                "command lists the groups"
            )
        planned = self._api.post(f"{self._line}/jobs", self._job(some, is_dry_run=True))
        trials = self._trials(some) if self._order.edit else []
        count = whole(self._group, "count")
        warnings = self._warnings + texts(planned, "warnings")
        document: Document = {
            "group": self._group.get("id"),
            "entity": self._group.get("entity"),
            "letters": count,
            "is_applied": False,
            "destination": planned.get("destination"),
            "warnings": list[Json](warnings),
            "samples": list[Json](trials),
        }
        lines = [
            f"would redrive {counted(count, 'dead letter')} of {self._group.get('entity')} to "
            f"{planned.get('destination')}; nothing was changed: --apply does it"
        ]
        lines += warnings
        lines += [line for trial in trials for line in _difference(trial)]
        console.show(document, "\n".join(lines))
        return 0

    def _trials(self, numbers: list[int]) -> list[Document]:
        asked: Document = {"numbers": list(numbers), "edit": self._order.edit}
        return documents(self._api.post(f"{self._line}/edit-test", asked), "results")

    def _apply(self, console: Console) -> int:
        progress = Progress("redriving", whole(self._group, "count"))
        try:
            for numbers in self._chunks(CHUNK_COUNT):
                self._run_job(numbers, progress)
        except CommandError as error:
            if not self._done:
                # No job was started: the same command would be refused again.
                raise
            raise type(error)(f"{error} ({self._total()}; {_AGAIN})") from error
        finally:
            progress.end()
        document: Document = {
            "group": self._group.get("id"),
            "entity": self._group.get("entity"),
            "is_applied": True,
            "redriven": self._done,
            "skipped": self._skipped,
            "warnings": list[Json](self._warnings),
        }
        console.show(document, "\n".join([self._total(), *self._warnings]))
        return 0

    def _run_job(self, numbers: list[int], progress: Progress) -> None:
        job = self._api.post(f"{self._line}/jobs", self._job(numbers))
        path = f"{self._line}/jobs/{job.get('id')}"
        seen = 0
        try:
            while job.get("state") not in _ENDED:
                self._pause(POLL_S)
                job = self._api.get(path)
                progress.advance(whole(job, "done") - seen)
                seen = whole(job, "done")
        except KeyboardInterrupt as error:
            # A letter in progress is moved completely or not at all.
            self._api.post(f"{path}/stop", {})
            raise Interrupted(f"interrupted: {self._total(seen)}; {_AGAIN}") from error
        self._count(job)
        if job.get("state") != "done":
            told = job.get("error") or f"the job was {job.get('state')}"
            raise Refused(str(told))
        self._api.delete(path)

    def _count(self, job: Document) -> None:
        self._done += whole(job, "done")
        self._skipped += whole(job, "skipped")
        self._warnings += _new_warnings(job, self._warnings)

    def _job(self, numbers: list[int], *, is_dry_run: bool = False) -> Document:
        job: Document = {
            "action": "resubmit",
            "selection": {"numbers": list(numbers)},
            "is_dry_run": is_dry_run,
            "mark": mark_of(str(self._group.get("id"))),
        }
        target = self._order.target
        if target:
            is_home = target.lower() == str(self._group.get("entity")).lower()
            job["action"] = "resubmit" if is_home else "move"
            job["destination"] = target
        if self._order.edit:
            job["edit"] = self._order.edit
        if self._order.rate_max:
            job["rate_max"] = self._order.rate_max
        return job

    def _chunks(self, count: int) -> Iterator[list[int]]:
        numbers = self._numbers()
        while some := list(islice(numbers, count)):
            yield some

    def _total(self, more: int = 0) -> str:
        text = f"redrove {counted(self._done + more, 'dead letter')} of {self._group.get('entity')}"
        left = f", and left {self._skipped:,} that are gone, locked or cannot be repaired"
        return text + (left if self._skipped else "")


def _new_warnings(job: Document, known: Sequence[str]) -> list[str]:
    """What a job warns of and others did not; all together at most _WARNINGS_MAX."""
    new = [each for each in dict.fromkeys(texts(job, "warnings")) if each not in known]
    return new[: _WARNINGS_MAX - len(known)]


def _is_expiring(group: Document, order: RedriveOrder) -> bool:
    """Whether the letters would expire again."""
    action = str(order.edit.get("action", "")).lower()
    return group.get("reason") == _EXPIRED and "timetolive" not in action


def _value_at(text: str) -> tuple[str, Json]:
    path, sign, value = text.partition("=")
    if not sign or not path.strip():
        raise Usage(f"--body-set is {text!r}; it must look like $.customer.id=7")
    try:
        found: Json = json.loads(value)
    except ValueError as error:
        raise Usage(
            f"--body-set {path}: {value!r} is not JSON ({error}); a text needs quotes, as in "
            f"'{path}=\"text\"'"
        ) from error
    return path.strip(), found


def _difference(trial: Document) -> Iterator[str]:
    width = terminal_width()
    yield ""
    yield f"message {trial.get('number')}"
    if trial.get("error"):
        yield f"  stays as it is: {_printable(trial.get('error'))}"
    for change in documents(trial, "changes"):
        name = _printable(change.get("name"))
        for sign, member in (("-", "before"), ("+", "after")):
            if change.get(member) is not None:
                yield shortened(f"  {sign} {name} = {_printable(change.get(member))}", width)


def _printable(value: Json) -> str:
    # Control characters of a sender must not reach the terminal.
    return "".join(each if each.isprintable() else " " for each in str(value))
