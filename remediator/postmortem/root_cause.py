"""The most likely root cause of an incident, and follow-ups. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from remediator.model.journal_records import ActionState, Answer, IncidentState
from remediator.model.plan_steps import StepState, Verb
from remediator.postmortem.incident_history import IncidentHistory, evidence_orders
from remediator.postmortem.postmortem_document import RootCause
from vocabulary.finding import Finding, Severity

FALLEN_OFF_BUS_XID = 79
NOT_BLAMED = "not known"
MISSING_SHOWN = 10


def find_root_cause(story: IncidentHistory) -> RootCause:
    """Find the root cause: from the catalogue for Xids, otherwise from the reason of the rule."""
    culprit = story.culprit
    if culprit is None:
        return RootCause("Its findings are no longer stored.", NOT_BLAMED, "no data remains")
    known = _catalogue_cause(story, culprit)
    if known is not None:
        return known
    reason = next((d.reason for d in reversed(story.decisions) if d.answer is not Answer.WATCH), "")
    reason = reason or next((d.reason for d in reversed(story.decisions)), "")
    if reason:
        return RootCause(
            reason, _blamed_component(culprit), f"the reason of rule {story.incident.rule or 'none'}", culprit.kind
        )
    return RootCause(
        culprit.summary, _blamed_component(culprit), "the finding itself; no rule has matched", culprit.kind
    )


def _catalogue_cause(story: IncidentHistory, culprit: Finding) -> RootCause | None:
    code = str(FALLEN_OFF_BUS_XID) if culprit.code == "fallen_off_bus" else culprit.code
    if culprit.check not in {"xid", "sxid"} or not code.isdecimal():
        return None
    entry = story.catalogue.entry(int(code)) if culprit.check == "xid" else story.catalogue.sxid_entry(int(code))
    basis = f"the catalogue's entry for {culprit.kind}"
    first = culprit.evidence.get("burst_first")
    if first and str(first) != culprit.code:
        basis += f"; it is not the first of its burst, that was Xid {first}"
    return RootCause(entry.meaning, entry.blame.value.replace("_", " "), basis, culprit.kind)


def _blamed_component(culprit: Finding) -> str:
    """Return the component, which says where, not why."""
    return str(culprit.component)


def list_follow_ups(story: IncidentHistory) -> tuple[str, ...]:
    """List what an operator should still do or know, the most urgent first; each once."""
    return tuple(
        dict.fromkeys(
            (
                *_open_step_follow_ups(story),
                *_failed_step_follow_ups(story),
                *_recurrence_follow_ups(story),
                *_missing_evidence_follow_ups(story),
            )
        )
    )


def _open_step_follow_ups(story: IncidentHistory) -> Iterator[str]:
    incident = story.incident
    reached = {StepState.RUNNING, StepState.SUCCEEDED}
    runs = [run for stage in incident.plan for run in stage]
    replacing = not story.over and any(r.step.verb is Verb.REPLACE and r.state in reached for r in runs)
    if replacing:
        what = str(story.culprit.component) if story.culprit else "what failed"
        yield f"Replace {what} on {incident.node}, then return the node to service."
    elif incident.state is IncidentState.WAITING:
        yield f"It needs a person: {incident.outcome or 'no reason given'}."
    if story.over and story.isolated is not None and story.isolated[1] is None:
        yield f"The incident is closed, but {incident.node} has not returned to service."
    active = sorted({f.kind for f in story.findings if f.active and f.severity is not Severity.INFO})
    if story.over and active:
        yield f"Still reported by the node: {', '.join(active)}."


def _failed_step_follow_ups(story: IncidentHistory) -> Iterator[str]:
    told: set[str] = set()
    for run in (run for stage in story.incident.plan for run in stage):
        if run.state is StepState.FAILED:
            told |= set(run.actions)
            yield f"The step '{run.step}' failed: {run.detail or 'no reason given'}. Find out why."
    for action in story.actions:
        if action.id not in told and action.state in {ActionState.FAILED, ActionState.REFUSED, ActionState.EXPIRED}:
            yield f"{action.verb} of {action.node} {action.state.value}: {action.detail or 'no reason given'}."


def _recurrence_follow_ups(story: IncidentHistory) -> Iterator[str]:
    culprit = story.culprit
    if story.earlier and culprit is not None:
        same = sum(earlier.title.startswith(f"{culprit.kind} on {culprit.component}") for earlier in story.earlier)
        count = len(story.earlier)
        words = f"{count} earlier {'incident' if count == 1 else 'incidents'} of {story.incident.node}"
        yield f"It recurs: {words}, {same or 'none'} of the same kind on the same component. Look for a common cause."


def _missing_evidence_follow_ups(story: IncidentHistory) -> Iterator[str]:
    if not story.evidence:
        orders = evidence_orders(story.actions)
        why = f"ordered, and {orders[-1].state.value}" if orders else "none was ordered"
        yield f"No evidence of the preceding minutes was kept ({why})."
    missing = [f"{bundle.node}: {m.what} ({m.why})" for bundle in story.evidence for m in bundle.missing]
    if missing:
        more = f"; and {len(missing) - MISSING_SHOWN} more" if len(missing) > MISSING_SHOWN else ""
        yield f"The evidence is incomplete. {'; '.join(missing[:MISSING_SHOWN])}{more}."
    if any(f.severity is Severity.UNCLASSIFIED for f in story.findings):
        yield "The catalogue has no entry for this finding: add one, so that the next one is handled."
