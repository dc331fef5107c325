"""`/incidents/ID`: one incident whole: what was found, what was decided and why, what was done and when, what comes next."""

from __future__ import annotations

from hashlib import sha256

import msgspec
from starlette.responses import Response

from remediator.decide.guards import has_passed
from remediator.model.evidence import EvidenceList
from remediator.model.records import Answer
from remediator.model.views import IncidentView
from remediator.web.gravity import drill
from remediator.web.incident_deeds import offered
from remediator.web.lines import refused
from remediator.web.progress import doing
from remediator.web.rendering import HEADERS
from remediator.web.timeline import MOMENTS_SHOWN, lapse, timeline
from remediator.web.together import together
from remediator.web.visit import Visit
from vocabulary.finding import Finding

FINDINGS_SHOWN = 50
MEMBERS_SHOWN = 100


async def show(visit: Visit) -> Response:
    """The page."""
    name = visit.request.path_params["incident"]
    answer = await visit.answer(f"/v1/incidents/{name}")
    view, seen = msgspec.json.decode(answer.body, type=IncidentView), answer.headers["etag"]
    evidence = await visit.ask(f"/v1/incidents/{name}/evidence", EvidenceList) if visit.may_operate else None
    known = visit.service.engine.snapshot.incidents.get(name)
    marked = drill(view.findings, injected=view.injected)
    last = view.decisions[-1] if view.decisions else None
    return await visit.page(
        "incident.html.j2",
        title=f"Incident {name}" + (f" ({marked})" if marked else ""),
        drill=marked,
        incident=view,
        seen=seen,
        key=sha256(f"{seen}{len(view.notes)}{visit.identity.id}".encode()).hexdigest()[:32],
        doing=doing(view, Answer(last.answer), last.rule, refused(last.guards)) if last else doing(view),
        actions=together(view.actions),
        moments=timeline(view)[-MOMENTS_SHOWN:],
        moments_total=len(timeline(view)),
        lapse=lapse,
        has_passed=has_passed,
        findings=[(finding, _raw(finding)) for finding in view.findings[:FINDINGS_SHOWN]],
        members=known.members[:MEMBERS_SHOWN] if known else (),
        members_max=MEMBERS_SHOWN,
        members_total=len(known.members) if known else 0,
        is_node=view.node in visit.service.engine.snapshot.nodes,
        evidence=evidence.evidence if evidence else None,
        offered=offered(view) if visit.may_operate else [],
    )


async def postmortem(visit: Visit) -> Response:
    """The incident told afterwards; it is shown in a sandbox."""
    name = visit.request.path_params["incident"]
    answer = await visit.answer(f"/v1/incidents/{name}/postmortem", format="html")
    answer.headers["Cache-Control"] = "no-store"
    return answer


async def bundle(visit: Visit) -> Response:
    """One bundle of evidence, to keep as a file."""
    name, order = visit.request.path_params["incident"], visit.request.path_params["order"]
    answer = await visit.answer(f"/v1/incidents/{name}/evidence", order=order)
    file = "".join(c if c.isalnum() and c.isascii() else "-" for c in f"evidence-{order}")
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{file}.json"'}
    return Response(answer.body, headers=headers, media_type="application/json")


def _raw(finding: Finding) -> list[str]:
    return msgspec.json.format(msgspec.json.encode(finding), indent=2).decode().splitlines()
