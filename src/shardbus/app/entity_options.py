"""The properties of topics and subscriptions as command-line options, in two tables.

Those that queues have too are the rows of the queue's table.
"""

from typing import Final

from shardbus.app.atom import SUBSCRIPTION_ELEMENTS, TOPIC_ELEMENTS
from shardbus.app.queue_options import QUEUE_OPTIONS, Form, QueueOption

_HELP: Final = {
    "Status": "Active, Disabled, or SendDisabled (topic) or ReceiveDisabled (subscription).",
    "AutoDeleteOnIdle": "Delete it after this time unused.",
    "UserMetadata": "Free text kept with it.",
}


def _shared(elements: tuple[str, ...]) -> tuple[QueueOption, ...]:
    return tuple(
        QueueOption(row.flag, row.element, row.form, _HELP.get(row.element, row.help), row.is_fixed)
        for row in QUEUE_OPTIONS
        if row.element in elements
    )


TOPIC_OPTIONS: Final = (
    *_shared(TOPIC_ELEMENTS),
    QueueOption(
        "--ordering", "SupportOrdering", Form.SWITCH, "Kept for clients that ask; keys keep order."
    ),
)
SUBSCRIPTION_OPTIONS: Final = (
    *_shared(SUBSCRIPTION_ELEMENTS),
    QueueOption(
        "--dead-letter-on-filter-errors",
        "DeadLetteringOnFilterEvaluationExceptions",
        Form.SWITCH,
        "Dead-letter what a rule fails on instead of dropping it.",
    ),
)
