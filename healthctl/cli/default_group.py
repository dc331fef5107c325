"""A command group with the default subcommand ``list``: `healthctl nodes` is `healthctl nodes list`."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class DefaultListGroup(click.Group):
    """Passes options without a subcommand to ``list``."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Prepend the default unless a subcommand or help is given, or the shell completes."""
        is_option = bool(args) and args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx)
        if is_option or not (args or ctx.resilient_parsing):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the subcommands and the options of the default."""
        shown = self.get_command(ctx, self.default) if incomplete.startswith("-") else None
        if shown is None:
            return super().shell_complete(ctx, incomplete)
        with click.Context(shown, info_name=self.default, parent=ctx, resilient_parsing=True) as inner:
            return shown.shell_complete(inner, incomplete)
