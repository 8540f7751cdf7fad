"""Lines of the log: one for each record whatever a client wrote, and never with a secret."""

import logging
import re
from typing import Final

# The signature of a token, and the key of a connection string.
_SECRET: Final = re.compile(
    r"(sig=|SharedAccessKey=|SharedAccessSignature=)(?!SharedAccessSignature)[^&;\s'\"]+",
    re.IGNORECASE,
)
# A JWT: its header is a JSON object, which begins so in base64.
_BEARER: Final = re.compile(r"\beyJ[\w-]{8,}\.[\w.-]*")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


class LineFormatter(logging.Formatter):
    """Escapes line breaks and control characters, and hides keys.

    No code should log a secret: this is a second line of defence.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _CONTROL.sub(_escaped, super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return _BEARER.sub("***", _SECRET.sub(r"\1***", super().format(record)))


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
