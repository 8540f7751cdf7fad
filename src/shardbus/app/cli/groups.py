"""Groups of commands whose list shows the whole first sentence of each command."""

import re
from difflib import get_close_matches
from typing import Final

import click

# More are not listed in an error.
LISTED_MAX: Final = 12

_SENTENCE_END: Final = re.compile(r"\.\s|\.$")


class CommandGroup(click.Group):
    """A group; click itself would cut the sentences off at the end of the line.

    Errors about words that do not exist name those that may be meant.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "Options come after the command and its arguments."
            raise click.UsageError(
                f"No such option {error.option_name!r}. {hint}", ctx=ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if getattr(error, "possibilities", None):
                raise
            names = self.list_commands(ctx)
            told = f"The commands are: {', '.join(names)}."
            if len(names) > LISTED_MAX:
                told = f"`{ctx.command_path} --help` lists the commands."
            raise click.UsageError(f"{error.format_message()} {told}", ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.ctx is None:
                raise
            meant = similar_options(error.option_name, error.ctx.command)
            told = f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""
            raise click.UsageError(
                f"No such option {error.option_name!r}.{told}", ctx=error.ctx
            ) from None

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


def similar_options(name: str, command: click.Command) -> list[str]:
    """The options that may be meant: those that begin so, otherwise those that look like it."""
    known = [
        option
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    ]
    longer = [option for option in known if option.startswith(name)]
    if longer:
        return longer
    words = [option.removeprefix("--") for option in known]
    return [f"--{word}" for word in get_close_matches(name.lstrip("-"), words)]


def first_sentence(text: str) -> str:
    flat = " ".join(text.partition("\n\n")[0].split())
    end = _SENTENCE_END.search(flat)
    return flat if end is None else flat[: end.start() + 1]
