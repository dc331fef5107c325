"""`healthctl preflight`: the commands of the `preflight` program."""

from __future__ import annotations

import click

from healthctl.cli.lazy_group import LazyGroup
from preflight.commands.command_table import COMMANDS


class PreflightGroup(LazyGroup):
    """The commands of `preflight`."""

    table = COMMANDS


@click.group(
    cls=PreflightGroup,
    epilog="Examples: healthctl preflight run --level gate; healthctl preflight compare before.json after.json",
)
def preflight() -> None:
    """Test whether a node is fit for a job."""
