"""What Spark has to hide of texts, so that no option of ours shows a secret.

Spark hides the values of options whose names say what they are, in plans, but Spark Connect writes
every request down as a text: into its event log, its UI and the descriptions of its jobs. In texts
Spark hides what the setting `spark.redaction.string.regex` finds, which is nothing by default.
`python -m shardbus_spark.redaction` prints an expression for it.
"""

from __future__ import annotations

import sys
from typing import Final

SETTING: Final = "spark.redaction.string.regex"
_OPTIONS: Final = "accesskey|token|connectionstring"
REGEX: Final = "|".join(
    (
        # An option in a request of Spark Connect, and `key`, as accessKey was called before.
        rf"""(?i)"(?:{_OPTIONS}|key)"\s+value: "(?:[^"\\]|\\.)*""",
        # An option in a statement, also one that is quoted as a text.
        rf"""\b(?:{_OPTIONS})`?\s*(?:=|->)?\s*\\?['"][^'"]*""",
        # What secrets look like wherever they are.
        r"""SharedAccessKey=[^\s;'"\\]+""",
        r"""SharedAccessSignature sr=[^\s'"\\]+""",
    )
)
"""For Java's regular expressions and Python's."""


if __name__ == "__main__":
    sys.stdout.write(REGEX + "\n")
