"""``day``: measures a platform that nobody has measured, into one file."""

from __future__ import annotations

import datetime as dt
import math
import os
import re
import socket
import sys
from pathlib import Path

import click
import msgspec

from preflight.commands.report_command import read_bytes
from preflight.execution.idle_preemption import request_idle_stop
from preflight.exit_codes import NO_ANSWER, guard_exit_code, print_note
from preflight.report.output_formats import FILE_OR_DASH, CommandError, check_writable, write_report

MINUTES = 15.0
NAME = "preflight-day-{product}-{date}.json"


@click.command(epilog="Example: healthctl preflight day --out day.json")
@click.option(
    "--minutes",
    default=MINUTES,
    show_default=True,
    type=click.FloatRange(0.1, 24 * 60),
    help="Use at most this much time; the most useful measurements come first.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The file to write.  [default: {NAME.format(product='PRODUCT', date='DATE')}]",
)
@click.option("--show", metavar="FILE|-", type=FILE_OR_DASH, help="Show this file, with rows for a product table.")
def day(minutes: float, out: Path | None, show: str | None) -> None:
    """Measure a platform that nobody has measured: the driver's answers, 20 gates, every injectable fault.

    Needs an idle node. The file names the node and the UUIDs of its GPUs. Ctrl-C writes what was measured until then.

    Exits with 0 if the file was written, whatever was found, 3 if there was no device to test, 130 or 143 on a signal.
    """
    with guard_exit_code():
        if show is not None:
            if out is not None:
                raise click.UsageError("--show writes nothing: leave out --out")
            click.echo(_render(show), nl=False)
            return
        if math.isnan(minutes):
            raise click.UsageError("--minutes nan: give a number of minutes")
        check_writable(out or Path(NAME.format(product="", date="")))
        request_idle_stop()
        _measure(minutes, out)


def _render(name: str) -> str:
    from preflight.platform_measurement.day_text import render_day  # noqa: PLC0415 - only with --show
    from preflight.report.document_reader import DocumentError, parse_day_document  # noqa: PLC0415 - the same

    try:
        return render_day(parse_day_document(read_bytes(name)))
    except DocumentError as error:
        raise CommandError(f"{name}: {error}") from None


def _measure(minutes: float, out: Path | None) -> None:
    """Run the session and write its file.

    Raises:
        SystemExit: no device was found.
        KeyboardInterrupt: the session was interrupted; the file has been written.
    """
    from preflight.baseline_files import load_knowledge, resolve_baseline_folder  # noqa: PLC0415 - not with --show
    from preflight.execution.progress_output import SilentProgress  # noqa: PLC0415 - the same
    from preflight.platform_measurement.day_records import Ending  # noqa: PLC0415 - the same
    from preflight.platform_measurement.day_runs import qualify_step, record_driver  # noqa: PLC0415 - the same
    from preflight.platform_measurement.day_session import DaySession  # noqa: PLC0415 - the same
    from vocabulary.clock import SystemClock  # noqa: PLC0415 - the same

    node = os.environ.get("HEALTHD_NODE") or socket.gethostname()
    folder, clock = resolve_baseline_folder(), SystemClock()
    knows = load_knowledge(folder, node, {})
    session = DaySession(
        lambda step: qualify_step(step, node, folder, clock, SilentProgress(), session.check_time),
        lambda: record_driver(clock),
        clock,
        minutes,
        print_note,
    )
    stopped: BaseException | None = None
    try:
        session.run_steps()
        document = session.build_document(node, knows)
    except (KeyboardInterrupt, SystemExit) as interruption:
        stopped, session.ending = interruption, Ending.INTERRUPTED
        document = session.build_document(node, knows, simulate=False)
    path = out or Path(name_file(document.product, document.started_at))
    try:
        write_report(path, msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")
    except OSError as error:
        raise CommandError(f"{path}: cannot be written: {error.strerror or error}") from None
    print_note(f"{document.ending.value}: {path} is written; send it back, show it with --show")
    if stopped is not None:
        raise stopped
    if document.ending is Ending.NO_DEVICE:
        sys.exit(NO_ANSWER)


def name_file(product: str, started_at: float) -> str:
    """The default name: the product and the day in UTC."""
    slug = re.sub(r"[^a-z0-9]+", "-", product.casefold()).strip("-") or "unknown"
    return NAME.format(product=slug, date=dt.datetime.fromtimestamp(started_at, dt.timezone.utc).date().isoformat())
