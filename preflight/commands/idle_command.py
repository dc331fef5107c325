"""``idle``: tests this node if it is idle and was not tested lately, and ends within a second once work comes."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click
import msgspec

from preflight.baseline_files import BaselineError, append_history, resolve_baseline_folder
from preflight.command_options import socket_option
from preflight.execution.idle_preemption import (
    AlreadyTestedError,
    WorkWatch,
    explain_held,
    request_idle_stop,
)
from preflight.execution.progress_output import SilentProgress
from preflight.execution.qualification import qualify_node
from preflight.exit_codes import guard_exit_code, print_note
from preflight.integrations.healthd_delivery import DeliveryError, deliver_to_healthd
from preflight.plan import LEVELS, PlanError, build_plan
from preflight.report.output_formats import CommandError
from preflight.report.value_format import escape_text
from preflight.results import Document, Verdict
from vocabulary.atomic_file import replace_file
from vocabulary.clock import SystemClock

STATE = "idle-test.json"  # in the baseline folder


class IdleTest(msgspec.Struct, frozen=True):
    """The newest test of the idle node that came to an end; `at` in UTC seconds."""

    at: float
    level: str
    verdict: Verdict


@click.command(epilog="Example: healthctl preflight idle --tell")
@click.option("--level", default="standard", show_default=True, help=f"Test level, one of: {', '.join(LEVELS)}.")
@click.option(
    "--every",
    default=24.0,
    show_default=True,
    type=click.FloatRange(0, 8760),
    metavar="HOURS",
    help="Do nothing if the newest test is younger.",
)
@click.option(
    "--baseline",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder with the baseline and the node's history.  [default: HEALTHD_PREFLIGHT_BASELINE, or /var/lib/gpu-healthd/preflight]",
)
@click.option("--tell", "to_healthd", is_flag=True, help="Send the document to this node's healthd; requires root.")
@click.option("--stop", is_flag=True, help="End the idle test that runs on this node, if any, and wait for its end.")
@socket_option
def idle(*, level: str, every: float, baseline: Path | None, to_healthd: bool, stop: bool, path: str) -> None:
    """Test this node if it is idle, and end within a second once work comes. Start it hourly, by a timer.

    Work is a step of a Slurm job, a process on a GPU, or a preflight of a job. Exits like `run`; with 0 also if the node is
    busy, was tested lately, is held by healthd, or if work came.
    """
    with guard_exit_code():
        if stop:
            click.echo("the idle test has ended" if request_idle_stop() else "no idle test runs", err=True)
            return
        node = os.environ.get("HEALTHD_NODE") or socket.gethostname()
        folder, path = resolve_baseline_folder(baseline), path.replace("{node}", node)
        if why := explain_not_due(read_idle_test(folder), every, SystemClock().wall()) or explain_held(path):
            click.echo(f"{escape_text(node)}: not tested: {escape_text(why)}", err=True)
            return
        document = _test_idle_node(node, level, folder, path)
        if document is None:
            return
        if to_healthd:
            try:
                print_note(deliver_to_healthd(msgspec.json.encode(document), path, node))
            except DeliveryError as error:
                print_note(str(error))
        said = f"{document.verdict.value}: {document.reason}" if document.reason else document.verdict.value
        click.echo(f"{escape_text(node)}: {escape_text(said)}", err=True)
        _record(folder, document)
        sys.exit(document.verdict.exit_code)


def _test_idle_node(node: str, level: str, folder: Path, path: str) -> Document | None:
    """Test it, unless work is there or comes; then say so."""
    work, watch = "", None
    try:
        chosen = build_plan(level, (), (), {})
        _write_state(folder, None)  # before the test: one that cannot be recorded would run every hour
        watch = WorkWatch(path)
        work = watch.find_work()
        if not work:
            watch.start()
            return qualify_node(chosen, node, (), folder, SystemClock(), SilentProgress())
    except PlanError as error:
        raise click.UsageError(str(error)) from None
    except AlreadyTestedError as error:
        work = str(error)
    except SystemExit:
        if watch is None or not watch.work:
            raise
        click.echo(f"{escape_text(node)}: the test was ended: {escape_text(watch.work)}", err=True)
        return None
    finally:
        if watch is not None:
            watch.close()
    click.echo(f"{escape_text(node)}: not tested: {escape_text(work)}", err=True)
    return None


def read_idle_test(folder: Path) -> IdleTest | None:
    """The newest test; None if there is none that can be read."""
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=IdleTest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def explain_not_due(newest: IdleTest | None, every_h: float, now: float) -> str:
    """Why no test is due; empty if one is. A test in the future was recorded by a wrong clock."""
    if newest is None or not 0 <= now - newest.at < every_h * 3600:
        return ""
    return f"the newest test, {newest.level}, is {(now - newest.at) / 3600:.1f} h old: {newest.verdict.value}"


def _record(folder: Path, document: Document) -> None:
    try:
        _write_state(folder, IdleTest(document.started_at + document.seconds, document.level, document.verdict))
        append_history(folder, document)
    except BaselineError as error:
        print_note(f"this run was not saved to the history: {error}")


def _write_state(folder: Path, newest: IdleTest | None) -> None:
    """Write it; the one before, or an empty file, if None.

    Raises:
        CommandError: it cannot be written.
    """
    newest = newest or read_idle_test(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / STATE, msgspec.json.encode(newest) if newest else b"", mode=0o644)
    except OSError as error:
        raise CommandError(
            f"{folder / STATE}: cannot be written: {error.strerror}; fix the folder's permissions, or give --baseline"
        ) from error
