"""Handlers for `remediator ingest`: messages of many nodes at once, and the orders of all nodes.

The caller vouches for each message's node; a node without a valid token is refused, so revocation acts at once. All
limits of a single message apply to each one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import check_open_request
from remediator.api.handler_context import (
    NUL_TOLD,
    WAIT_MAX_S,
    HandlerContext,
    Refusal,
    check_admission,
    handler_context_of,
    json_response,
    query_number,
    read_request_body,
)
from remediator.api.hazard_handlers import find_job_hazard
from remediator.api.report_handlers import (
    HEARTBEAT_BYTES_MAX,
    UPDATE_BYTES_MAX,
    take_heartbeat,
    take_order_update,
    take_report,
    wait_to_hand_out,
)
from remediator.model.message_batch import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    AllOrders,
    DeliveredMessage,
    MessageAnswer,
    NodeOrders,
)
from vocabulary.messages.message_bounds import holds_nul
from vocabulary.messages.wire import REPORT_BYTES_MAX, Problem, WireError, decode_message, encode_message
from vocabulary.order import OrderUpdate

NAME_BYTES_MAX = 4096

_log = logging.getLogger("remediator.api")


async def accept_message_batch(request: Request) -> Response:
    """`POST /v1/reports`: a list of messages; the list of their answers, in the same order, once all are answered."""
    service = handler_context_of(request)
    begun: float = request.scope.get("arrived") or service.clock.monotonic()
    content = await read_request_body(request, BATCH_BYTES_MAX)
    try:
        messages = msgspec.msgpack.decode(content, type=list[DeliveredMessage])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, f"the body is invalid: {error}") from error
    if len(messages) > BATCH_MESSAGES_MAX:
        raise Refusal(413, f"a batch holds at most {BATCH_MESSAGES_MAX} messages")
    answers = await asyncio.gather(*(_answer_message(request, message, begun) for message in messages))
    return Response(msgspec.msgpack.encode(answers), media_type="application/msgpack")


async def poll_all_orders(request: Request) -> Response:
    """`GET /v1/orders?wait_s=N&known=VERSION`: open orders of all nodes; waits up to N seconds for another version."""
    service = handler_context_of(request)
    wait_s = query_number(request, "wait_s", 0, 0, WAIT_MAX_S)
    known = request.query_params.get("known", "")

    def look() -> tuple[AllOrders, bool]:
        found = _list_open_orders(service)
        return found, found.version != known

    return json_response(await wait_to_hand_out(service, "", look, wait_s, lambda: check_open_request(request)))


async def _answer_message(request: Request, message: DeliveredMessage, begun: float) -> MessageAnswer:
    try:
        return await _take_message(request, message, begun)
    except Refusal as refusal:
        retry_after_s = float(refusal.headers.get("retry-after", 0.0))
        return MessageAnswer(refusal.status, encode_message(refusal.problem), retry_after_s)
    except Exception:  # noqa: BLE001 - logged; the other messages of the batch must be answered
        _log.exception("a %s of node %s", message.kind, message.node)
        return MessageAnswer(500, encode_message(Problem(error="internal error; the controller's log has it")))


async def _take_message(request: Request, message: DeliveredMessage, begun: float) -> MessageAnswer:
    """Raises: Refusal: the message is not taken."""
    service, node = handler_context_of(request), message.node
    if not service.tokens.has_node(node):
        raise Refusal(401, f"node {node} has no valid token", "an admin can issue one: 'healthctl token issue'")
    if (wait_s := service.gate.nodes.wait_s(f"node {node}")) > 0:
        raise Refusal(429, f"node {node} sends too many requests", "send fewer requests", math.ceil(wait_s))
    taker = _TAKERS.get(message.kind)
    if taker is None:
        raise Refusal(400, f"this controller takes no {message.kind[:80]!r}", "upgrade the controller first")
    return await taker(request, node, message.body, begun)


async def _take_report_message(request: Request, node: str, body: bytes, begun: float) -> MessageAnswer:
    if len(body) > REPORT_BYTES_MAX:
        raise Refusal(413, f"the body is longer than {REPORT_BYTES_MAX} bytes")
    return MessageAnswer(200, encode_message(await take_report(handler_context_of(request), node, body, begun)))


async def _take_heartbeat_message(request: Request, node: str, body: bytes, begun: float) -> MessageAnswer:
    if len(body) > HEARTBEAT_BYTES_MAX:
        raise Refusal(413, f"the body is longer than {HEARTBEAT_BYTES_MAX} bytes")
    return MessageAnswer(200, encode_message(take_heartbeat(handler_context_of(request), node, body, begun)))


async def _take_update_message(request: Request, node: str, body: bytes, _begun: float) -> MessageAnswer:
    service = handler_context_of(request)
    check_admission(service)
    if len(body) > UPDATE_BYTES_MAX:
        raise Refusal(413, f"the body is longer than {UPDATE_BYTES_MAX} bytes")
    if holds_nul(body):
        raise Refusal(400, NUL_TOLD)
    try:
        update = decode_message(body, OrderUpdate)
    except WireError as error:
        raise Refusal(400, f"the body is invalid: {error.__cause__ or error}") from error
    await take_order_update(service, node, update)
    return MessageAnswer(204)


async def _answer_hazard_message(request: Request, node: str, body: bytes, _begun: float) -> MessageAnswer:
    try:
        job = body[:NAME_BYTES_MAX].decode()
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not a job's name: {error}") from error
    found = await find_job_hazard(handler_context_of(request), request.app.state.board, job, node)
    return MessageAnswer(200, found)


Taker = Callable[[Request, str, bytes, float], Awaitable[MessageAnswer]]
_TAKERS: dict[str, Taker] = {
    "report": _take_report_message,
    "heartbeat": _take_heartbeat_message,
    "answer": _take_update_message,
    "hazard": _answer_hazard_message,
}


def _list_open_orders(service: HandlerContext) -> AllOrders:
    snapshot, now = service.engine.snapshot, service.clock.wall()
    of_all = ((node, snapshot.orders_for(node, now)) for node in sorted(snapshot.ordered))
    nodes = tuple(NodeOrders(node, orders) for node, orders in of_all if orders)
    return AllOrders(hashlib.sha256(msgspec.json.encode(nodes)).hexdigest()[:32], nodes)
