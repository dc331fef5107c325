"""The guard of a job whose process group exists already: who we are, and what we share, come from torch.

For frameworks that call `init_process_group` themselves, and for elastic launchers, whose variables differ from rank to
rank after a node has joined.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist

from healthd.trainer.adapters.gloo_threads import contain_gloo_threads
from healthd.trainer.beacons.rank_environment import read_environment
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.guard import Guard

T = TypeVar("T")


class SharedSettings(NamedTuple):
    """What the ranks of a job agree upon before the first step, for whatever is then made `from_env`.

    `store` is theirs under a name that is new each time: neither one that outlives its ranks nor one that serves several
    rounds of an elastic job can mix what two of them wrote. None: a job of one rank, without a process group.
    """

    store: dist.Store | None
    environ: Mapping[str, str]
    nodes: int


def guard_of_group(environ: Mapping[str, str] | None = None) -> Guard:
    """The guard for the default process group; for a job of one rank where there is none. All ranks call it together.

    Holds one collective.
    """
    shared = shared_by_group(environ)
    return Guard.from_env(store=shared.store, environ=shared.environ)


def shared_by_group(environ: Mapping[str, str] | None = None) -> SharedSettings:
    """What the guard and others of the default process group are made from. All ranks call it together; one collective.

    Raises:
        ValueError: a variable that cannot be; names it.
    """
    environ = dict(os.environ if environ is None else environ)
    if not (dist.is_available() and dist.is_initialized()):
        return SharedSettings(None, environ, 1)
    contain_gloo_threads()
    rank, world = dist.get_rank(), dist.get_world_size()
    place = {"RANK": str(rank), "WORLD_SIZE": str(world), "HEALTHD_ATTEMPT": str(_read_attempt(environ))}
    mine = (_read_attempt(environ), secrets.token_hex(8), read_environment(environ | place).place.node)
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, mine)
    attempts, names, nodes = zip(*everyone, strict=True)
    place["HEALTHD_ATTEMPT"] = str(max(attempts))
    store = dist.PrefixStore(f"healthd/{names[0]}", dist.group.WORLD.get_group_store())
    return SharedSettings(store, environ | place, len(set(nodes)))


def run_on_every_rank(action: Callable[[], T]) -> list[T]:
    """Every rank of the default group does it, and all go on, or all raise: who raises alone leaves the others in a collective.

    Returns:
        What it came to, by rank; of this process alone where there is no group.

    Raises:
        Exception: what the action raised here.
        CheckpointError: it went wrong on another rank, which it names.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return [action()]
    mine: list[Any] = [None, ""]
    caught: Exception | None = None
    try:
        mine[0] = action()
    except Exception as error:  # noqa: BLE001 - whatever it is: the others wait for an answer
        caught, mine[1] = error, f"{type(error).__name__}: {error}"
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    if caught is not None:
        raise caught
    if failed := [f"rank {rank}: {why}" for rank, (_, why) in enumerate(everyone) if why]:
        raise CheckpointError(failed[0])
    return [result for result, _ in everyone]


def _read_attempt(environ: Mapping[str, str]) -> int:
    """An elastic agent counts the restarts it has seen itself: one that joined late counts fewer than its peers."""
    text = environ.get("HEALTHD_ATTEMPT") or environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return int(text) if text.isascii() and text.isdigit() else 0
