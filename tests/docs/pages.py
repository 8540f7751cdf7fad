"""The reference pages that are made from the code; `python -m tests.docs.pages` writes them."""

import json
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.failures import CommandError, NotFound, Refused, ServerUnavailable, Usage
from shardbus.app.cli.main import main
from shardbus.app.pipelines.definition import driver_schemas
from shardbus.app.server.setting import Kind, Setting
from shardbus.app.server.settings import DEFAULT_FILE, TABLE
from shardbus.core.message_fields import FIELDS, MessageField
from tests.conformance.sdk_programs import FEATURES as SDK_FEATURES
from tests.conformance.sdk_programs import LOADS, NOT_OFFERED, PASSED, PROGRAMS, Kept, kept
from tests.tidy.prose import wrapped

ROOT: Final = Path(__file__).resolve().parents[2]
REFERENCE: Final = ROOT / "docs" / "reference"
RECORDS: Final = ROOT / "docs" / "adr"
_TABLE_BEGINS: Final = "<!-- The table is made by `make sdks`; edits are lost. -->"
_TABLE_ENDS: Final = "<!-- End of the table. -->"
_RECORDS_BEGIN: Final = "<!-- The list is made by `make docs`; edits are lost. -->"
_RECORDS_END: Final = "<!-- End of the list. -->"
_MADE: Final = "<!-- Made by `make docs`; edits are lost. -->\n"


def pages() -> dict[str, str]:
    """Every generated file by its path."""
    return {
        "docs/reference/settings.md": wrapped(settings_page()),
        "docs/reference/cli.md": wrapped(cli_page()),
        "docs/reference/fields.md": wrapped(fields_page()),
        "docs/conformance.md": conformance_page(),
        "docs/adr/README.md": records_page(),
        # The connector must not import the bus: it is told what definitions of pipelines are like.
        "spark/src/shardbus_spark/pipelines/definitions.json": json.dumps(
            driver_schemas(), indent=1
        )
        + "\n",
    }


def settings_page() -> str:
    rows = "".join(_setting_row(row) for row in TABLE)
    return f"""# Settings

{_MADE}
A setting can be given in four ways. The first one in this list that gives it wins:

1. a flag of `shardbus serve`, such as `--amqp-port 5672`;
2. an environment variable, such as `SHARDBUS_AMQP_PORT=5672`;
3. a TOML file, as in `amqp-port = 5672`: the files that `--config` (may be repeated) or
   `SHARDBUS_CONFIG` (a list like `PATH`) names, where a later file overrides an earlier one;
   without these, `{DEFAULT_FILE}` in the working directory, if it exists. [Such a file may also
   contain entities](../guides/setup.md);
4. the default.

If a value is invalid, the server exits with code 2 and one line that names the setting, the source
of its value, and the reason. An unknown key in the file does the same.

| flag | variable | value | default | what it does |
|---|---|---|---|---|
{rows}"""


def _setting_row(row: Setting) -> str:
    default = str(row.default).lower() if row.kind is Kind.SWITCH else str(row.default)
    shown = f"`{default}`" if default else "empty"
    return f"| `{row.flag}` | `{row.variable}` | {_values(row)} | {shown} | {row.help} |\n"


def _values(row: Setting) -> str:
    match row.kind:
        case Kind.CHOICE:
            return ", ".join(f"`{choice}`" for choice in row.choices)
        case Kind.PORT | Kind.COUNT:
            return f"{row.least} to {row.most}"
        case Kind.TEXTS:
            return "texts, with `;` between; in a file also a list"
        case Kind.TEXT | Kind.PATH | Kind.SWITCH:
            return str(row.kind.value)


def fields_page() -> str:
    rows = "".join(_field_row(field) for field in FIELDS)
    return f"""# The fields of a message

{_MADE}
What each protocol calls a field. Rules read every field that has a name there, as `sys.Name`, and
may set those that senders say; correlation filters compare the fields that are marked *compared*,
and `BrokerProperties` has the texts, `TimeToLive`, `ScheduledEnqueueTimeUtc` and what its
[page](http.md#properties) names. JSON is that of the [JSON API](http-api.md), columns are those of
the [bulk lane](flight.md#columns).

| field | AMQP | holds | rules, BrokerProperties | JSON | column | said by |
|---|---|---|---|---|---|---|
{rows}"""


def _field_row(field: MessageField) -> str:
    place = f"`{field.key}`" if field.key else f"field {field.place}"
    amqp = f"{field.section}, {place}" if field.section else ""
    dialect = f"`{field.dialect}`" if field.dialect else ""
    told = f"{dialect}, compared" if field.compared >= 0 else dialect
    member = f"`{field.member}`" if field.member else ""
    column = f"`{field.column}`" if field.column else ""
    teller = "senders" if field.is_sent else "the bus"
    name = field.name.replace("_", " ")
    return f"| {name} | {amqp} | {field.form} | {told} | {member} | {column} | {teller} |\n"


def conformance_page() -> str:
    """The page as it is, with the table of the SDKs as their last runs were."""
    page = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    before, begin, rest = page.partition(_TABLE_BEGINS)
    _, end, after = rest.partition(_TABLE_ENDS)
    assert begin and end, "docs/conformance.md has lost the marks around its table of SDKs"
    return f"{before}{begin}\n\n{sdk_table()}\n{end}{after}"


def records_page() -> str:
    """The page about decisions, with the list of all records by number and title."""
    page = (RECORDS / "README.md").read_text(encoding="utf-8")
    before, begin, rest = page.partition(_RECORDS_BEGIN)
    _, end, after = rest.partition(_RECORDS_END)
    assert begin and end, "docs/adr/README.md has lost the marks around its list of records"
    listed = "".join(map(_record_item, sorted(RECORDS.glob("[0-9]*.md"))))
    return wrapped(f"{before}{begin}\n\n{listed}\n{end}{after}")


def _record_item(record: Path) -> str:
    heading = record.read_text(encoding="utf-8").partition("\n")[0]
    number, _, title = heading.removeprefix("# ").partition(" ")
    assert record.name.startswith(f"{number}-"), f"{record.name} has the heading {heading!r}"
    return f"- [{number}]({record.name}) {title}\n"


def sdk_table() -> str:
    """SDK by feature, from the files that runs have written."""
    found = [(program.name, kept(program)) for program in PROGRAMS]
    names = " | ".join(f"{name}: `{sdk.package}` {sdk.version}" for name, sdk in found)
    rows = "".join(
        f"| {title} | {' | '.join(_sdk_cell(sdk, name) for _, sdk in found)} |\n"
        for name, title in SDK_FEATURES.items()
    )
    return f"| feature | {names} |\n|---|{'---|' * len(found)}\n{rows}"


def _sdk_cell(sdk: Kept, feature: str) -> str:
    result = sdk.features.get(feature)
    if result is None:
        return "not run"
    told = {PASSED: "yes", NOT_OFFERED: "no such call"}.get(result.outcome, "**no**")
    exposed = [
        f"{count} {what}"
        for count, what in ((result.kills, "kills"), (result.breaks, "breaks"))
        if count
    ]
    if exposed:
        return f"{told}: {', '.join(exposed)} in {result.seconds} s, {result.day}"
    return f"{told}, not counted" if feature in LOADS else told


def cli_page() -> str:
    failures: tuple[type[CommandError], ...] = (Refused, Usage, ServerUnavailable, NotFound)
    codes = "".join(
        f"| {failure.exit_code} | `{failure.word}` | {failure.__doc__} |\n" for failure in failures
    )
    return f"""# The command line

{_MADE}
`shardbus serve`, `broker` and `gateway` run servers, and `demo` runs a server with [a
demo](../guides/demo.md). `check`, `restore` and `backup --offline` work on the files of a stopped
server. Every other command is a client of the HTTP API. With `--json` a command prints exactly one
JSON document on standard output; a failure is then
`{{"error": {{"kind": ..., "message": ...}}}}`. Messages for people go to standard error.

| exit code | kind | meaning |
|---|---|---|
| 0 | | Done. |
{codes}
The common options of clients can also be given as `SHARDBUS_ENDPOINT`, `SHARDBUS_KEY_NAME`,
`SHARDBUS_KEY` and `SHARDBUS_CONNECTION_STRING`.

{_commands(main, "shardbus")}"""


def _commands(group: click.Group, prefix: str) -> str:
    parts: list[str] = []
    for name in sorted(group.commands):
        command, path = group.commands[name], f"{prefix} {name}"
        if isinstance(command, click.Group):
            parts.append(_commands(command, path))
        else:
            parts.append(_command(command, path))
    return "\n".join(parts)


def _command(command: click.Command, path: str) -> str:
    # The parent gives the path its words; a fixed width keeps the page the same on any terminal.
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
    return f"## `{path}`\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    for file_name, text in pages().items():
        (ROOT / file_name).write_text(text, encoding="utf-8")
