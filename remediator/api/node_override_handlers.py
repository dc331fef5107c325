"""Handlers for nodes: hold, retire, and end both; cordon and uncordon.

All are inputs of the pipeline; a repetition changes nothing.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import client_address, request_identity
from remediator.api.handler_context import (
    Refusal,
    check_admission,
    decode_request_body,
    handler_context_of,
    submit_input,
    wait_until_durable,
)
from remediator.api.incident_handlers import WORDS_BYTES_MAX
from remediator.engine.decision_engine import StateSnapshot
from remediator.model.pipeline_inputs import ManualCordon, ManualCordonKind, NodeCommand, NodeCommandKind
from remediator.model.rule_conditions import NodeState
from remediator.model.views import CommandText, HoldRequest, UncordonRequest
from vocabulary.order import OrderKind

_UNFIT_FOR_WORK = frozenset({OrderKind.RESET_GPU.value, OrderKind.REBOOT.value, OrderKind.RUN_PREFLIGHT.value})


async def hold_node(request: Request) -> Response:
    """`POST /v1/nodes/{node}/hold`: operator hold, until released or until a time."""
    body = await decode_request_body(request, HoldRequest, WORDS_BYTES_MAX)
    if body.until is not None and body.until <= handler_context_of(request).clock.wall():
        raise Refusal(
            400, f"'until' is {body.until:.0f}, which is in the past", "give UTC seconds in the future, or none"
        )
    record = handler_context_of(request).engine.snapshot.nodes.get(request.path_params["node"])
    if record is not None and record.state is NodeState.RETIRED:
        raise Refusal(409, f"node {record.node} is retired", "use 'unretire' to return it to the cluster")
    return await _submit_node_command(request, NodeCommandKind.HOLD, _require_reason(body.text), body.until)


async def release_node(request: Request) -> Response:
    """`POST /v1/nodes/{node}/release`: end the operator hold."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    return await _submit_node_command(request, NodeCommandKind.RELEASE, words.text)


async def retire_node(request: Request) -> Response:
    """`POST /v1/nodes/{node}/retire`: remove it from the cluster."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    return await _submit_node_command(request, NodeCommandKind.RETIRE, _require_reason(words.text))


async def unretire_node(request: Request) -> Response:
    """`POST /v1/nodes/{node}/unretire`: return it to the cluster, on probation."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    return await _submit_node_command(request, NodeCommandKind.UNRETIRE, words.text)


async def cordon_node(request: Request) -> Response:
    """`POST /v1/nodes/{node}/cordon`: cordon it in the scheduler in the caller's name; only operators lift it."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    return await _submit_manual_cordon(request, ManualCordonKind.CORDON, _require_reason(words.text))


async def uncordon_node(request: Request) -> Response:
    """`POST /v1/nodes/{node}/uncordon`: resume it in the scheduler in the caller's name, whoever holds it."""
    body = await decode_request_body(request, UncordonRequest, WORDS_BYTES_MAX)
    service, node = handler_context_of(request), request.path_params["node"]
    running = running_node_work(service.engine.snapshot, node, service.clock.wall())
    if running and not body.force:
        todo = "wait until it ends (see the node's page), or allow work anyway: --force, or the checkbox on the page"
        raise Refusal(409, "; ".join(running), todo)
    return await _submit_manual_cordon(request, ManualCordonKind.UNCORDON, body.text)


def running_node_work(snapshot: StateSnapshot, node: str, now: float) -> list[str]:
    """Describe running actions that must not meet a job, including withdrawn ones that the node had fetched before."""
    planned = [a for a in snapshot.ordered.get(node, ()) if a.verb in _UNFIT_FOR_WORK and now < a.deadline]
    given_up = [
        a for a in snapshot.unanswered_actions.values() if a.node == node and a.order and a.verb in _UNFIT_FOR_WORK
    ]
    found = [f"{a.verb} is in progress on {node}" + (f" ({a.detail})" if a.detail else "") for a in planned]
    withdrawn = f"was ordered on {node} and withdrawn, but {node} has not reported its end"
    return found + [f"{a.verb} {withdrawn}" for a in given_up if now < a.deadline]


async def _submit_manual_cordon(request: Request, word: ManualCordonKind, text: str) -> Response:
    service, node = handler_context_of(request), request.path_params["node"]
    record, hold = service.engine.snapshot.nodes.get(node), service.engine.snapshot.holds.get(node)
    if record is None:
        raise Refusal(404, f"no node {node} has ever reported", "see 'healthctl nodes list'")
    if record.state is NodeState.RETIRED:
        raise Refusal(409, f"node {node} is retired", "use 'unretire' to return it to the cluster")
    if hold is not None and not hold.known:
        raise Refusal(
            409, f"the scheduler does not know node {node}: {hold.reason}", "there is nothing to cordon or uncordon"
        )
    check_admission(service)
    item = ManualCordon(
        at=service.clock.wall(),
        node=node,
        word=word,
        actor=request_identity(request).name,
        address=client_address(request),
        text=text,
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)


def _require_reason(text: str) -> str:
    if not text.strip():
        raise Refusal(400, "the reason is empty", 'send {"text": …} with the reason for others')
    return text


async def _submit_node_command(
    request: Request, word: NodeCommandKind, text: str, until: float | None = None
) -> Response:
    service, node = handler_context_of(request), request.path_params["node"]
    if node not in service.engine.snapshot.nodes:
        raise Refusal(404, f"no node {node} has ever reported", "see 'healthctl nodes list'")
    check_admission(service)
    item = NodeCommand(
        at=service.clock.wall(),
        node=node,
        word=word,
        actor=request_identity(request).name,
        address=client_address(request),
        text=text,
        until=until,
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)
