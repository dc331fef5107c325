"""Slurm's data as records, independent of source and version."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

_GPUS = re.compile(r"(?:^|,)(?:gres[/:])?gpu(?::[^:(),=]*)?[:=](\d{1,9})(?!\d)")
EMPTY = frozenset({"", "N/A", "(null)", "None", "none"})


class SlurmNode(msgspec.Struct, frozen=True):
    """One node. `state`: base and flags, upper case; `reason_at`: when the reason was set, UTC s, None if unknown.

    `gpus`, `gpus_drained`: configured, and of these drained; `gpus_used` is -1 if unknown.
    """

    name: str
    state: frozenset[str]
    reason: str = ""
    reason_at: float | None = None
    partitions: tuple[str, ...] = ()
    gpus: int = 0
    gpus_used: int = -1
    gpus_drained: int = 0
    reservation: str = ""


class SlurmJob(msgspec.Struct, frozen=True):
    """One job or array task. `name`: as ``squeue`` prints it (``12``, ``12_3``, ``12+1``); `state`: upper case words."""

    name: str
    state: frozenset[str]
    nodes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


class Reservation(msgspec.Struct, frozen=True):
    """A reservation. `flags` in upper case; `ends_at`: UTC s, None if unknown."""

    name: str
    nodes: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    ends_at: float | None = None


@lru_cache(maxsize=1024)  # thousands of nodes have the same
def count_gres_gpus(gres: str) -> int:
    """Count the GPUs in a generic-resources string.

    >>> count_gres_gpus("gpu:h100:8(S:0-1),nic:4"), count_gres_gpus("gpu:a:2,gpu:b:3"), count_gres_gpus("gpu:8"), count_gres_gpus("N/A")
    (8, 5, 8, 0)
    """
    return sum(int(number) for number in _GPUS.findall(re.sub(r"\([^)]*\)", "", gres)))


@lru_cache(maxsize=1024)  # same
def split_state_words(text: str) -> frozenset[str]:
    """Split a state as Slurm prints it: ``MIXED*+DRAIN`` is MIXED, NOT_RESPONDING and DRAIN.

    A mark behind the base abbreviates a flag; an unknown one stays, and makes the word unknown.
    """
    words = set()
    for word in text.upper().split("+"):
        bare = word.rstrip("".join(MARKS))
        words |= {bare, *(MARKS[mark] for mark in word[len(bare) :])}
    return frozenset(words - {""})


MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
