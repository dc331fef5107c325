"""Placement advice for the next job: the free nodes that are least likely to fail."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.handler_context import Refusal, handler_context_of, json_response, query_number
from remediator.detection.failure_hazard import choose_placement
from remediator.engine.decision_engine import StateSnapshot
from remediator.model.journal_records import NodeRecord
from remediator.model.rule_conditions import NodeState
from vocabulary.finding import Finding
from vocabulary.messages.job_hazard import Placement
from vocabulary.text.plurals import format_count

NODES_MAX = 1_000_000
TAKES_WORK = {NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION}


async def show_placement(request: Request) -> Response:
    """`GET /v1/placement?nodes=N`: the N free nodes that are least likely to fail, and which to avoid."""
    service = handler_context_of(request)
    wanted = query_number(request, "nodes", 1, 1, NODES_MAX)
    found, free = await asyncio.to_thread(
        _place_job, service.engine.snapshot, int(wanted), service.clock.wall(), service.config.node_mtbf_h
    )
    if found is None:
        words = f"{format_count(free, 'node is', 'nodes are')} free, {wanted:g} requested"
        raise Refusal(409, words, "request fewer, or see 'healthctl nodes list'")
    return json_response(found)


def _place_job(snapshot: StateSnapshot, wanted: int, now: float, node_mtbf_h: float) -> tuple[Placement | None, int]:
    """Return the advice, and how many nodes are free."""
    free = [node for node in snapshot.nodes.values() if _is_free(node)]
    names = {node.node for node in free}
    findings: dict[str, list[Finding]] = {}
    for finding in snapshot.findings.values():
        if finding.node in names:
            findings.setdefault(finding.node, []).append(finding)
    return choose_placement(wanted, free, findings, now, node_mtbf_h), len(free)


def _is_free(node: NodeRecord) -> bool:
    return not node.jobs and not node.held and node.state in TAKES_WORK
