"""Processes started by torchrun with one process per node, by healthctl launch, or manually with the same variables."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.group.launchers.rank_placement import LauncherError, RankPlacement, place_at_master, require_number

NAME = "torchrun"
RUN = ("HEALTHD_RUN", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


def read_torchrun_placement(environ: Mapping[str, str], host: str) -> RankPlacement | None:
    """The placement of this process; None if torchrun did not start it.

    Raises:
        LauncherError: there is not exactly one process per node.
    """
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return None
    here = require_number(environ, "LOCAL_WORLD_SIZE") if environ.get("LOCAL_WORLD_SIZE") else 1
    if here != 1:
        raise LauncherError(
            f"LOCAL_WORLD_SIZE={here}: a group runs one process on each node; use torchrun --nproc-per-node=1"
        )
    place = place_at_master(environ, host, NAME, require_number(environ, "RANK"), require_number(environ, "WORLD_SIZE"))
    run = ".".join(environ.get(name, "") for name in RUN).strip(".")
    there = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return msgspec.structs.replace(place, run=run, store_is_there=there)
