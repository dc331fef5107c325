"""Moves batch jobs off a node: requeues them and excludes the node."""

from __future__ import annotations

from remediator.model.scheduler_hold import ActionOutcome, ActionResult
from remediator.schedulers.slurm.controller_protocol import CommandDeadline, SlurmController, SlurmError
from remediator.schedulers.slurm.drain_ownership import jobs_by_node


def requeue_node_jobs(slurm: SlurmController, node: str, due: CommandDeadline) -> ActionOutcome:
    """Requeue every job on `node`, and add it to each one's excluded nodes.

    Slurm accepts that list only of a queued job, so it is written after the requeue: Slurm starts no requeued job
    before its old credential has expired. What cannot be requeued (no batch job, ``--no-requeue``) stays, and is named.

    Raises:
        SlurmError: the jobs there cannot be listed.
    """
    names = jobs_by_node(slurm.jobs(due)).get(node, ())
    if not names:
        return ActionOutcome(ActionResult.ALREADY, f"nothing runs on {node}")
    gone, stay, return_may = [], [], []
    for name in names:
        try:
            slurm.requeue(name, due)
        except SlurmError as error:
            stay.append(f"{name} ({error})")
            continue
        gone.append(name)
        try:
            _exclude_node(slurm, name, node, due)
        except SlurmError as error:
            return_may.append(f"{name} ({error})")
    said = [f"requeued from {node}: {', '.join(gone)}"] if gone else []
    if return_may:
        said.append(f"may start there again once it is back: {'; '.join(return_may)}")
    if stay:
        said.append(f"not requeued, contact their owners: {'; '.join(stay)}")
    return ActionOutcome(ActionResult.FAILED if stay else ActionResult.DONE, "; ".join(said))


def _exclude_node(slurm: SlurmController, job: str, node: str, due: CommandDeadline) -> None:
    """Add `node` to the job's own excluded nodes."""
    known = slurm.job(job, due)
    excluded = known.excluded if known is not None else ()
    if node not in excluded:
        slurm.exclude(job, (*excluded, node), due)
