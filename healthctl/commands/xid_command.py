"""`healthctl xid`: explains driver messages and finds them in logs. Works on any machine, offline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from healthctl.cli.screen import Screen, output_options
from healthctl.exit_codes import Exit, Failure

LINE_BYTES_MAX = 1 << 20  # log lines are far shorter; a file that is not a log must not fill the memory


@click.group(epilog="Examples: healthctl xid explain 79; dmesg | healthctl xid parse -")
def xid() -> None:
    """Explain driver messages (Xid, SXid) and find them in logs."""


@xid.command("explain", epilog="Example: healthctl xid explain 79")
@click.argument("what", nargs=-1, required=True, metavar="CODE|LINE")
@click.option("--catalogue", type=click.Path(path_type=Path), help="Site file that overrides the catalogue.")
@output_options
def explain_xid_message(screen: Screen, what: tuple[str, ...], catalogue: Path | None) -> None:
    """Explain an Xid or SXid and the recommended action.

    Accepts 79, "xid 79", "sxid 12028", a whole log line in any format, or a part of one. Exits with 3 if the number is not
    documented.
    """
    from healthctl.xid_explanation.explanation import explain_xid as explain_it
    from healthctl.xid_explanation.explanation_page import render_explanation
    from vocabulary.fault_catalogue.catalogue_file import CatalogueError, load_catalogue

    text = " ".join(what)
    try:
        found = explain_it(text, load_catalogue(catalogue))
    except CatalogueError as error:
        raise Failure(str(error), Exit.USAGE if catalogue else Exit.UNKNOWN) from None
    if found is None:
        todo = "give a number such as 79, or quote a whole line of the kernel log"
        raise Failure(f"neither an Xid number nor a driver's message: {text[:200]!r}; {todo}", Exit.USAGE)
    screen.code = Exit.OK if found.known else Exit.UNKNOWN
    if screen.is_document:
        screen.show(found, list)
    else:
        click.echo(render_explanation(found))


@xid.command("parse", epilog="Example: healthctl xid parse /var/log/kern.log")
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True, readable=False))
def parse_kernel_log(file: str) -> None:
    """Parse each line of a kernel log. Prints one JSON object per line, also for lines without a fault.

    FILE may be output of dmesg or journalctl, a syslog file or raw kmsg records; '-' is standard input. Lines written by
    other programs than the kernel are ignored, except marked test faults.

    `live` names the finding that healthd raises when the kernel log holds such a record. It is empty for formats that are
    only parsed here, such as an Xid without a PCI address. healthd acts on an Xid at once only if it names a GPU of
    its own node; otherwise it needs NVML as a second evidence source.
    """
    from healthctl.kernel_log.log_line_parser import parse_lines

    with _open_log(file) as log:
        output = sys.stdout.buffer
        encoder = msgspec.json.Encoder()
        for found in parse_lines(_iterate_log_lines(log)):
            output.write(encoder.encode(found) + b"\n")
            if file == "-":  # may be an endless stream, such as dmesg --follow
                output.flush()
        output.flush()


def _iterate_log_lines(log: BinaryIO) -> Iterator[str]:
    """Every line without its line end. Bytes that are not UTF-8 are escaped as in kmsg."""
    for raw in iter(lambda: _read_line(log), b""):
        yield raw.decode(errors="backslashreplace").rstrip("\r\n")


def _read_line(log: BinaryIO) -> bytes:
    """One whole line, truncated if it is longer than any log line."""
    line = log.readline(LINE_BYTES_MAX)
    rest = line
    while rest and not rest.endswith(b"\n"):
        rest = log.readline(LINE_BYTES_MAX)
    return line


def _open_log(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")  # noqa: PTH123 - the caller closes it
    except OSError as error:
        raise Failure(f"{file}: cannot be read: {error.strerror}", Exit.USAGE) from None
