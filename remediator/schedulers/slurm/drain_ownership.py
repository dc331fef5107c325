"""Interprets a node's state and reason: whether it may take work, is empty, and who owns its drain."""

from __future__ import annotations

import re

from remediator.model.scheduler_hold import REASON_PREFIX, HoldOwner, SchedulerNodeState
from remediator.schedulers.slurm.slurm_records import SlurmJob, SlurmNode

# One word of a state is the base, the others are flags. A base missing here (UNKNOWN: slurmctld has just started;
# INVALID) says nothing reliable.
BASES = frozenset({"IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE", "EXTERNAL"})
WORKING = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
HELD = frozenset({"DRAIN", "DOWN", "FAIL"})  # these carry a reason, and so an owner
AWAY = frozenset(
    {
        "BLOCKED",
        "ERROR",
        "EXTERNAL",
        "FUTURE",
        "INVALID_REG",
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWER_DOWN",
        "POWER_DOWN_ASAP",
        "POWER_DOWN_FORCE",
        "POWER_DRAIN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
    }
)
IN_SERVICE = frozenset(
    {
        "CLOUD",
        "COMPLETING",
        "DYNAMIC_FUTURE",
        "DYNAMIC_NORM",
        "MAINTENANCE",
        "PLANNED",
        "POWERING_UP",
        "POWER_UP",
        "REBOOT_CANCELED",
        "RESERVED",
        "RESUME",
        "UNDRAIN",
    }
)
SET_ASIDE = frozenset({"MAINTENANCE", "RESERVED"})

# The texts that Slurm itself writes as reasons, in 22.05 and later; it joins several by ", " or " : ". Any other reason
# is an operator's or a site tool's, even if it begins like one of these: operators quote what they saw.
_TEXTS_OF_SLURM = (
    "Not responding",
    "Node unexpectedly rebooted",
    "Kill task failed",
    "Prolog error",
    "Epilog error",
    "Prolog/Epilog failure",
    "Job env setup error",
    "batch job complete failure",
    "Duplicate jobid",
    "ResumeTimeout reached",
    "Reboot ASAP",
    r"reboot (?:requested|issued|complete|timed out)",
    r"Low (?:CPUs|TmpDisk|socket\*core\*thread count)",
    r"Low RealMemory(?: \(reported:\d+ < [\d.]+% of configured:\d+\))?",
    r"gres/[\w:.-]+ count (?:too low|reported lower than configured) \(\d+ < \d+\)",
)
_TEXT_OF_SLURM = f"(?:{'|'.join(_TEXTS_OF_SLURM)})"
_OF_SLURM = re.compile(f"{_TEXT_OF_SLURM}(?:(?:, | : ){_TEXT_OF_SLURM})*", re.ASCII)

# A job in only these states has left its nodes, or never had any. In any other state it may be there.
AWAY_FROM_NODES = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PENDING",
        "PREEMPTED",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "REVOKED",
        "SPECIAL_EXIT",
        "TIMEOUT",
    }
)


def describe_slurm_hold(node: SlurmNode, jobs: tuple[str, ...]) -> SchedulerNodeState:
    """Describe the node as the controller sees it. `jobs`: the names of its current jobs.

    `schedulable` is None if that cannot be decided. An unknown word makes an undrained node so, and keeps a drained one
    from being reported as empty.
    """
    said = "+".join(sorted(node.state)) or "nothing"
    strange = node.state - BASES - HELD - AWAY - IN_SERVICE
    if not node.state & BASES or (strange and not node.state & HELD):
        return SchedulerNodeState(node.name, None, reason=f"Slurm reports no usable state: {node.name} is {said}")
    return SchedulerNodeState(
        node.name,
        schedulable=not node.state & (HELD | AWAY),
        drained=bool(node.state & HELD) and not (node.state & WORKING or jobs or strange),
        owner=_drain_owner(node),
        reason=node.reason,
        jobs=jobs,
    )


def _drain_owner(node: SlurmNode) -> HoldOwner:
    if not node.state & HELD:
        return HoldOwner.SCHEDULER if node.state & AWAY else HoldOwner.NOBODY
    if node.reason.startswith(REASON_PREFIX):
        return HoldOwner.US
    return HoldOwner.SCHEDULER if not node.reason or _OF_SLURM.fullmatch(node.reason) else HoldOwner.OPERATOR


def is_partly_reserved(node: SlurmNode) -> bool:
    """Return whether a free node is not available as a whole: it is reserved, or some of its GPUs are unavailable."""
    return bool(node.state & SET_ASIDE or node.reservation or node.gpus_drained or node.gpus_used > 0)


def jobs_by_node(jobs: list[SlurmJob]) -> dict[str, tuple[str, ...]]:
    """Return the names of the jobs on each node, in Slurm's order."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        if not job.state or not job.state <= AWAY_FROM_NODES:
            for node in job.nodes:
                found.setdefault(node, []).append(job.name)
    return {node: tuple(names) for node, names in found.items()}
