"""A command group that imports a command only when it runs, so that commands start fast."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

from healthctl.exit_codes import Failure

EXTRAS = "remediator,analyze,preflight,nvhcd,terminal"


class LazyGroup(click.Group):
    """`table`: command → ("module:name", one-line help); the help stands here so that `--help` imports no command.

    `elsewhere`: name that users may try → the command to use.
    """

    table: Mapping[str, tuple[str, str]] = {}
    elsewhere: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Commands in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the requested command."""
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        try:
            command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if ctx.resilient_parsing:  # completion must not print errors
                return None
            todo = f"install it: pip install 'gpu-healthd[{EXTRAS}]'"
            raise Failure(f"'{cmd_name}' needs the module {error.name}, which is not installed; {todo}") from error
        assert isinstance(command, click.Command)  # noqa: S101 - the tables are ours
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with suggestions for mistyped names."""
        if args and args[0] not in self.table and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            meant = self.elsewhere.get(args[0])
            near = [f"'{ctx.command_path} {meant}'"] if meant else get_close_matches(args[0], self.table, 3)
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean {' or '.join(near)}?" if near else ""))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands from the table without importing them; then options."""
        lines = {name: line for name, (_, line) in self.table.items() if name.startswith(incomplete)}
        commands = [CompletionItem(name, help=line) for name, line in lines.items()]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the commands in the help without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])
