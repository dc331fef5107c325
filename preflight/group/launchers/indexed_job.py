"""A pod of an Indexed Job: its number is Kubernetes' to say, how many there are and where the first is, the manifest's."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.group.launchers.rank_placement import RankPlacement, place_at_master, require_number

NAME = "kubernetes"


def read_indexed_job_placement(environ: Mapping[str, str], host: str) -> RankPlacement | None:
    """Where this pod stands; None if this is none of an Indexed Job.

    Raises:
        LauncherError: the manifest does not say enough.
    """
    if "JOB_COMPLETION_INDEX" not in environ:
        return None
    place = place_at_master(
        environ, host, NAME, require_number(environ, "JOB_COMPLETION_INDEX"), require_number(environ, "NNODES")
    )
    return msgspec.structs.replace(place, run=environ.get("HEALTHD_RUN", ""))
