"""`/nodes/NAME`: one node: its state and why, what comes next, its jobs, GPUs, telemetry and history."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from remediator.api.handler_context import Refusal
from remediator.model.journal_records import Incident
from remediator.model.rule_conditions import NodeState
from remediator.model.views import EventList, IncidentView, NodeView
from remediator.model.views_jobs import GpuList, GpuView
from remediator.model.views_telemetry import TelemetryView
from remediator.web.incident_progress import incident_progress_text, steps_to_come
from remediator.web.incident_rows import first_refused_guard
from remediator.web.node_actions import offered_node_actions
from remediator.web.page_request import PageRequest
from remediator.web.telemetry_plots import build_telemetry_plots
from vocabulary.messages.wire import RankStatus

EVENTS_SHOWN = 60

# What a state means for the node, if no plan says more.
MEANS = {
    "healthy": "Takes work.",
    "suspect": "Takes work, but has an active finding.",
    "draining": "Takes no new work; running work leaves.",
    "quarantined": "Isolated by the system; returns to service only after a passed preflight.",
    "resetting": "A reset or reboot is under way.",
    "replacing": "Waiting for a repair or a replacement part.",
    "testing": "A preflight is running; if it passes, the node returns to service on probation.",
    "probation": "Back in service, watched more closely.",
    "operator-held": "Held by an operator; automation does nothing until they release it.",
    "retired": "Not part of the cluster.",
}


class NodeJob(msgspec.Struct, frozen=True):
    """A job's ranks on this node."""

    job: str
    attempt: int
    world: int
    ranks: tuple[RankStatus, ...]


async def show_node_page(visit: PageRequest) -> Response:
    """The page."""
    name = visit.node
    node = await visit.ask(f"/v1/nodes/{name}", NodeView)
    gpus = await visit.ask("/v1/gpus", GpuList, node=name)
    history = await visit.ask(f"/v1/nodes/{name}/history", EventList, limit=EVENTS_SHOWN)
    incident = await _find_incident_view(visit, node.incident)
    telemetry = await visit.ask(f"/v1/nodes/{name}/telemetry", TelemetryView)
    snapshot = visit.service.engine.snapshot
    offered = offered_node_actions(visit, node)
    wider = (i for i in snapshot.incidents.values() if i.wide and name in i.members)
    drawn, always_zero = build_telemetry_plots(telemetry.series, visit.now)
    record, known = snapshot.nodes[name], snapshot.incidents.get(node.incident)
    return await visit.page(
        "node.html.j2",
        title=name,
        node=node,
        places=tuple(record.places.keys),
        means=describe_node_state(node.state, incident),
        incident=incident,
        doing=_node_progress_text(incident, known) if incident else "",
        to_come=steps_to_come(incident) if incident else (),
        jobs=_node_jobs(node.ranks),
        gpus=[(gpu, _rank_on_gpu(gpu, node)) for gpu in gpus.gpus],
        product=gpus.gpus[0].name if len({gpu.name for gpu in gpus.gpus}) == 1 else "",
        serials=any(gpu.serial for gpu in gpus.gpus),
        history=history.events,
        telemetry=telemetry,
        plots=drawn,
        always_zero=always_zero,
        wider=sorted(wider, key=lambda each: each.opened_at),
        offered=offered,
        stopper=any(action.word == "hold" for action in offered),
    )


def describe_node_state(state: str, incident: IncidentView | None) -> str:
    """What the state means; for a suspect, whether a guard, an operator or the mode keeps it in service."""
    words = MEANS.get(state, "")
    if state != NodeState.SUSPECT.value or incident is None:
        return words
    return f"{words} {'It stays in service only because its plan is not carried out.' if incident.proposed else ''}".rstrip()


def _node_progress_text(incident: IncidentView, known: Incident | None) -> str:
    guards = incident.decisions[-1].guards if incident.decisions else ()
    return incident_progress_text(incident, known.answer if known else None, guard=first_refused_guard(guards))


async def _find_incident_view(visit: PageRequest, name: str) -> IncidentView | None:
    if not name:
        return None
    try:
        return await visit.ask(f"/v1/incidents/{name}", IncidentView)
    except Refusal:  # it was closed and removed between the two requests
        return None


def _node_jobs(ranks: tuple[RankStatus, ...]) -> list[NodeJob]:
    found: dict[tuple[str, int], list[RankStatus]] = {}
    for rank in ranks:
        found.setdefault((rank.job, rank.attempt), []).append(rank)
    return [
        NodeJob(job, attempt, max(r.world for r in here), tuple(sorted(here, key=lambda r: r.rank)))
        for (job, attempt), here in sorted(found.items())
    ]


def _rank_on_gpu(gpu: GpuView, node: NodeView) -> RankStatus | None:
    """The living rank that uses the GPU."""
    return next((r for r in node.ranks if r.alive and r.gpu and r.gpu == gpu.uuid), None)
