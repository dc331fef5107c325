"""`healthctl inject`: marked test faults, one command each."""

from __future__ import annotations

import click

from healthctl.inject.kernel_line import xid
from healthctl.inject.pretended import clear, ecc, hang, link, nvml_hang, thermal


@click.group(
    epilog="Examples: healthctl inject thermal --gpu 0 --for 2m; healthctl inject xid --node gpu-1 --pci 0000:3b:00.0 --code 79"
)
def inject() -> None:
    """Make a marked test fault. A node takes it only if its configuration says accept_injected."""


for command in (xid, thermal, ecc, link, nvml_hang, hang, clear):
    inject.add_command(command)
