"""`/work`: what waits for a person's word and whom it would hit, what is under way, and what was done lately."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.model.plan import Verb
from remediator.model.views import StatusView, Words
from remediator.model.views_work import ActionList, AwaitingList, AwaitingView
from remediator.web.blast import NODES_NAMED, Blast, blast, crews
from remediator.web.gravity import drill, findings_of
from remediator.web.timeline import lapse
from remediator.web.visit import Visit

AWAITING_SHOWN = 50
ACTIONS_SHOWN = 100
STATES = ("open", "ended", "all")


async def show(visit: Visit) -> Response:
    """The page."""
    state = visit.query("state")
    state = state if state in STATES else "open"
    awaiting = (await visit.ask("/v1/awaiting", AwaitingList)).awaiting
    actions = (await visit.ask("/v1/actions", ActionList, state=state, limit=ACTIONS_SHOWN)).actions
    return await visit.page(
        "work.html.j2",
        title="Approvals and actions",
        awaiting=await _hits(visit, awaiting[:AWAITING_SHOWN]),
        awaiting_total=len(awaiting),
        actions=actions,
        actions_max=ACTIONS_SHOWN,
        state=state,
        states=STATES,
        cordon=Verb.CORDON.value,
        nodes_named=NODES_NAMED,
        lapse=lapse,
    )


async def cancel(visit: Visit) -> Response:
    """`POST /work/cancel`: not to be done after all."""
    action = visit.form.get("action", "")
    if not visit.knows("POST", f"/v1/actions/{action}/cancel"):
        raise HTTPException(404, "there is no such action")
    await visit.tell(f"/v1/actions/{action}/cancel", Words(visit.form.get("text", "").strip()))
    return visit.go("/work", "cancel")


async def _hits(visit: Visit, awaiting: tuple[AwaitingView, ...]) -> list[tuple[AwaitingView, Blast, bool, str]]:
    """Each with whom it hits, whether it may be declined, and whether it is a drill.

    While a plan is under way, an incident cannot be resolved.
    """
    if not awaiting:
        return []
    snapshot, rules = visit.service.engine.snapshot, visit.service.engine.settings.policy.by_name
    crew = await asyncio.to_thread(crews, snapshot)
    status = await visit.ask("/v1/status", StatusView)
    found = []
    for each in awaiting:
        incident = snapshot.incidents.get(each.incident)
        if incident is not None:  # else it was closed between the two questions
            hits = blast(incident, rules, status, snapshot, visit.service.roster, crew)
            marked = drill(findings_of(incident, snapshot.findings), injected=incident.injected)
            found.append((each, hits, incident.state.value in {"open", "waiting"}, marked))
    return found
