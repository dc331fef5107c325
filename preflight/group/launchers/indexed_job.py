"""A pod of an Indexed Job: Kubernetes provides the index; the manifest must provide the size and the address of rank 0."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.group.launchers.rank_placement import RankPlacement, place_at_master, require_number

NAME = "kubernetes"


def read_indexed_job_placement(environ: Mapping[str, str], host: str) -> RankPlacement | None:
    """The placement of this pod; None outside of an Indexed Job.

    Raises:
        LauncherError: the manifest lacks a variable.
    """
    if "JOB_COMPLETION_INDEX" not in environ:
        return None
    place = place_at_master(
        environ, host, NAME, require_number(environ, "JOB_COMPLETION_INDEX"), require_number(environ, "NNODES")
    )
    return msgspec.structs.replace(place, run=environ.get("HEALTHD_RUN", ""))
