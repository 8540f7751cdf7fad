"""The properties of a queue as command-line options, in one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import click

from shardbus.app.access import Options
from shardbus.app.duration import to_iso
from shardbus.app.failures import Usage

MB_PER_GB: Final = 1024


class Form(Enum):
    """How an option is typed; the value is what the help text shows."""

    SWITCH = ""
    NUMBER = "N"
    GIGABYTES = "GB"
    DURATION = "DURATION"
    TEXT = "TEXT"


@dataclass(frozen=True, slots=True)
class QueueOption:
    """A property: its flag, its element in the API, and whether it is settled at creation."""

    flag: str
    element: str
    form: Form
    help: str
    is_fixed: bool = False

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    def parameter(self) -> click.Option:
        if self.form is Form.SWITCH:
            pair = f"{self.flag}/--no-{self.flag.removeprefix('--')}"
            return click.Option([pair, self.name], default=None, help=self.help)
        kind = int if self.form in (Form.NUMBER, Form.GIGABYTES) else str
        names = [self.flag, self.name]
        return click.Option(names, type=kind, metavar=self.form.value, help=self.help)

    def text(self, value: str | int | bool) -> str:
        """The element's text for a value that was typed."""
        match self.form:
            case Form.SWITCH:
                return "true" if value else "false"
            case Form.GIGABYTES:
                return str(int(value) * MB_PER_GB)
            case Form.DURATION:
                return self._duration(str(value))
            case Form.NUMBER | Form.TEXT:
                return str(value)

    def _duration(self, typed: str) -> str:
        try:
            return to_iso(typed)
        except ValueError as error:
            raise Usage(f"{self.flag}: {error}") from error


QUEUE_OPTIONS: Final = (
    QueueOption(
        "--partitioning",
        "EnablePartitioning",
        Form.SWITCH,
        "Spread over fragments; the tier decides when not given.",
        is_fixed=True,
    ),
    QueueOption(
        "--size-gb",
        "MaxSizeInMegabytes",
        Form.GIGABYTES,
        "Size; of each fragment when partitioned.",
    ),
    QueueOption(
        "--lock-duration",
        "LockDuration",
        Form.DURATION,
        "How long a receiver holds a message: 30s, 5m, PT1M.",
    ),
    QueueOption(
        "--max-delivery-count",
        "MaxDeliveryCount",
        Form.NUMBER,
        "Deliveries before a message is dead-lettered.",
    ),
    QueueOption(
        "--default-ttl",
        "DefaultMessageTimeToLive",
        Form.DURATION,
        "Life of a message that names none: 14d, forever.",
    ),
    QueueOption(
        "--dead-letter-on-expiration",
        "DeadLetteringOnMessageExpiration",
        Form.SWITCH,
        "Dead-letter what expires instead of dropping it.",
    ),
    QueueOption(
        "--sessions",
        "RequiresSession",
        Form.SWITCH,
        "Every message belongs to a session.",
        is_fixed=True,
    ),
    QueueOption(
        "--duplicate-detection",
        "RequiresDuplicateDetection",
        Form.SWITCH,
        "Drop a message whose id was seen in the window.",
        is_fixed=True,
    ),
    QueueOption(
        "--duplicate-window",
        "DuplicateDetectionHistoryTimeWindow",
        Form.DURATION,
        "How long ids are remembered.",
    ),
    QueueOption(
        "--auto-delete-on-idle",
        "AutoDeleteOnIdle",
        Form.DURATION,
        "Delete the queue after this time unused.",
    ),
    QueueOption("--forward-to", "ForwardTo", Form.TEXT, "Entity that gets every message."),
    QueueOption(
        "--forward-dead-letters-to",
        "ForwardDeadLetteredMessagesTo",
        Form.TEXT,
        "Entity that gets the dead letters.",
    ),
    QueueOption(
        "--status", "Status", Form.TEXT, "Active, Disabled, SendDisabled or ReceiveDisabled."
    ),
    QueueOption("--user-metadata", "UserMetadata", Form.TEXT, "Free text kept with the queue."),
    QueueOption(
        "--max-message-kb",
        "MaxMessageSizeInKilobytes",
        Form.NUMBER,
        "Largest message in kilobytes; Premium only.",
    ),
    QueueOption(
        "--batched-operations",
        "EnableBatchedOperations",
        Form.SWITCH,
        "Kept for clients that ask; batching is always on.",
    ),
    QueueOption(
        "--express", "EnableExpress", Form.SWITCH, "Kept for clients that ask; all is durable."
    ),
)


def option_parameters(table: Sequence[QueueOption], *, is_update: bool) -> list[click.Parameter]:
    """Every option of a table; an update has none for what is settled at creation."""
    return [row.parameter() for row in table if not (is_update and row.is_fixed)]


def elements_from(table: Sequence[QueueOption], options: Options) -> dict[str, str]:
    """Element texts for the options that were given."""
    elements: dict[str, str] = {}
    for option in table:
        value = options.get(option.name)
        if value is not None:
            elements[option.element] = option.text(value)
    return elements
