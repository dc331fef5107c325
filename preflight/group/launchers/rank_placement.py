"""Where one process stands in its group, and how a launcher's variables are read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

DEFAULT_PORT = 29400
RANKS_MAX = 100_000


class LauncherError(ValueError):
    """The environment is no group that can be tested. The text names the variable and what to do."""


class RankPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """One node's process. Rank 0 coordinates, and is found at `address` and `port`.

    `listed` are the names of all nodes by rank, where the launcher tells them; `leaf` is the switch this node hangs on, "" where
    nobody says. `run` tells this start of this job from others that may come to the same port. `store_is_there` where the launcher itself already holds a store at that address.
    """

    launcher: str
    rank: int
    world: int
    node: str
    address: str
    port: int
    leaf: str = ""
    run: str = ""
    listed: tuple[str, ...] = ()
    store_is_there: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise LauncherError(f"rank {self.rank} does not fit a group of {self.world}; ranks count from 0")

    def name_of(self, rank: int) -> str:
        """What rank's node is called, before it has said so itself."""
        return self.listed[rank] if rank < len(self.listed) else f"rank{rank}"


def place_at_master(environ: Mapping[str, str], host: str, launcher: str, rank: int, world: int) -> RankPlacement:
    """The place of a process whose meeting point stands in MASTER_ADDR and MASTER_PORT, and its leaf in HEALTHD_LEAF.

    Raises:
        LauncherError: nobody says where to meet, or the numbers do not fit.
    """
    return RankPlacement(
        launcher=launcher,
        rank=rank,
        world=world,
        node=resolve_own_name(environ, host),
        address=require_text(environ, "MASTER_ADDR"),
        port=require_number(environ, "MASTER_PORT", 65535) if environ.get("MASTER_PORT") else DEFAULT_PORT,
        leaf=environ.get("HEALTHD_LEAF", ""),
    )


def require_number(environ: Mapping[str, str], name: str, most: int = RANKS_MAX) -> int:
    """A whole number that must be there.

    Raises:
        LauncherError: it is missing, or no number from 0 to `most`.
    """
    text = require_text(environ, name)
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > most:
        raise LauncherError(f"{name}={text!r} is no whole number from 0 to {most}")
    return int(text)


def require_text(environ: Mapping[str, str], name: str) -> str:
    """A text that must be there.

    Raises:
        LauncherError: it is missing or empty.
    """
    text = environ.get(name, "")
    if not text:
        raise LauncherError(f"{name} is not set; start one process a node by srun, torchrun or an Indexed Job")
    return text


def resolve_own_name(environ: Mapping[str, str], host: str) -> str:
    """This node's name: as healthd knows it, else the host's."""
    return environ.get("HEALTHD_NODE") or environ.get("SLURMD_NODENAME") or host
