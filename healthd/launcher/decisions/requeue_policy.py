"""Where and when a job that is queued again may come back, so that it does not circle over nodes that it refuses. Pure.

Slurm calls free what a node's healthd calls unfit, and would start the job there again at once, for ever. The job may exclude
those nodes, unless too few like them are left: Slurm puts a job that it can never place on hold, and nobody lets it go again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from vocabulary.text.plurals import format_count

FIRST_WAIT_SECONDS = 60.0
WAIT_SECONDS_MAX = 1800.0

_NOTHING = ("", "(null)", "N/A")


class RequeueDecision(NamedTuple):
    """How a job comes back: not onto the nodes it is kept off from now on, not before so many seconds, and why so."""

    without: tuple[str, ...] = ()
    wait_seconds: float = 0.0
    note: str = ""

    @property
    def text(self) -> str:
        """What a person reads after "the job is queued again"; empty where nothing is different."""
        kept_off = f", from now on without {', '.join(self.without)}" if self.without else ""
        wait = f", not before {self.wait_seconds:g} s" if self.wait_seconds else ""
        return kept_off + wait + (f" ({self.note})" if self.note else "")


class PartitionNode(NamedTuple):
    """A node of the job's partition, as sinfo has it; `kind` is what a node must share to stand in for another."""

    name: str
    kind: tuple[str, ...]


def compute_requeue_delay(in_vain: int) -> float:
    """How long to stay away after so many requeues in a row without an attempt between: at first no longer than Slurm itself."""
    return min(WAIT_SECONDS_MAX, FIRST_WAIT_SECONDS * 2.0 ** (min(in_vain, 32) - 1)) if in_vain > 0 else 0.0


def parse_job_fields(line: str) -> dict[str, str]:
    """What ``scontrol -o show job`` says, where it says something."""
    found = re.findall(r"(?:^|\s)([A-Z][A-Za-z]*)=(\S*)", line)
    return {key: value for key, value in reversed(found) if value not in _NOTHING}


def parse_partition_nodes(listing: str, *, with_features: bool) -> list[PartitionNode]:
    """The nodes of ``sinfo -N -o '%N|%c|%G|%f'``: processors and GPUs make the kind, features where the job asks for any."""
    rows = [line.split("|") for line in listing.splitlines()]
    return [PartitionNode(row[0], tuple(row[1:] if with_features else row[1:3])) for row in rows if len(row) == 4]


def explain_missing_exclusion(
    refused: Collection[str],
    allocation: Sequence[str],
    job: dict[str, str],
    peers: Sequence[PartitionNode],
    known: Collection[str],
) -> str:
    """Why a job must not exclude the nodes that it refuses; empty if it may.

    Args:
        refused: the nodes.
        allocation: all that it had: so many it needs again.
        job: what Slurm says of it.
        peers: the nodes of its partition.
        known: what it excludes already.
    """
    for field, what in (("ReqNodeList", "it asks for nodes by name"), ("Reservation", "it is in a reservation")):
        if field in job:
            return what
    kinds = {peer.kind for peer in peers if peer.name in allocation}
    left = {peer.name for peer in peers if peer.kind in kinds} - set(refused) - set(known)
    if len(left) < len(allocation):
        return f"without {', '.join(sorted(refused))} there are only {format_count(len(left), 'node')} of the {len(allocation)} it needs"
    return ""
