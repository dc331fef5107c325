"""Where the next job would live longest: advice for whoever places it, by what is known of the nodes that are free."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.service import Refusal, number, reply, service_of
from remediator.detect.hazard import place
from remediator.engine import Snapshot
from remediator.model.records import NodeRecord
from remediator.model.rules import NodeState
from vocabulary.counts import counted
from vocabulary.finding import Finding
from vocabulary.hazard import Placement

NODES_MAX = 1_000_000
TAKES_WORK = {NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION}


async def placement(request: Request) -> Response:
    """`GET /v1/placement?nodes=N`: the N free nodes that are least likely to fail, and which to avoid."""
    service = service_of(request)
    wanted = number(request, "nodes", 1, 1, NODES_MAX)
    found, free = await asyncio.to_thread(
        _placed, service.engine.snapshot, int(wanted), service.clock.wall(), service.config.node_mtbf_h
    )
    if found is None:
        words = f"{counted(free, 'node is', 'nodes are')} free, {wanted:g} are wanted"
        raise Refusal(409, words, "ask for fewer, or see 'healthctl nodes list'")
    return reply(found)


def _placed(snapshot: Snapshot, wanted: int, now: float, node_mtbf_h: float) -> tuple[Placement | None, int]:
    """The advice, and how many nodes are free."""
    free = [node for node in snapshot.nodes.values() if _is_free(node)]
    names = {node.node for node in free}
    findings: dict[str, list[Finding]] = {}
    for finding in snapshot.findings.values():
        if finding.node in names:
            findings.setdefault(finding.node, []).append(finding)
    return place(wanted, free, findings, now, node_mtbf_h), len(free)


def _is_free(node: NodeRecord) -> bool:
    return not node.jobs and not node.held and node.state in TAKES_WORK
