"""A pod of an Indexed Job: its number is Kubernetes' to say, how many there are and where the first is, the manifest's."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.group.launchers.place import DEFAULT_PORT, Place, number, own_name, word

NAME = "kubernetes"


def read(environ: Mapping[str, str], host: str) -> Place | None:
    """Where this pod stands; None if this is none of an Indexed Job.

    Raises:
        LauncherError: the manifest does not say enough.
    """
    if "JOB_COMPLETION_INDEX" not in environ:
        return None
    return Place(
        launcher=NAME,
        rank=number(environ, "JOB_COMPLETION_INDEX"),
        world=number(environ, "NNODES"),
        node=own_name(environ, host),
        address=word(environ, "MASTER_ADDR"),
        port=number(environ, "MASTER_PORT", 65535) if environ.get("MASTER_PORT") else DEFAULT_PORT,
        leaf=environ.get("HEALTHD_LEAF", ""),
        run=environ.get("HEALTHD_RUN", ""),
    )
