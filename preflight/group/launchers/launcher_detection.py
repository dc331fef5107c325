"""The list of launchers, and detection of the one that started this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from preflight.group.launchers import indexed_job, slurm_step, torchrun_environment
from preflight.group.launchers.rank_placement import LauncherError, RankPlacement

# torchrun may itself run inside a Slurm step or a pod, and then it counts.
LAUNCHERS: dict[str, Callable[[Mapping[str, str], str], RankPlacement | None]] = {
    torchrun_environment.NAME: torchrun_environment.read_torchrun_placement,
    slurm_step.NAME: slurm_step.read_slurm_placement,
    indexed_job.NAME: indexed_job.read_indexed_job_placement,
}


def detect_placement(environ: Mapping[str, str], host: str) -> RankPlacement:
    """The placement of this process in its group.

    Raises:
        LauncherError: no launcher is detected, or there is not exactly one process per node.
    """
    for read in LAUNCHERS.values():
        if (place := read(environ, host)) is not None:
            return place
    raise LauncherError(
        "no launcher detected: start with srun --ntasks-per-node=1, with torchrun --nproc-per-node=1, in an Indexed Job, "
        "or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )
