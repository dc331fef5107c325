"""`healthctl preflight`: prove this machine fit, read what came of it, learn what is usual."""

from __future__ import annotations

import click

from healthctl.lazy import LazyGroup
from preflight.commands.table import COMMANDS


class Preflight(LazyGroup):
    """Every command there is."""

    table = COMMANDS


@click.group(
    cls=Preflight,
    epilog="Examples: healthctl preflight run --level gate; healthctl preflight compare before.json after.json",
)
def preflight() -> None:
    """Prove a node fit for work."""
