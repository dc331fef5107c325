"""What is asked about a job: how likely its nodes are to fail now."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access import who
from remediator.api.service import Refusal, reply, service_of
from remediator.detect.hazard import job_hazard
from remediator.model.credentials import Role
from vocabulary.finding import Finding


async def hazard(request: Request) -> Response:
    """`GET /v1/jobs/{job}/hazard`: for people, and for the nodes that hold its ranks."""
    identity = who(request)
    service = service_of(request)
    job = request.path_params["job"]
    snapshot = service.engine.snapshot
    nodes = [node for node in snapshot.nodes.values() if any(ref.job == job for ref in node.jobs)]
    if identity.role is Role.NODE and identity.name not in {node.node for node in nodes}:
        raise Refusal(403, f"node {identity.name} holds no rank of job {job}", "only its nodes and operators may ask")
    names = {node.node for node in nodes}
    findings: dict[str, list[Finding]] = {}
    for finding in snapshot.findings.values():
        if finding.node in names:
            findings.setdefault(finding.node, []).append(finding)
    found = job_hazard(job, nodes, findings, service.clock.wall(), service.config.node_mtbf_h)
    if found is None:
        raise Refusal(404, f"no node holds a rank of job {job}", "see 'healthctl nodes list'")
    return reply(found)
