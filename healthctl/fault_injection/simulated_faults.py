"""`healthctl inject thermal|ecc|link|nvml-hang|hang|clear`: faults that a running healthd simulates."""

from __future__ import annotations

from pathlib import Path

import click

from healthctl.durations import format_duration_short
from healthctl.exit_codes import Exit, Failure
from healthctl.fault_injection.fault_directory import (
    config_option,
    fault_end_time,
    gpu_option,
    seconds_option,
    write_fault,
)
from healthctl.fault_injection.fault_directory import remove_faults as clear_folder
from healthd.gpu_monitoring.simulated_faults import SimulatedFault, SimulatedHang
from healthd.source_monitoring.source_registry import map_sources_by_name

HARDWARE_SLOWDOWN = 0x08 | 0x40  # of NVML's clock event reasons: by hardware, for heat
DONE = "healthd applies it within a second; resulting findings are marked as injected"


@click.command("thermal", epilog="Example: healthctl inject thermal --gpu 0 --for 2m")
@gpu_option
@click.option(
    "--celsius", type=click.IntRange(0, 150), default=97, show_default=True, help="Core and memory temperature, in °C."
)
@seconds_option
@config_option
def inject_thermal_fault(gpu: int, celsius: int, seconds: float, path: Path) -> None:
    """Simulate an overheated GPU with reduced clocks."""
    values: dict[str, int | bool] = {
        "temperature_c": celsius,
        "memory_temperature_c": celsius,
        "temperature_margin_c": 0,
    }
    bits = {"throttle_mask": HARDWARE_SLOWDOWN}
    write_fault(path, SimulatedFault(gpu=gpu, until=fault_end_time(seconds), values=values, bits=bits))
    click.echo(f"GPU {gpu}: {celsius} C for {format_duration_short(seconds)}; {DONE}")


@click.command("ecc", epilog="Example: healthctl inject ecc --gpu 0 --uncorrected 1 --pending")
@gpu_option
@click.option(
    "--uncorrected", type=click.IntRange(0, 1000), default=1, show_default=True, help="Number of additional errors."
)
@click.option(
    "--corrected", type=click.IntRange(0, 1_000_000), default=0, show_default=True, help="Number of additional errors."
)
@click.option("--pending", is_flag=True, help="Set the flag that a row remap is pending.")
@click.option("--failed", is_flag=True, help="Set the flag that a row remap failed.")
@seconds_option
@config_option
def inject_ecc_errors(
    *, gpu: int, uncorrected: int, corrected: int, pending: bool, failed: bool, seconds: float, path: Path
) -> None:
    """Simulate memory errors and row remaps of a GPU."""
    flags: dict[str, int | bool] = {"remap_pending": pending, "remap_failed": failed}
    fault = SimulatedFault(
        gpu=gpu,
        until=fault_end_time(seconds),
        values={name: value for name, value in flags.items() if value},
        added={"ecc_uncorrected": uncorrected, "ecc_corrected": corrected},
    )
    write_fault(path, fault)
    click.echo(
        f"GPU {gpu}: {uncorrected} uncorrected, {corrected} corrected errors for {format_duration_short(seconds)}; {DONE}"
    )


@click.command("link", epilog="Example: healthctl inject link --gpu 0 --nvlink 3")
@gpu_option
@click.option("--nvlink", type=click.IntRange(0, 63), help="Number of the NVLink that is down.")
@click.option("--pcie-width", type=click.IntRange(1, 32), help="Number of remaining PCIe lanes.")
@seconds_option
@config_option
def inject_link_fault(gpu: int, nvlink: int | None, pcie_width: int | None, seconds: float, path: Path) -> None:
    """Simulate an NVLink that is down, or a PCIe link that lost lanes."""
    if nvlink is None and pcie_width is None:
        raise Failure("give --nvlink NUMBER or --pcie-width LANES", Exit.USAGE)
    values: dict[str, int | bool] = {} if pcie_width is None else {"pcie_width": pcie_width}
    down = () if nvlink is None else (nvlink,)
    write_fault(path, SimulatedFault(gpu=gpu, until=fault_end_time(seconds), values=values, links_down=down))
    click.echo(f"GPU {gpu}: link degraded for {format_duration_short(seconds)}; {DONE}")


@click.command("nvml-hang", epilog="Example: healthctl inject nvml-hang --gpu 0")
@click.option("--gpu", type=click.IntRange(0, 255), help="Index of the GPU to name.")
@config_option
def nvml_hang(gpu: int | None, path: Path) -> None:
    """Simulate an unresponsive driver. The NVML child of healthd is stopped, detected and restarted."""
    write_fault(path, SimulatedHang(source="nvml", gpu=gpu))
    click.echo(f"the NVML child hangs; {DONE}")


@click.command("hang", epilog="Example: healthctl inject hang --source infiniband")
@click.option("--source", required=True, help="Name of the source to hang; `healthctl doctor` lists them.")
@config_option
def inject_source_hang(source: str, path: Path) -> None:
    """Simulate an unresponsive host source. The source child of healthd hangs, is detected and restarted."""
    if source not in map_sources_by_name():
        raise Failure(f"no source {source!r}; sources: {', '.join(sorted(map_sources_by_name()))}", Exit.USAGE)
    write_fault(path, SimulatedHang(source=source))
    click.echo(f"{source} hangs; {DONE}")


@click.command("clear", epilog="Example: healthctl inject clear")
@config_option
def clear_simulated_faults(path: Path) -> None:
    """Remove all simulated faults. Lines in the kernel log remain until a passed preflight clears them."""
    ended = clear_folder(path)
    click.echo(f"{ended} fault{'' if ended == 1 else 's'} ended" if ended else "no simulated fault")
