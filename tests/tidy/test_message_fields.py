"""How many files a field of messages takes: what CONTRIBUTING says of it is so."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from shardbus.core.message_fields import COMPARED, FIELDS, field_named
from tests.tidy.source import ROOT, python_files

FILES_MAX = 4
# Fields that are no more than said, shown, compared and set.
PLAIN = ("content_encoding", "reply_to_session_id", "via_partition_key")
TABLE = "src/shardbus/core/message_fields.py"
SCAN = "src/shardbus/message/scan.py"
ROWS = "src/shardbus/gateway/flight/reading/rows.py"
RECIPE = re.compile(r"\*\*A field of messages\*\*.*?\n\n(?=[A-Z])", re.DOTALL)
# What the recipe has one write for a text in an annotation: the file, the line before, the lines.
STEPS = (
    (
        TABLE,
        "FIELDS: Final = (\n",
        f"""    MessageField(
        "trace",
        TEXT,
        ANNOTATIONS,
        key="x-opt-trace",
        dialect="Trace",
        member="trace",
        column="trace",
        number={1 + max(field.number for field in FIELDS)},
        compared={len(COMPARED)},
        is_sent=True,
        option="trace",
        metavar="TEXT",
        help="Trace of the message.",
    ),
""",
    ),
    (SCAN, "_SCHEDULED: Final = 3\n", "_TRACE: Final = 4\n"),
    (SCAN, "    VIA_PARTITION_KEY: _VIA,\n", '    field_named("trace").key.encode(): _TRACE,\n'),
    (SCAN, "    via_partition_key: str | None = None\n", "    trace: str | None = None\n"),
    (
        SCAN,
        "        head.via_partition_key = reader.text_field()\n",
        "    elif kind == _TRACE:\n        head.trace = reader.text_field()\n",
    ),
    (ROWS, "        self.partition_key = TileColumn()\n", "        self.trace = TileColumn()\n"),
    (
        ROWS,
        '            "partition_key": self.partition_key,\n',
        '            "trace": self.trace,\n',
    ),
    (ROWS, "        self._source: i64 = NULL_TILE\n", "        self._trace: i64 = NULL_TILE\n"),
    (ROWS, "        self._source = NULL_TILE\n", "        self._trace = NULL_TILE\n"),
    (
        ROWS,
        "            self.deadletter_source.put(self.count, self._source)\n",
        "        if self._trace != NULL_TILE:\n"
        "            self.trace.put(self.count, self._trace)\n",
    ),
    (
        ROWS,
        "            name = buffer[name_at:at]\n",
        '            if name == b"x-opt-trace":\n'
        "                self._trace = self._text(buffer, at, after, False)\n"
        "                return\n",
    ),
)
# Who then says and hears of it, without another line.
TOLD = """
import json

import pyarrow as pa

from shardbus.app.cli.entities.rule_options import rule_parameters
from shardbus.app.cli.messages.options import message_parameters
from shardbus.core.message import Entry
from shardbus.core.message_fields import field_named
from shardbus.core.namespace.rule_spec import correlation_filter
from shardbus.gateway.flight.reading.batches import BatchMaker, wanted_for
from shardbus.gateway.flight.reading.rows import Rows
from shardbus.gateway.flight.writing.sinking import check_written, drafts_of
from shardbus.gateway.http.api.messages.message import message_document
from shardbus.gateway.http.api.messages.sending import read_draft
from shardbus.gateway.http.api.messages.documents import NewMessage
from shardbus.gateway.http.document import BodyReader, write
from shardbus.gateway.http.messaging.broker_properties import read_broker_properties
from shardbus.gateway.http.messaging.sent import SentDraft, encode_draft
from shardbus.message.rule_view import RuleView
from shardbus.rules import system
from shardbus.rules.document import filter_of

said = encode_draft(read_draft(BodyReader(NewMessage).read(b'{"trace": "by JSON"}')), 1)
broker = encode_draft(SentDraft(b"", read_broker_properties({"Trace": "by HTTP"}), {}), 1)
entry = Entry(1, said.payload, len(said.payload), enqueued_at_ms=1)
written = pa.record_batch({"trace": ["by rows"]})
check_written(written.schema)
[row] = drafts_of(written).encoded()
rows = Rows(wanted_for(["trace"]))
rows.add_plain(1, 1, 0, row, 0, len(row))
number = system.find("trace").number
print(json.dumps({
    "JSON": json.loads(write(message_document(entry, said.payload, delivery_count=0)))["trace"],
    "HTTP": RuleView(broker.payload).system(number),
    "rows": BatchMaker(["trace"], 0).batch(rows, row).to_pydict()["trace"],
    "filter": list(filter_of(correlation_filter({"Trace": "x"})).fields) == [number],
    "send": [each.help for each in message_parameters() if "--trace" in each.opts],
    "rule": [each.help for each in rule_parameters() if "--trace" in each.opts],
}))
"""


def test_a_plain_field_is_named_in_at_most_four_files() -> None:
    texts = {path: path.read_text("utf-8") for path in python_files("src", "spark/src")}
    for name in PLAIN:
        dialect = field_named(name).dialect
        words = "|".join(word for word in (name, name.upper(), dialect) if word)
        found = [path.name for path, text in texts.items() if re.search(rf"\b(?:{words})\b", text)]

        assert 0 < len(found) <= FILES_MAX, f"{name} is in {found}"


def test_the_recipe_names_the_files() -> None:
    [recipe] = RECIPE.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    files = re.findall(r"`((?:src|spark/src)/[\w/]+\.py)`", recipe)

    assert files[:2] == [TABLE, SCAN] and len(files) <= FILES_MAX
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_a_field_that_follows_the_recipe_is_known_everywhere(tmp_path: Path) -> None:
    copy = tmp_path / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for file, before, lines in STEPS:
        path = tmp_path / file
        text = path.read_text("utf-8")
        assert text.count(before) == 1, f"{file}: {before}"
        path.write_text(text.replace(before, before + lines), "utf-8")

    ran = subprocess.run(
        [sys.executable, "-c", TOLD],
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "JSON": "by JSON",
        "HTTP": "by HTTP",
        "rows": ["by rows"],
        "filter": True,
        "send": ["Trace of the message."],
        "rule": ["Match messages with this Trace."],
    }
