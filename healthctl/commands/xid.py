"""`healthctl xid`: what the driver's messages mean, and where a log holds them. Works on any machine, offline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from healthctl.exits import Exit, Failure
from healthctl.output import clean, facts, json_text, output_option

if TYPE_CHECKING:
    from healthctl.explanation import Explanation

LINE_BYTES_MAX = 1 << 20  # a log's lines are far shorter; a file that is no log must not fill the memory


@click.group()
def xid() -> None:
    """Explain and find the driver's messages."""


@xid.command()
@click.argument("what", nargs=-1, required=True, metavar="CODE|LINE")
@output_option
def explain(what: tuple[str, ...], output: str) -> None:
    """Say what an Xid number, or a whole line of the kernel log, means.

    Ends with 3 if nobody has described it.
    """
    from healthctl import explanation
    from vocabulary.catalogue_file import CatalogueError, load_catalogue

    text = " ".join(what)
    try:
        found = explanation.explain(text, load_catalogue())
    except CatalogueError as error:
        raise Failure(str(error)) from None
    if found is None:
        todo = "give a number such as 79, or quote a whole line of the kernel log"
        raise Failure(f"neither an Xid number nor a driver's message: {text[:200]!r}; {todo}", Exit.USAGE)
    click.echo(json_text(found) if output == "json" else _page(found))
    sys.exit(Exit.OK if found.known else Exit.UNKNOWN)


def _page(found: Explanation) -> str:
    vendor = "; when it recurs: ".join(part for part in (found.nvidia_immediate, found.nvidia_investigatory) if part)
    event = found.event
    lines = facts(
        [
            ("severity", found.severity.value),
            ("do", f"{found.advice} ({found.action})"),
            ("blame", found.blame),
            ("causes", ", ".join(found.causes)),
            ("process", found.process),
            ("vendor says", vendor),
            ("used on", " ".join(found.gpus)),
            ("with Xid 154", f"from driver {found.recovery_since}" if found.recovery_since else ""),
            ("note", found.note),
            ("sources", "; ".join(found.sources)),
            ("catalogue", found.catalogue),
            ("PCI", event.pci if event else ""),
            ("MIG", event.mig if event else ""),
            ("pid", f"{event.pid} {event.process}".strip() if event and event.pid is not None else ""),
            ("caused by", f"Xid {event.caused_by}" if event and event.caused_by else ""),
            ("detail", event.detail if event else ""),
        ]
    )
    title = " ".join(part for part in ({"xid": "Xid", "sxid": "SXid"}[found.kind], str(found.code), found.name) if part)
    return f"{title}{f' ({found.alias})' if found.alias else ''}\n{clean(found.meaning)}\n\n{lines}"


@xid.command()
@click.argument("file", metavar="FILE|-")
def parse(file: str) -> None:
    """Say what the kernel reports in each line of a log: one JSON object for each line, also for those that are nothing.

    FILE may be what dmesg or journalctl printed, a syslog file or raw kmsg records; '-' is standard input.
    Lines that a program other than the kernel wrote don't count, except marked test faults.
    """
    from healthctl.kernel_log.parse import parse_lines

    with _open(file) as log:
        output = sys.stdout.buffer
        encoder = msgspec.json.Encoder()
        for found in parse_lines(_lines(log)):
            output.write(encoder.encode(found) + b"\n")
            if file == "-":  # perhaps something that goes on, such as dmesg --follow
                output.flush()
        output.flush()


def _lines(log: BinaryIO) -> Iterator[str]:
    """Every line without its end. Bytes that are no UTF-8 are written out as kmsg does."""
    for raw in iter(lambda: _read_line(log), b""):
        yield raw.decode(errors="backslashreplace").rstrip("\r\n")


def _read_line(log: BinaryIO) -> bytes:
    """One whole line, of which only the first part is kept if it is longer than any log's."""
    line = log.readline(LINE_BYTES_MAX)
    rest = line
    while rest and not rest.endswith(b"\n"):
        rest = log.readline(LINE_BYTES_MAX)
    return line


def _open(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")  # noqa: PTH123 - the caller closes it
    except OSError as error:
        raise Failure(f"{file}: cannot be read: {error.strerror}", Exit.USAGE) from None
