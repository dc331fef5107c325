"""`/nodes/NAME`: one node: how it is, why, what comes next, what runs on it, its GPUs, their last hour, its past."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from remediator.api.service import Refusal
from remediator.model.records import Incident
from remediator.model.rules import NodeState
from remediator.model.views import EventList, IncidentView, NodeView
from remediator.model.views_jobs import GpuList, GpuView
from remediator.model.views_telemetry import TelemetryView
from remediator.web.deeds import offered
from remediator.web.lines import refused
from remediator.web.plots import plots
from remediator.web.progress import doing, to_come
from remediator.web.visit import Visit
from vocabulary.wire import RankStatus

EVENTS_SHOWN = 60

# What a state means for the node's next hours, where no plan says it.
MEANS = {
    "healthy": "Takes work.",
    "suspect": "Takes work; something speaks against it.",
    "draining": "Takes no new work; what runs on it leaves.",
    "quarantined": "Out of service by us; comes back through a passed preflight only.",
    "resetting": "A reset or reboot is under way.",
    "replacing": "Waits for people to replace or repair it.",
    "testing": "A preflight runs; if it passes, the node comes back on probation.",
    "probation": "Back in service, on trial.",
    "operator-held": "A person keeps the system off it; nothing is done until they release it.",
    "retired": "No part of the cluster any more.",
}


class OnNode(msgspec.Struct, frozen=True):
    """What a job has here."""

    job: str
    attempt: int
    world: int
    ranks: tuple[RankStatus, ...]


async def show(visit: Visit) -> Response:
    """The page."""
    name = visit.node
    node = await visit.ask(f"/v1/nodes/{name}", NodeView)
    gpus = await visit.ask("/v1/gpus", GpuList, node=name)
    history = await visit.ask(f"/v1/nodes/{name}/history", EventList, limit=EVENTS_SHOWN)
    incident = await _incident(visit, node.incident)
    telemetry = await visit.ask(f"/v1/nodes/{name}/telemetry", TelemetryView)
    snapshot = visit.service.engine.snapshot
    deeds = offered(visit, node)
    wider = (i for i in snapshot.incidents.values() if i.wide and name in i.members)
    drawn, always_zero = plots(telemetry.series, visit.now)
    record, known = snapshot.nodes[name], snapshot.incidents.get(node.incident)
    return await visit.page(
        "node.html.j2",
        title=name,
        node=node,
        places=tuple(record.places.keys),
        means=means(node.state, incident),
        incident=incident,
        doing=_doing(incident, known) if incident else "",
        to_come=to_come(incident) if incident else (),
        jobs=_jobs(node.ranks),
        gpus=[(gpu, _beat(gpu, node)) for gpu in gpus.gpus],
        product=gpus.gpus[0].name if len({gpu.name for gpu in gpus.gpus}) == 1 else "",
        serials=any(gpu.serial for gpu in gpus.gpus),
        history=history.events,
        telemetry=telemetry,
        plots=drawn,
        always_zero=always_zero,
        wider=sorted(wider, key=lambda each: each.opened_at),
        deeds=deeds,
        stopper=any(deed.word == "hold" for deed in deeds),
    )


def means(state: str, incident: IncidentView | None) -> str:
    """What the state means; of a suspect, whether only a guard, a person or the mode keeps it in service."""
    words = MEANS.get(state, "")
    if state != NodeState.SUSPECT.value or incident is None:
        return words
    return f"{words} {'It stays in service only because of what stands below.' if incident.proposed else ''}".rstrip()


def _doing(incident: IncidentView, known: Incident | None) -> str:
    guards = incident.decisions[-1].guards if incident.decisions else ()
    return doing(incident, known.answer if known else None, guard=refused(guards))


async def _incident(visit: Visit, name: str) -> IncidentView | None:
    if not name:
        return None
    try:
        return await visit.ask(f"/v1/incidents/{name}", IncidentView)
    except Refusal:  # it was closed and cut off between the two questions
        return None


def _jobs(ranks: tuple[RankStatus, ...]) -> list[OnNode]:
    found: dict[tuple[str, int], list[RankStatus]] = {}
    for rank in ranks:
        found.setdefault((rank.job, rank.attempt), []).append(rank)
    return [
        OnNode(job, attempt, max(r.world for r in here), tuple(sorted(here, key=lambda r: r.rank)))
        for (job, attempt), here in sorted(found.items())
    ]


def _beat(gpu: GpuView, node: NodeView) -> RankStatus | None:
    """The living rank on a GPU."""
    return next((r for r in node.ranks if r.alive and r.gpu and r.gpu == gpu.uuid), None)
