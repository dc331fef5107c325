"""Started by torchrun with one process a node, by healthctl launch, or by hand with the same variables."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.group.launchers.place import DEFAULT_PORT, LauncherError, Place, number, own_name, word

NAME = "torchrun"
RUN = ("HEALTHD_RUN", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


def read(environ: Mapping[str, str], host: str) -> Place | None:
    """Where this process stands; None if torchrun did not start it.

    Raises:
        LauncherError: it did, but not one process on each node.
    """
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return None
    here = number(environ, "LOCAL_WORLD_SIZE") if environ.get("LOCAL_WORLD_SIZE") else 1
    if here != 1:
        raise LauncherError(
            f"LOCAL_WORLD_SIZE={here}: a group is one process on each node; give torchrun --nproc-per-node=1"
        )
    return Place(
        launcher=NAME,
        rank=number(environ, "RANK"),
        world=number(environ, "WORLD_SIZE"),
        node=own_name(environ, host),
        address=word(environ, "MASTER_ADDR"),
        port=number(environ, "MASTER_PORT", 65535) if environ.get("MASTER_PORT") else DEFAULT_PORT,
        leaf=environ.get("HEALTHD_LEAF", ""),
        run=".".join(environ.get(name, "") for name in RUN).strip("."),
        store_is_there=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )
