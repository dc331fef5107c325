"""Runs Slurm's commands."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from healthd.launcher.scheduler_backend import BackendError

COMMAND_SECONDS = 30.0


def run_slurm_command(
    argv: Sequence[str],
    *,
    seconds: float = COMMAND_SECONDS,
    environ: Mapping[str, str] | None = None,
    check: bool = False,
    folder: str | None = None,
) -> str:
    """Return the output of a Slurm command; empty if it fails, unless `check` makes that a `BackendError`.

    `folder`: where it runs; scontrol leaves scripts there when it changes a job's size.
    """
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=seconds, env=environ, cwd=folder, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if check:
            raise BackendError(f"{argv[0]}: {error}") from error
        return ""
    if check and done.returncode != 0:
        raise BackendError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout
