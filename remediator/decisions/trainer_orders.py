"""The order that a step sends to a job's ranks, because of their node or of the job's own trouble."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remediator.decisions.step_context import StepContext
from remediator.model.journal_records import JobRef
from remediator.model.plan_steps import StepRun, TrainerNotice
from vocabulary.finding import Finding
from vocabulary.order import OrderKind

_KINDS = {
    TrainerNotice.GRACEFUL: OrderKind.CHECKPOINT_THEN_EJECT,
    TrainerNotice.ABORT: OrderKind.ABORT,
    TrainerNotice.SAVE_AND_RELAUNCH: OrderKind.CHECKPOINT_THEN_EJECT,
    TrainerNotice.SAVE_AND_STOP: OrderKind.CHECKPOINT_THEN_STOP,
    TrainerNotice.REVERT: OrderKind.REVERT,
}
NAMES_A_STEP = ("training/loss_not_finite", "training/loss_spike", "training/gradient_spike")  # to restore from

_BECAUSE_OF_THE_NODE = frozenset({TrainerNotice.GRACEFUL, TrainerNotice.ABORT})  # the job continues without it


def job_drops_node(run: StepRun) -> bool:
    """Return whether the order makes the job leave the node."""
    return TrainerNotice(run.step.how) in _BECAUSE_OF_THE_NODE


def jobs_to_notify(context: StepContext, run: StepRun) -> Sequence[JobRef]:
    """Return which of the node's jobs to notify: all, or those that the findings name when the node is not at fault."""
    jobs = context.node.jobs
    if job_drops_node(run):
        return jobs
    findings = context.state.findings_of(context.incident)
    named = [ref for ref in jobs if any(_finding_names_job(finding, ref) for finding in findings)]
    return named or jobs


def jobs_that_hang(context: StepContext) -> list[JobRef]:
    """Return the node's jobs that a hang of this incident is about."""
    hangs = [finding for finding in context.state.findings_of(context.incident) if finding.check == "hang"]
    return [ref for ref in context.node.jobs if any(_finding_names_job(finding, ref) for finding in hangs)]


def lacks_restore_step(context: StepContext, run: StepRun, jobs: Iterable[JobRef]) -> bool:
    """Return whether a job must restore an earlier step that is unknown, and has no order yet."""
    begins = TrainerNotice(run.step.how) is TrainerNotice.REVERT and not run.actions
    return begins and any(_earliest_good_step(context, ref) is None for ref in jobs)


def trainer_order(
    context: StepContext, run: StepRun, ref: JobRef
) -> tuple[OrderKind, dict[str, int | tuple[str, ...]]]:
    """Return the order's kind, and its content beyond the recipient."""
    told = TrainerNotice(run.step.how)
    details: dict[str, int | tuple[str, ...]] = {}
    if told in _BECAUSE_OF_THE_NODE:
        details["condemned"] = (context.incident.node,)
    if told is TrainerNotice.REVERT:
        given = [action.order for action in context.actions(run) if action.order is not None]
        steps = [order.before_step for order in given if order.job == ref.job]  # all ranks get the same order
        step = steps[0] if steps else _earliest_good_step(context, ref)
        details["before_step"] = -1 if step is None else step
    return _KINDS[told], details


def _earliest_good_step(context: StepContext, ref: JobRef) -> int | None:
    """Return the earliest step that the findings name. Its loss was still good, and so was the model before it."""
    about = [finding for finding in context.state.findings_of(context.incident) if _finding_names_job(finding, ref)]
    texts = [str(finding.evidence.get("last_good_step", "")) for finding in about]
    return min((int(text) for text in texts if text.isascii() and text.isdigit()), default=None)


def _finding_names_job(finding: Finding, ref: JobRef) -> bool:
    evidence = finding.evidence
    return str(evidence.get("job", "")) == ref.job and str(evidence.get("attempt", "")) == str(ref.attempt)
