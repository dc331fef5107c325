"""`healthctl inject`: marked test faults, one command per kind."""

from __future__ import annotations

import click

from healthctl.fault_injection.kernel_log_fault import inject_xid
from healthctl.fault_injection.simulated_faults import (
    clear_simulated_faults,
    inject_ecc_errors,
    inject_link_fault,
    inject_source_hang,
    inject_thermal_fault,
    nvml_hang,
)


@click.group(
    epilog="Examples: healthctl inject thermal --gpu 0 --for 2m; healthctl inject xid --node gpu-1 --pci 0000:3b:00.0 --code 79"
)
def inject() -> None:
    """Inject a marked test fault. Nodes accept it only if accept_injected is set in their configuration."""


for command in (
    inject_xid,
    inject_thermal_fault,
    inject_ecc_errors,
    inject_link_fault,
    nvml_hang,
    inject_source_hang,
    clear_simulated_faults,
):
    inject.add_command(command)
