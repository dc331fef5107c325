"""`healthctl inject xid`: a marked line in the kernel log."""

from __future__ import annotations

import os
from pathlib import Path

import click

from healthctl.exit_codes import Exit, Failure
from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.driver_log.xid_line import NAME_BYTES_MAX, format_xid

KMSG = Path("/dev/kmsg")
RECORD_BYTES_MAX = 900  # the kernel truncates or rejects longer ones
DETAILS = {
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    79: "GPU has fallen off the bus.",
}


@click.command("xid", epilog="Example: healthctl inject xid --node gpu-1 --pci 0000:3b:00.0 --code 79")
@click.option("--node", required=True, help="Name of the target node; all others ignore the line.")
@click.option("--pci", required=True, help="PCI address of the GPU, such as 0000:3b:00.0.")
@click.option("--code", required=True, type=click.IntRange(0, 99_999), help="Xid number.")
@click.option("--pid", type=click.IntRange(min=0), help="Process id to include in the line.")
@click.option("--process", default="", help="Process name to include in the line.")
@click.option("--detail", help="Message text. Default: the driver's text for this number.")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    default=KMSG,
    show_default=True,
    help="Kernel log to write to, or a file that healthd follows.",
)
def inject_xid(node: str, pci: str, code: int, pid: int | None, process: str, detail: str | None, to: Path) -> None:
    """Inject one Xid line for one GPU of one node into the kernel log."""
    if process and pid is None:
        raise Failure("--process needs --pid: the driver prints both or none", Exit.USAGE)
    if len(process.encode()) > NAME_BYTES_MAX:
        raise Failure(f"--process: {process!r} is longer than the kernel's {NAME_BYTES_MAX} bytes", Exit.USAGE)
    words = DETAILS.get(code, "injected by healthctl") if detail is None else detail
    try:
        line = mark_injected_line(node, format_xid(code, pci, pid=pid, process=process, detail=words))
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None
    _write_kernel_record(to, line)
    click.echo(f"wrote to {to}: {line}")


def _write_kernel_record(to: Path, line: str) -> None:
    """Write with one open per line: the kernel accepts about ten lines per open file, and drops the rest silently."""
    record = line.encode() + b"\n"
    if len(record) > RECORD_BYTES_MAX:
        raise Failure(f"the line has {len(record)} bytes, one record holds {RECORD_BYTES_MAX}; shorten it", Exit.USAGE)
    try:
        descriptor = os.open(to, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, record)
        finally:
            os.close(descriptor)
    except OSError as error:
        todo = "run it as root on a machine with a writable kernel log, or give --to FILE that healthd follows"
        raise Failure(f"{to}: cannot be written: {error.strerror}; {todo}") from None
