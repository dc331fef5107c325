"""`healthctl preflight`: prove this machine fit, read what came of it, learn what is usual."""

from __future__ import annotations

import click

from healthctl.lazy import LazyGroup

# Command → where it lives, and its line in the help. They are those of `python -m preflight`.
COMMANDS = {
    "run": ("preflight.main:run", "Test this machine."),
    "group": ("preflight.group.command:group", "Test many nodes together, one process on each."),
    "report": ("preflight.commands.report:report", "Show runs kept in files, as text, HTML or JUnit."),
    "compare": ("preflight.commands.compare:compare", "What changed from one run to another."),
    "baseline": ("preflight.commands.baseline:baseline", "What the nodes of a cluster reach: learn, show, check."),
    "tests": ("preflight.commands.tests:tests", "What each test proves, and the faults it can be tried with."),
    "schema": ("preflight.commands.schema:schema", "The JSON Schema of a document."),
}


class Preflight(LazyGroup):
    """Every command there is."""

    table = COMMANDS


@click.group(cls=Preflight)
def preflight() -> None:
    """Prove a node fit for work."""
