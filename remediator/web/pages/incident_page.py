"""`/incidents/ID`: one incident: its plan, timeline, decisions, actions, findings and evidence."""

from __future__ import annotations

from hashlib import sha256

import msgspec
from starlette.responses import Response

from remediator.decisions.rule_guards import is_guard_passed
from remediator.model.journal_records import Answer
from remediator.model.views import IncidentView
from remediator.model.views_evidence import EvidenceList, IncidentStacks
from remediator.web.action_grouping import group_actions
from remediator.web.incident_actions import offered_incident_actions
from remediator.web.incident_progress import find_current_step, incident_progress_text
from remediator.web.incident_rows import first_refused_guard
from remediator.web.incident_timeline import MOMENTS_SHOWN, build_incident_timeline, format_latency
from remediator.web.page_request import PageRequest
from remediator.web.severity_order import drill_text
from remediator.web.template_rendering import HEADERS
from vocabulary.finding import Finding

FINDINGS_SHOWN = 50
MEMBERS_SHOWN = 100


async def show_incident_page(visit: PageRequest) -> Response:
    """The page."""
    name = visit.request.path_params["incident"]
    answer = await visit.answer(f"/v1/incidents/{name}")
    view, seen = msgspec.json.decode(answer.body, type=IncidentView), answer.headers["etag"]
    evidence = await visit.ask(f"/v1/incidents/{name}/evidence", EvidenceList) if visit.may_operate else None
    stacks = await visit.ask(f"/v1/incidents/{name}/stacks", IncidentStacks) if evidence and evidence.evidence else None
    known = visit.service.engine.snapshot.incidents.get(name)
    marked = drill_text(view.findings, injected=view.injected)
    last = view.decisions[-1] if view.decisions else None
    return await visit.page(
        "incident.html.j2",
        title=f"Incident {name}" + (f" ({marked})" if marked else ""),
        drill=marked,
        incident=view,
        seen=seen,
        key=sha256(f"{seen}{len(view.notes)}{visit.identity.id}".encode()).hexdigest()[:32],
        doing=incident_progress_text(view, Answer(last.answer), last.rule, first_refused_guard(last.guards))
        if last
        else incident_progress_text(view),
        current=find_current_step(view)[1],
        actions=group_actions(view.actions),
        moments=build_incident_timeline(view)[-MOMENTS_SHOWN:],
        moments_total=len(build_incident_timeline(view)),
        lapse=format_latency,
        has_passed=is_guard_passed,
        findings=[(finding, _finding_json_lines(finding)) for finding in view.findings[:FINDINGS_SHOWN]],
        members=known.members[:MEMBERS_SHOWN] if known else (),
        members_max=MEMBERS_SHOWN,
        members_total=len(known.members) if known else 0,
        is_node=view.node in visit.service.engine.snapshot.nodes,
        evidence=evidence.evidence if evidence else None,
        stacks=stacks.jobs if stacks else (),
        offered=offered_incident_actions(view) if visit.may_operate else [],
    )


async def show_incident_postmortem(visit: PageRequest) -> Response:
    """The post-mortem as HTML; the API serves it with a sandbox policy."""
    name = visit.request.path_params["incident"]
    answer = await visit.answer(f"/v1/incidents/{name}/postmortem", format="html")
    answer.headers["Cache-Control"] = "no-store"
    return answer


async def download_evidence_bundle(visit: PageRequest) -> Response:
    """One evidence bundle, as a download."""
    name, order = visit.request.path_params["incident"], visit.request.path_params["order"]
    answer = await visit.answer(f"/v1/incidents/{name}/evidence", order=order)
    file = "".join(c if c.isalnum() and c.isascii() else "-" for c in f"evidence-{order}")
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{file}.json"'}
    return Response(answer.body, headers=headers, media_type="application/json")


def _finding_json_lines(finding: Finding) -> list[str]:
    return msgspec.json.format(msgspec.json.encode(finding), indent=2).decode().splitlines()
