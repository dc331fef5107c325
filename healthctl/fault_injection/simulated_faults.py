"""`healthctl inject thermal|ecc|link|nvml-hang|hang|clear`: faults that a running healthd simulates."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from healthctl.durations import DurationParam, format_duration_short
from healthctl.exit_codes import Exit, Failure
from healthd.config import Config, ConfigError, load_node_config
from healthd.gpu_monitoring.simulated_faults import FOLDER, SimulatedFault, SimulatedHang
from healthd.source_monitoring.source_registry import map_sources_by_name
from vocabulary.atomic_file import replace_file

CONFIG = Path("/etc/gpu-healthd/healthd.yaml")
SECONDS_MIN, SECONDS_MAX = 1.0, 86_400.0
F = TypeVar("F", bound=Callable[..., Any])
HARDWARE_SLOWDOWN = 0x08 | 0x40  # of NVML's clock event reasons: by hardware, for heat
DONE = "healthd applies it within a second; resulting findings are marked as injected"


def _check_fault_duration(ctx: click.Context, param: click.Parameter, seconds: float) -> float:
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise click.BadParameter("give 1s to 1d", ctx, param)
    return seconds


config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=CONFIG,
    show_default=True,
    help="Configuration file of healthd.",
)
gpu_option = click.option("--gpu", required=True, type=click.IntRange(0, 255), help="Index of the GPU.")
seconds_option = click.option(
    "--for", "seconds", type=DurationParam(), metavar="SPAN", default="1m", show_default=True, callback=_check_fault_duration,
    help="Duration, such as 30s or 5m; at most one day.",
)  # fmt: skip


def write_fault(path: Path, fault: SimulatedFault | SimulatedHang) -> None:
    """Write the fault for the healthd that runs with this configuration.

    Raises:
        Failure: healthd would not accept it, or its directory is not writable.
    """
    folder = _fault_directory(path)
    file = folder / f"{time.time():.3f}-{uuid.uuid4().hex[:8]}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        replace_file(file, msgspec.json.encode(fault))
    except OSError as error:
        raise Failure(f"{file}: cannot be written: {error.strerror}; run as the user that healthd runs as") from None


def remove_faults(path: Path) -> int:
    """Remove all simulated faults; returns their number."""
    ended = 0
    for file in _fault_directory(path).glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
            ended += 1
    return ended


def fault_end_time(seconds: float) -> float:
    """The end of a fault that starts now, UTC seconds."""
    return time.time() + seconds


def _fault_directory(path: Path) -> Path:
    config = _load_daemon_config(path)
    if not config.accept_injected:
        raise Failure(f"{path}: accept_injected is false: this node accepts no test faults; set it and restart healthd")
    if not os.access(config.state_dir, os.W_OK):
        todo = "check that healthd runs with this configuration, and run this as its user (root)"
        raise Failure(f"{config.state_dir} cannot be written; {todo}")
    return config.state_dir / FOLDER


def _load_daemon_config(path: Path) -> Config:
    try:
        return load_node_config(path)
    except ConfigError as error:
        raise Failure(f"{error}; use --config to name healthd's configuration file", Exit.USAGE) from None


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
    ended = remove_faults(path)
    click.echo(f"{ended} fault{'' if ended == 1 else 's'} ended" if ended else "no simulated fault")
