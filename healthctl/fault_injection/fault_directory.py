"""The directory from which a running healthd reads faults to simulate; only its own user may write to it."""

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

from healthctl.durations import DurationParam
from healthctl.exit_codes import Exit, Failure
from healthd.config import Config, ConfigError, load_node_config
from healthd.gpu_monitoring.simulated_faults import FOLDER, SimulatedFault, SimulatedHang
from vocabulary.atomic_file import replace_file

CONFIG = Path("/etc/gpu-healthd/healthd.yaml")
SECONDS_MIN, SECONDS_MAX = 1.0, 86_400.0
F = TypeVar("F", bound=Callable[..., Any])


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
