"""The placement of a process in its group, and helpers to read a launcher's variables."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

DEFAULT_PORT = 29400
RANKS_MAX = 100_000


class LauncherError(ValueError):
    """The environment is not a testable group. The message names the variable and what to do."""


class RankPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """One node's process. Rank 0 coordinates, at `address` and `port`.

    `listed` are the names of all nodes by rank, if the launcher provides them; `leaf` is this node's switch, "" if unknown.
    `run` distinguishes this start of the job from others on the same port. `store_is_there`: the launcher already runs a
    store at that address.
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
        """The name of a rank's node before it has reported."""
        return self.listed[rank] if rank < len(self.listed) else f"rank{rank}"


def place_at_master(environ: Mapping[str, str], host: str, launcher: str, rank: int, world: int) -> RankPlacement:
    """A placement by MASTER_ADDR and MASTER_PORT, with the leaf in HEALTHD_LEAF.

    Raises:
        LauncherError: the address is missing, or the numbers are invalid.
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
    """A required whole number.

    Raises:
        LauncherError: it is missing, or not a number from 0 to `most`.
    """
    text = require_text(environ, name)
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > most:
        raise LauncherError(f"{name}={text!r} is not an integer from 0 to {most}")
    return int(text)


def require_text(environ: Mapping[str, str], name: str) -> str:
    """A required text.

    Raises:
        LauncherError: it is missing or empty.
    """
    text = environ.get(name, "")
    if not text:
        raise LauncherError(f"{name} is not set; start one process per node with srun, torchrun or an Indexed Job")
    return text


def resolve_own_name(environ: Mapping[str, str], host: str) -> str:
    """This node's name: as in healthd's configuration, else the host's."""
    return environ.get("HEALTHD_NODE") or environ.get("SLURMD_NODENAME") or host
