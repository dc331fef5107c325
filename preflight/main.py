"""The command line of ``python -m preflight``. A run prints one document on standard output, and progress on standard error."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from pathlib import Path

import click
import msgspec

from preflight.baseline_files import BaselineError, append_history, resolve_baseline_folder
from preflight.command_options import socket_option
from preflight.commands.command_table import COMMANDS
from preflight.execution.idle_preemption import request_idle_stop
from preflight.execution.progress_output import open_progress
from preflight.execution.qualification import qualify_node
from preflight.exit_codes import guard_exit_code, print_note
from preflight.integrations.healthd_delivery import DeliveryError, deliver_to_healthd
from preflight.plan import LEVELS, PlanError, build_plan
from preflight.report.output_formats import (
    CommandError,
    OutputFormat,
    check_writable,
    file_option,
    form_option,
    output_documents,
)
from preflight.report.value_format import escape_text
from preflight.results import Document
from vocabulary.clock import SystemClock


class LazyCommands(click.Group):
    """Imports a command when it is used, so that a run starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import it."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the commands in the help without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Test whether a node is fit for a job."""


@click.command(epilog="Example: healthctl preflight run --level standard --tell")
@click.option("--level", default="gate", show_default=True, help=f"Test level, one of: {', '.join(LEVELS)}.")
@form_option
@file_option
@click.option("--only", multiple=True, metavar="TEST", help="Run only this test. Can be repeated.")
@click.option(
    "--inject",
    multiple=True,
    metavar="TEST:FAULT[@DEVICE]",
    help="Inject a fault, by default on the last device, to verify that the test detects it. Can be repeated.",
)
@click.option(
    "--watchdog", multiple=True, metavar="TEST=SECONDS", help="Override the time limit of a test. Can be repeated."
)
@click.option(
    "--baseline",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder with the baseline and the node's history.  [default: HEALTHD_PREFLIGHT_BASELINE, or /var/lib/gpu-healthd/preflight]",
)
@click.option("--tell", "to_healthd", is_flag=True, help="Send the document to this node's healthd; requires root.")
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
    to_healthd: bool,
    path: str,
) -> None:
    """Test this node.

    Exits with 0 pass, 1 fail, 2 misconfigured (also wrong usage), 3 inconclusive (also internal errors), 130 or 143 on a
    signal. Only 0 means that the node is fit, and only 1, with the document, that it is not.
    """
    with guard_exit_code():
        node = os.environ.get("HEALTHD_NODE") or socket.gethostname()
        if file is not None:
            check_writable(file)
        try:
            chosen = build_plan(level, only, inject, dict(map(_parse_watchdog, watchdog)))
            request_idle_stop()
            with open_progress(len(chosen.specs)) as listener:
                document = qualify_node(
                    chosen, node, inject, resolve_baseline_folder(baseline), SystemClock(), listener
                )
        except PlanError as error:
            raise click.UsageError(str(error)) from None
        if to_healthd:
            _report_to_healthd(document, path)
        _deliver_document(document, OutputFormat(output), file)
        try:
            append_history(resolve_baseline_folder(baseline), document)
        except BaselineError as error:
            print_note(f"this run was not saved to the history: {error}")
        sys.exit(document.verdict.exit_code)


def _deliver_document(document: Document, form: OutputFormat, file: Path | None) -> None:
    """Write the document completely, or fail: without it no machine may be condemned.

    Raises:
        Trouble: it can be written nowhere.
    """
    try:
        output_documents([document], form, file)
    except CommandError as error:
        if file is None:
            raise
        print_note(f"{escape_text(error.message)}; printed here instead")
        output_documents([document], form)


def _report_to_healthd(document: Document, path: str) -> None:
    try:
        print_note(deliver_to_healthd(msgspec.json.encode(document), path, document.node))
    except DeliveryError as error:
        print_note(str(error))


def _parse_watchdog(word: str) -> tuple[str, float]:
    test, _, seconds = word.partition("=")
    try:
        limit = float(seconds)
    except ValueError:
        limit = 0.0
    if not 0 < limit <= 86_400:
        raise click.UsageError(f"--watchdog {word!r}: give TEST=SECONDS, more than 0 and at most a day")
    return test, limit
