"""A command group that shows when nothing else is asked of it: `healthctl nodes` is `healthctl nodes list`."""

from __future__ import annotations

import click


class ListsByDefault(click.Group):
    """Takes options without a command as those of ``list``."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default in front unless a command, or help, is asked for."""
        if not args or (args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx)):
            args = [self.default, *args]
        return super().parse_args(ctx, args)
