"""`healthctl preflight`: prove this machine fit, read what came of it, learn what is usual."""

from __future__ import annotations

import click

from healthctl.cli.lazy_group import LazyGroup
from preflight.commands.command_table import COMMANDS


class PreflightGroup(LazyGroup):
    """Every command there is."""

    table = COMMANDS


@click.group(
    cls=PreflightGroup,
    epilog="Examples: healthctl preflight run --level gate; healthctl preflight compare before.json after.json",
)
def preflight() -> None:
    """Prove a node fit for work."""
