"""What a step tells a job's ranks: because of the node they are on, or because of the job's own trouble."""

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
NAMES_A_STEP = ("training/loss_not_finite", "training/loss_spike", "training/gradient_spike")  # to go back to

_BECAUSE_OF_THE_NODE = frozenset({TrainerNotice.GRACEFUL, TrainerNotice.ABORT})  # which the job then goes on without


def job_drops_node(run: StepRun) -> bool:
    """Whether who is told so then leaves the node out."""
    return TrainerNotice(run.step.how) in _BECAUSE_OF_THE_NODE


def jobs_to_notify(context: StepContext, run: StepRun) -> Sequence[JobRef]:
    """Which of the node's jobs: all, or those that the findings name, where these do and it is not the node's fault."""
    jobs = context.node.jobs
    if job_drops_node(run):
        return jobs
    findings = context.state.findings_of(context.incident)
    named = [ref for ref in jobs if any(_finding_names_job(finding, ref) for finding in findings)]
    return named or jobs


def lacks_restore_step(context: StepContext, run: StepRun, jobs: Iterable[JobRef]) -> bool:
    """Whether a job is to go back, and is not told yet, of which nobody knows how far."""
    begins = TrainerNotice(run.step.how) is TrainerNotice.REVERT and not run.actions
    return begins and any(_earliest_good_step(context, ref) is None for ref in jobs)


def trainer_order(
    context: StepContext, run: StepRun, ref: JobRef
) -> tuple[OrderKind, dict[str, int | tuple[str, ...]]]:
    """The order's kind, and what it says beyond whom it is for."""
    told = TrainerNotice(run.step.how)
    details: dict[str, int | tuple[str, ...]] = {}
    if told in _BECAUSE_OF_THE_NODE:
        details["condemned"] = (context.incident.node,)
    if told is TrainerNotice.REVERT:
        given = [action.order for action in context.actions(run) if action.order is not None]
        steps = [order.before_step for order in given if order.job == ref.job]  # all ranks are told the same
        step = steps[0] if steps else _earliest_good_step(context, ref)
        details["before_step"] = -1 if step is None else step
    return _KINDS[told], details


def _earliest_good_step(context: StepContext, ref: JobRef) -> int | None:
    """The earliest that its findings name. Its number was good, so what the model was before it was too."""
    about = [finding for finding in context.state.findings_of(context.incident) if _finding_names_job(finding, ref)]
    texts = [str(finding.evidence.get("last_good_step", "")) for finding in about]
    return min((int(text) for text in texts if text.isascii() and text.isdigit()), default=None)


def _finding_names_job(finding: Finding, ref: JobRef) -> bool:
    evidence = finding.evidence
    return str(evidence.get("job", "")) == ref.job and str(evidence.get("attempt", "")) == str(ref.attempt)
