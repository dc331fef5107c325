"""The list of launchers, and which of them started this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from preflight.group.launchers import kubernetes, slurm, torchrun
from preflight.group.launchers.place import LauncherError, Place

# torchrun may itself run inside a Slurm step or a pod, and then it counts.
LAUNCHERS: dict[str, Callable[[Mapping[str, str], str], Place | None]] = {
    launcher.NAME: launcher.read for launcher in (torchrun, slurm, kubernetes)
}


def find(environ: Mapping[str, str], host: str) -> Place:
    """Where this process stands in its group.

    Raises:
        LauncherError: nobody started a group here, or not as one process on each node.
    """
    for read in LAUNCHERS.values():
        if (place := read(environ, host)) is not None:
            return place
    raise LauncherError(
        "no launcher is to be seen: start it by srun --ntasks-per-node=1, by torchrun --nproc-per-node=1, in an Indexed Job, "
        "or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )
