"""A command group that shows when nothing else is asked of it: `healthctl nodes` is `healthctl nodes list`."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class DefaultListGroup(click.Group):
    """Takes options without a command as those of ``list``."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default in front unless a command, or help, is asked for, or a shell asks which commands there are."""
        is_option = bool(args) and args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx)
        if is_option or not (args or ctx.resilient_parsing):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Its commands; options are those of the default too."""
        shown = self.get_command(ctx, self.default) if incomplete.startswith("-") else None
        if shown is None:
            return super().shell_complete(ctx, incomplete)
        with click.Context(shown, info_name=self.default, parent=ctx, resilient_parsing=True) as inner:
            return shown.shell_complete(inner, incomplete)
