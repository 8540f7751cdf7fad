"""Groups of commands whose list shows the whole first sentence of each command."""

import re
from typing import Final

import click

_SENTENCE_END: Final = re.compile(r"\.\s|\.$")


class CommandGroup(click.Group):
    """A group; click itself would cut the sentences off at the end of the line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, first_sentence(command.help or ""))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def first_sentence(text: str) -> str:
    flat = " ".join(text.partition("\n\n")[0].split())
    end = _SENTENCE_END.search(flat)
    return flat if end is None else flat[: end.start() + 1]
