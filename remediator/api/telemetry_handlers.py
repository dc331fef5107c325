"""The last hour of a node's telemetry for a viewer, and the intake of telemetry in reports."""

from __future__ import annotations

import asyncio
import contextlib

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import check_open_request
from remediator.api.handler_context import HandlerContext, Refusal, handler_context_of, json_response, query_number
from vocabulary.messages.wire import Report

WAIT_MAX_S = 10.0


async def show_node_telemetry(request: Request) -> Response:
    """`GET /v1/nodes/{node}/telemetry?wait_s=N`: requests it from the node; waits up to N seconds for the first data."""
    service, node = handler_context_of(request), request.path_params["node"]
    wait_s = query_number(request, "wait_s", 0, 0, WAIT_MAX_S)
    if node not in service.engine.snapshot.nodes:
        raise Refusal(404, f"no node {node} has ever reported", "see 'healthctl nodes list'")
    asked_at = service.clock.monotonic()
    since = None
    if service.telemetry.ask(node, asked_at):
        since = asked_at
        service.wakeups.wake([node])
    with service.wakeups.subscription(node) as woken:
        while not _wait_for_telemetry(service, node, since):
            left_s = asked_at + wait_s - service.clock.monotonic()
            if left_s <= 0 or service.wakeups.ended:
                break
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(woken.wait(), left_s)
            woken.clear()
            check_open_request(request)
    entry = service.report_registry.get(node)
    indices = {gpu.pci: gpu.index for gpu in entry.gpus} if entry else {}
    return json_response(service.telemetry.view(node, indices, service.clock.monotonic(), service.clock.wall()))


def accept_report_telemetry(service: HandlerContext, report: Report) -> None:
    """Take in the telemetry of a report. An error in it does not affect the report."""
    if report.telemetry is UNSET:  # the usual case
        return
    clock, gpus = service.clock, {gpu.pci for gpu in report.gpus}
    if service.telemetry.take(report.node, report.boot_id, gpus, report.telemetry, clock.monotonic(), clock.wall()):
        service.wakeups.wake([report.node])


def _wait_for_telemetry(service: HandlerContext, node: str, since: float | None) -> bool:
    """Return whether there is data; after a new request, whether it came since."""
    told_at = service.telemetry.told_at(node)
    return told_at is not None and (since is None or told_at >= since)
