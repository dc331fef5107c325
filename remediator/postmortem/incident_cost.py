"""Durations of an incident's parts, and its cost in GPU-hours: known, assumed, and left out. Pure."""

from __future__ import annotations

from remediator.model.journal_records import Action, ActionState, Answer
from remediator.postmortem.incident_history import HOLDING, IncidentHistory, fact_time
from remediator.postmortem.postmortem_document import CostItem, DurationSpan, IncidentCost, JobHit
from vocabulary.order import OrderKind

GPUS_ASSUMED = 8  # of most training nodes
HOUR_S = 3600.0
_SAVES = OrderKind.CHECKPOINT_THEN_EJECT.value


def incident_spans(story: IncidentHistory) -> tuple[DurationSpan, ...]:
    """Return the durations from the fault to the node's return."""
    incident, seen = story.incident, story.first_seen
    acted = min((d.at for d in story.decisions if d.answer is Answer.ACT), default=None)
    held = [a for a in story.actions if a.verb in HOLDING]
    out, saved = story.isolated, fact_time([a for a in story.actions if a.verb == _SAVES], "saved_at")
    return (
        _build_span(
            "seen on the node until known to the controller", seen, incident.opened_at, "no finding has a start time"
        ),
        _build_span("known until acted on", incident.opened_at, acted, "no decision acted"),
        _build_span(
            "acted on until no new work",
            acted,
            out[0] if out else None,
            _missing_span_reason(held, "the node was not isolated"),
        ),
        _build_span("acted on until every rank saved", acted, saved, "no job saved for this"),
        _build_span(
            "out of service",
            out[0] if out else None,
            out[1] if out else None,
            "it has not returned" if out else "never",
        ),
        _build_span("from opening to close", incident.opened_at, incident.closed_at, "it is still open"),
    )


def _build_span(name: str, began: float | None, ended: float | None, else_: str) -> DurationSpan:
    if began is None or ended is None:
        return DurationSpan(name, None, else_)
    return DurationSpan(
        name, max(0.0, ended - began), "" if ended >= began else "the clocks of node and controller disagree"
    )


def _missing_span_reason(actions: list[Action], otherwise: str) -> str:
    states = sorted({a.state.value for a in actions if a.state is not ActionState.SUCCEEDED})
    return f"isolating it: {', '.join(states)}" if states else otherwise


def affected_jobs(story: IncidentHistory) -> tuple[JobHit, ...]:
    """Return the jobs that were ordered to save or to stop, and what became of them."""
    return tuple(_build_job_hit(story, job, attempt) for job, attempt in story.trainer_orders)


def _build_job_hit(story: IncidentHistory, job: str, attempt: int | None) -> JobHit:
    orders = story.trainer_orders[job, attempt]
    actions = [action for action, _ in orders]
    saving = [action for action in actions if action.verb == _SAVES]
    aborted = [action for action in actions if action.verb != _SAVES]
    saved_at = fact_time(saving, "saved_at")
    saved = bool(saving) and not aborted and all(a.state is ActionState.SUCCEEDED for a in saving)
    if saved:
        how = "saved and left" if saved_at is not None else "left; no rank of it ran here"
    elif any(a.state is ActionState.SUCCEEDED for a in aborted):
        how = "was ordered to save, but was stopped" if saving else "was stopped and resumes from its last checkpoint"
    else:
        how = "; ".join(sorted({f"{a.verb}: {a.state.value}" for a in actions}))
    steps = [value for a in saving if isinstance(value := a.data.get("agreed_step"), int)]
    paths = [value for a in saving if isinstance(value := a.data.get("path"), str) and value]
    stopped_at = saved_at if saved else (story.first_seen if aborted else None)
    return JobHit(
        job=job,
        attempt=attempt,
        nodes=tuple(sorted({action.node for action in actions})),
        how=how,
        step=max(steps) if saved and steps else None,
        checkpoint=paths[0] if saved and paths else "",
        stopped_at=stopped_at,
        back_at=story.returns.get(job),
    )


def compute_cost(story: IncidentHistory, hit: tuple[JobHit, ...]) -> IncidentCost:
    """Compute GPU-hours of the isolated node, and of all nodes of the jobs that were stopped meanwhile."""
    items, left_out = [], []
    if story.isolated is not None:
        began, ended = story.isolated
        note = "" if ended is not None else ", still counting at the time of this report"
        what = f"{story.incident.node} out of service"
        items.append(
            _build_cost_item(story, what, (story.incident.node,), began, story.as_of if ended is None else ended, note)
        )
    for job in hit:
        what, others = f"job {job.job} stopped", tuple(n for n in job.nodes if n != story.incident.node)
        if job.stopped_at is None:
            left_out.append(f"{what}: start unknown")
        elif job.back_at is None:
            left_out.append(f"{what}: end unknown")
        elif story.isolated is None:
            items.append(_build_cost_item(story, what, job.nodes, job.stopped_at, job.back_at, ""))
        elif others:
            note = "; its GPUs on the isolated node are counted above"
            items.append(_build_cost_item(story, what, others, job.stopped_at, job.back_at, note))
        if job.stopped_at is not None and not job.how.startswith("saved"):
            left_out.append(f"job {job.job}: the steps since its last checkpoint, which were repeated")
    return IncidentCost(sum(item.gpu_hours or 0.0 for item in items), tuple(items), tuple(left_out))


def _build_cost_item(
    story: IncidentHistory, what: str, nodes: tuple[str, ...], began: float, ended: float, note: str
) -> CostItem:
    known = {node: story.gpus_of(node) for node in nodes}
    unknown = sorted(node for node, gpus in known.items() if gpus is None)
    gpus = sum(GPUS_ASSUMED if count is None else count for count in known.values())
    seconds = max(0.0, ended - began)
    basis = f"{gpus} GPUs of {len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}{note}"
    if unknown:
        basis += f"; assumed: {GPUS_ASSUMED} GPUs on {_join_names(unknown)}"
    return CostItem(
        what=what,
        gpus=gpus,
        seconds=seconds,
        gpu_hours=gpus * seconds / HOUR_S,
        basis=basis,
        assumed=bool(unknown),
    )


def _join_names(names: list[str], most: int = 5) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
