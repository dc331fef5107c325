"""Asking batch jobs to leave a node: back to the queue, and not onto this node again."""

from __future__ import annotations

from remediator.act.slurm.controller import Controller, Due, SlurmError
from remediator.act.slurm.states import jobs_by_node
from remediator.model.hold import Outcome, Result


def requeue_from(slurm: Controller, node: str, due: Due) -> Outcome:
    """Requeue every job on `node`, and put it on the list of nodes that each of them excludes.

    Slurm takes such a list only of a queued job, so it is written after the requeue: Slurm lets no requeued job start before
    its old credential has run out. What cannot be requeued (no batch job, ``--no-requeue``) stays, and is named.

    Raises:
        SlurmError: it could not be asked what runs there.
    """
    names = jobs_by_node(slurm.jobs(due)).get(node, ())
    if not names:
        return Outcome(Result.ALREADY, f"nothing runs on {node}")
    gone, stay, return_may = [], [], []
    for name in names:
        try:
            slurm.requeue(name, due)
        except SlurmError as error:
            stay.append(f"{name} ({error})")
            continue
        gone.append(name)
        try:
            _exclude(slurm, name, node, due)
        except SlurmError as error:
            return_may.append(f"{name} ({error})")
    said = [f"requeued from {node}: {', '.join(gone)}"] if gone else []
    if return_may:
        said.append(f"may start there again once it is back: {'; '.join(return_may)}")
    if stay:
        said.append(f"not requeued, ask their owners: {'; '.join(stay)}")
    return Outcome(Result.FAILED if stay else Result.DONE, "; ".join(said))


def _exclude(slurm: Controller, job: str, node: str, due: Due) -> None:
    """Add `node` to what the job's owner excludes already."""
    known = slurm.job(job, due)
    excluded = known.excluded if known is not None else ()
    if node not in excluded:
        slurm.exclude(job, (*excluded, node), due)
