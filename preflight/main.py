"""The command line: ``python -m preflight``. A run prints one document on standard output, its progress on standard error."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from pathlib import Path

import click
import msgspec

from preflight.baselines import BaselineError, folder, remember
from preflight.commands.options import socket_option
from preflight.commands.table import COMMANDS
from preflight.exits import answering, note
from preflight.plan import LEVELS, PlanError, plan
from preflight.progress import progress
from preflight.proof import prove
from preflight.report.forms import Form, Trouble, file_option, form_option, say, see_room
from preflight.report.wording import clean
from preflight.results import Document
from preflight.telling import TellingError, tell
from vocabulary.clock import SystemClock


class Commands(click.Group):
    """Each command is imported when it is asked for: a run must start at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import it."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """The list in the help, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Prove a node fit for work."""


@click.command(epilog="Example: healthctl preflight run --level standard --tell")
@click.option("--level", default="gate", show_default=True, help=f"One of: {', '.join(LEVELS)}.")
@form_option
@file_option
@click.option("--only", multiple=True, metavar="TEST", help="Leave all other tests out; may be repeated.")
@click.option(
    "--inject",
    multiple=True,
    metavar="TEST:FAULT[@DEVICE]",
    help="Commit a fault, on the last device unless one is named, to see that the test finds it; may be repeated.",
)
@click.option(
    "--watchdog", multiple=True, metavar="TEST=SECONDS", help="Give a test another time limit; may be repeated."
)
@click.option(
    "--baseline",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where it is kept what is usual.  [default: HEALTHD_PREFLIGHT_BASELINE, or /var/lib/gpu-healthd/preflight]",
)
@click.option("--tell", "telling", is_flag=True, help="Hand the document to this node's healthd; by root.")
@socket_option
def run(  # noqa: PLR0913 - one for each option
    *,
    level: str,
    output: str,
    file: Path | None,
    only: tuple[str, ...],
    inject: tuple[str, ...],
    watchdog: tuple[str, ...],
    baseline: Path | None,
    telling: bool,
    path: str,
) -> None:
    """Test this node.

    Ends with 0 pass, 1 fail, 2 misconfigured (also wrong usage), 3 inconclusive (also any trouble of preflight's own), 130 or 143 when a signal
    ends it: only 0 says the node is fit, and only 1, with the document, that it is not.
    """
    with answering():
        node = os.environ.get("HEALTHD_NODE") or socket.gethostname()
        if file is not None:
            see_room(file)
        try:
            chosen = plan(level, only, inject, dict(map(_limit, watchdog)))
            with progress(len(chosen.specs)) as listener:
                document = prove(chosen, node, inject, folder(baseline), SystemClock(), listener)
        except PlanError as error:
            raise click.UsageError(str(error)) from None
        if telling:
            _tell(document, path)
        _hand_over(document, Form(output), file)
        try:
            remember(folder(baseline), document)
        except BaselineError as error:
            note(f"this run is not remembered: {error}")
        sys.exit(document.verdict.exit_code)


def _hand_over(document: Document, form: Form, file: Path | None) -> None:
    """Whole, or not at all: then nobody may condemn the machine.

    Raises:
        Trouble: it can be written nowhere.
    """
    try:
        say([document], form, file)
    except Trouble as error:
        if file is None:
            raise
        note(f"{clean(error.message)}; here it is instead")
        say([document], form)


def _tell(document: Document, path: str) -> None:
    try:
        note(tell(msgspec.json.encode(document), path, document.node))
    except TellingError as error:
        note(str(error))


def _limit(word: str) -> tuple[str, float]:
    test, _, seconds = word.partition("=")
    try:
        limit = float(seconds)
    except ValueError:
        limit = 0.0
    if not 0 < limit <= 86_400:
        raise click.UsageError(f"--watchdog {word!r}: give TEST=SECONDS, more than 0 and at most a day")
    return test, limit
