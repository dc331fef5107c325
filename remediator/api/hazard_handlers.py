"""`GET /v1/hazard/{job}`: how likely a job's nodes are to fail now.

Every node of thousands of jobs asks. So a separate thread groups nodes and findings by job at intervals, and each job's
answer is computed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import request_identity
from remediator.api.handler_context import HandlerContext, Refusal, handler_context_of
from remediator.detection.failure_hazard import compute_job_hazard
from remediator.engine.decision_engine import StateSnapshot
from remediator.model.credentials import Role
from remediator.model.journal_records import NodeRecord
from vocabulary.finding import Finding
from vocabulary.messages.wire import encode_message

STALE_S = 5.0  # an answer stays valid for much longer
NEWS_S = 0.25  # how soon an unknown job triggers a new grouping


class JobHazards:
    """The jobs of one snapshot, and their answers so far."""

    def __init__(self, snapshot: StateSnapshot, wall: float) -> None:
        self._wall = wall
        self._nodes: dict[str, dict[str, NodeRecord]] = {}
        for node in snapshot.nodes.values():
            for ref in node.jobs:
                self._nodes.setdefault(ref.job, {})[node.node] = node
        self._findings = _group_findings_by_node(snapshot.findings.values())
        self._answers: dict[tuple[str, int | None], bytes] = {}  # JSON, by job and attempt

    def __contains__(self, job: str) -> bool:
        return job in self._nodes

    def holds(self, job: str, node: str) -> bool:
        """Return whether a node holds a rank of a job."""
        return node in self._nodes.get(job, ())

    def known(self, job: str, node: str | None) -> bytes | None:
        """Return the answer for this caller, if it was computed before."""
        return self._answers.get((job, self._attempt(job, node)))

    def answer(self, job: str, node: str | None, node_mtbf_h: float) -> bytes:
        """Compute the answer about a known job; for a node, about the attempt that it holds itself."""
        nodes, attempt = list(self._nodes[job].values()), self._attempt(job, node)
        findings = {node.node: self._findings.get(node.node, ()) for node in nodes}
        found = compute_job_hazard(job, nodes, findings, self._wall, node_mtbf_h, attempt)
        assert found is not None  # noqa: S101 - it has nodes
        self._answers[job, attempt] = encode_message(found)
        return self._answers[job, attempt]

    def _attempt(self, job: str, node: str | None) -> int | None:
        """Return the newest attempt that the node holds; None: the one that most nodes hold."""
        record = self._nodes[job].get(node) if node is not None else None
        return None if record is None else max(ref.attempt for ref in record.jobs if ref.job == job)


class HazardCache:
    """The jobs as last grouped. For the event loop's thread only."""

    def __init__(self, service: HandlerContext) -> None:
        self._service = service
        self._sorting = asyncio.Lock()
        self._jobs: JobHazards | None = None
        self._at = 0.0

    async def jobs(self, job: str, node: str | None) -> JobHazards:
        """Return the jobs; grouped again if that was long ago, or if the job, or a rank of it on `node`, is missing."""
        async with self._sorting:
            known, age_s = self._jobs, self._service.clock.monotonic() - self._at
            if known is not None and age_s < STALE_S:
                found = job in known if node is None else known.holds(job, node)
                if found or age_s < NEWS_S:
                    return known
            snapshot, wall = self._service.engine.snapshot, self._service.clock.wall()
            self._jobs = await asyncio.to_thread(JobHazards, snapshot, wall)
            self._at = self._service.clock.monotonic()
            return self._jobs


async def show_job_hazard(request: Request) -> Response:
    """`GET /v1/hazard/{job}`: for operators, and for the nodes that hold its ranks."""
    identity, service = request_identity(request), handler_context_of(request)
    node = identity.name if identity.role is Role.NODE else None
    answer = await find_job_hazard(service, request.app.state.board, request.path_params["job"], node)
    return Response(answer, media_type="application/json")


async def find_job_hazard(service: HandlerContext, board: HazardCache, job: str, node: str | None) -> bytes:
    """Return a job's hazard as JSON, for a node or, without one, for an operator.

    Raises:
        Refusal: 403, the node has no rank of the job; 404, there is no such job.
    """
    if node is not None and not _node_runs_job(service, node, job):
        raise Refusal(403, f"node {node} has no rank of job {job}", "only the job's nodes and operators may read this")
    jobs = await board.jobs(job, node)
    if job not in jobs:
        raise Refusal(404, f"no node has a rank of job {job}", "see 'healthctl nodes list'")
    mtbf_h = service.config.node_mtbf_h
    known = jobs.known(job, node)
    return await asyncio.to_thread(jobs.answer, job, node, mtbf_h) if known is None else known


def _group_findings_by_node(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.node, []).append(finding)
    return found


def _node_runs_job(service: HandlerContext, node: str, job: str) -> bool:
    record = service.engine.snapshot.nodes.get(node)
    return record is not None and any(ref.job == job for ref in record.jobs)
