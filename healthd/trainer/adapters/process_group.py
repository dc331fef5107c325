"""The guard of a job whose process group exists already: who we are, and what we share, come from torch.

For frameworks that call `init_process_group` themselves, and for elastic launchers, whose variables differ from rank to
rank after a node has joined.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from healthd.trainer.guard import Guard


def guard_of_group(environ: Mapping[str, str] | None = None) -> Guard:
    """The guard for the default process group; for a job of one rank where there is none. All ranks call it together.

    Holds one collective. The ranks vote under a name that is new each time: neither a store that outlives its ranks nor
    one that serves several rounds of an elastic job can mix the votes of two of them.
    """
    environ = dict(os.environ if environ is None else environ)
    if not (dist.is_available() and dist.is_initialized()):
        return Guard.from_env(environ=environ)
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = (_attempt(environ), secrets.token_hex(8))
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, mine)
    place = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "HEALTHD_ATTEMPT": str(max(attempt for attempt, _ in everyone)),
    }
    store = dist.PrefixStore(f"healthd/{everyone[0][1]}", dist.group.WORLD.get_group_store())
    return Guard.from_env(store=store, environ={**environ, **place})


def _attempt(environ: Mapping[str, str]) -> int:
    """An elastic agent counts the restarts it has seen itself: one that joined late counts fewer than its peers."""
    text = environ.get("HEALTHD_ATTEMPT") or environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return int(text) if text.isascii() and text.isdigit() else 0
