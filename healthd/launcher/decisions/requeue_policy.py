"""Where and when a requeued job may start, so that it does not circle over nodes that it refuses. Pure.

Slurm considers a node free that healthd calls unfit, and would restart the job there at once, forever. The job may
exclude those nodes, unless too few others of their kind remain: Slurm holds a job that it can never place until a
person releases it.
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
    """How a job comes back: the nodes it must avoid, the earliest start in seconds, and the reason."""

    without: tuple[str, ...] = ()
    wait_seconds: float = 0.0
    note: str = ""

    @property
    def text(self) -> str:
        """The text after "the job is queued again"; empty if nothing is different."""
        kept_off = f", from now on without {', '.join(self.without)}" if self.without else ""
        wait = f", not before {self.wait_seconds:g} s" if self.wait_seconds else ""
        return kept_off + wait + (f" ({self.note})" if self.note else "")


class PartitionNode(NamedTuple):
    """A node of the job's partition, from sinfo; nodes of the same `kind` can replace each other."""

    name: str
    kind: tuple[str, ...]


def compute_requeue_delay(in_vain: int) -> float:
    """Return the delay after so many consecutive requeues without an attempt; at first no longer than Slurm's own."""
    return min(WAIT_SECONDS_MAX, FIRST_WAIT_SECONDS * 2.0 ** (min(in_vain, 32) - 1)) if in_vain > 0 else 0.0


def parse_job_fields(line: str) -> dict[str, str]:
    """Parse the fields of ``scontrol -o show job``."""
    found = re.findall(r"(?:^|\s)([A-Z][A-Za-z]*)=(\S*)", line)
    return {key: value for key, value in reversed(found) if value not in _NOTHING}


def parse_partition_nodes(listing: str, *, with_features: bool) -> list[PartitionNode]:
    """Parse ``sinfo -N -o '%N|%c|%G|%f'``: processors and GPUs make the kind, and features if requested."""
    rows = [line.split("|") for line in listing.splitlines()]
    return [PartitionNode(row[0], tuple(row[1:] if with_features else row[1:3])) for row in rows if len(row) == 4]


def explain_missing_exclusion(
    refused: Collection[str],
    allocation: Sequence[str],
    job: dict[str, str],
    peers: Sequence[PartitionNode],
    known: Collection[str],
) -> str:
    """Return why a job must not exclude the nodes that it refuses; empty if it may.

    Args:
        refused: the nodes.
        allocation: all its nodes: it needs as many again.
        job: Slurm's fields of it.
        peers: the nodes of its partition.
        known: its existing exclusions.
    """
    for field, what in (("ReqNodeList", "it requests nodes by name"), ("Reservation", "it is in a reservation")):
        if field in job:
            return what
    kinds = {peer.kind for peer in peers if peer.name in allocation}
    left = {peer.name for peer in peers if peer.kind in kinds} - set(refused) - set(known)
    if len(left) < len(allocation):
        return f"without {', '.join(sorted(refused))} only {format_count(len(left), 'node')} of the required {len(allocation)} remain"
    return ""
