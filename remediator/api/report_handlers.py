"""Handlers for nodes: reports, orders, order updates."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remediator.api import telemetry_handlers
from remediator.api.access_control import check_open_request, request_identity
from remediator.api.handler_context import (
    WAIT_MAX_S,
    HandlerContext,
    Refusal,
    check_admission,
    decode_request_body,
    handler_context_of,
    json_response,
    query_number,
    read_request_body,
    submit_input,
    wait_until_durable,
)
from remediator.engine.decision_engine import PLACEMENT_WEIGHS
from remediator.fleet.report_registry import ReportEntry
from remediator.model.pipeline_inputs import FindingsReported, InventoryChanged, OrderAnswered, PlacementChanged
from remediator.store.leader_lease import LEASE_S
from vocabulary.finding import Finding
from vocabulary.messages.heartbeat import decode_heartbeat
from vocabulary.messages.message_bounds import ACTIVE_MAX, CHANGES_PER_REPORT_MAX, RANKS_MAX
from vocabulary.messages.wire import (
    REPORT_BYTES_MAX,
    WIRE_VERSION,
    OrdersReply,
    Report,
    ReportReply,
    WireError,
    check_order_update,
    decode_message,
    decode_report,
)
from vocabulary.order import Order, OrderUpdate

T = TypeVar("T")

BOUNDS_TODO = "healthd respects these limits (docs/reference/api.md); upgrade the older one of node and controller"
UPDATE_BYTES_MAX = 64 << 10
HEARTBEAT_BYTES_MAX = 1 << 20  # whoever needs more sends a whole report
SENT_CHARS = 60  # shown of an invalid value
REPEATED_PER_PIECE = 10  # repeated findings, ranks and swaps that cost as much as one piece of news


async def accept_report(request: Request) -> Response:
    """`POST /v1/nodes/{node}/report`: acknowledged once every change in it is durable."""
    node = request_identity(request).name
    service = handler_context_of(request)
    begun: float = request.scope.get("arrived") or service.clock.monotonic()
    body = await read_request_body(request, REPORT_BYTES_MAX)
    return json_response(await take_report(service, node, body, begun))


async def take_report(service: HandlerContext, node: str, body: bytes, begun: float) -> ReportReply:
    """Take a node's report; returns once every change in it is durable. It arrived at `begun`, in monotonic seconds.

    Raises:
        Refusal: it is not taken.
    """
    _limit_node_rate(service, node)
    message = _decode_report(body, node)
    check_admission(service)  # before the registry takes it: known findings are not submitted to the engine again
    before, entry = service.report_registry.take(message, service.clock.wall())
    if entry is not before:
        telemetry_handlers.accept_report_telemetry(service, message)
    written = _submit_report_changes(service, message, before, entry)
    if written is not None:
        await wait_until_durable(service, written)
    acked = message.changes[-1].seq if message.changes else 0
    now = service.clock.monotonic()
    service.report_times.count(now - begun)
    telemetry = service.telemetry.pending_request(node, now)
    base = entry.base if (entry.agent, entry.base) == (message.agent, message.seq) else 0
    return ReportReply(acked_seq=acked, epoch=service.engine.epoch, telemetry=telemetry, base=base)


async def accept_heartbeat(request: Request) -> Response:
    """`POST /v1/nodes/{node}/heartbeat`: a report without news, which changes nothing durable."""
    service = handler_context_of(request)
    begun: float = request.scope.get("arrived") or service.clock.monotonic()
    body = await read_request_body(request, HEARTBEAT_BYTES_MAX)
    return json_response(take_heartbeat(service, request_identity(request).name, body, begun))


def take_heartbeat(service: HandlerContext, node: str, body: bytes, begun: float) -> ReportReply:
    """Apply a node's heartbeat, which began to arrive at `begun` (monotonic s).

    Raises:
        Refusal: 400, it is invalid; 409, it updates another report than the node's last one here.
    """
    try:
        heartbeat = decode_heartbeat(body)
    except WireError as error:
        raise Refusal(400, str(error), BOUNDS_TODO) from error
    entry = service.report_registry.beat(node, heartbeat, service.clock.wall())
    if entry is None:
        raise Refusal(409, f"report {heartbeat.base} of node {node} is not its last one here", "send a whole report")
    now = service.clock.monotonic()
    service.report_times.count(now - begun)
    telemetry = service.telemetry.pending_request(node, now)
    return ReportReply(acked_seq=0, epoch=service.engine.epoch, telemetry=telemetry, base=entry.base)


async def poll_orders(request: Request) -> Response:
    """`GET /v1/nodes/{node}/orders?wait_s=N`: open orders; waits up to N seconds for the first."""
    node = request_identity(request).name
    service = handler_context_of(request)
    wait_s = query_number(request, "wait_s", 0, 0, WAIT_MAX_S)
    known = frozenset(request.query_params.getlist("known"))
    with service.gate.polls.one(node) as seated:
        if not seated:
            raise Refusal(429, f"node {node} already has {service.gate.limits.polls_per_node} open polls", "", 1)
        found = await _wait_for_orders(service, node, known, wait_s, lambda: check_open_request(request))
    now = service.clock.monotonic()
    telemetry = service.telemetry.pending_request(node, now) if service.telemetry.untold(node, now) else None
    return json_response(OrdersReply(orders=found, telemetry=telemetry))


async def accept_order_update(request: Request) -> Response:
    """`POST /v1/nodes/{node}/orders/{id}`: the node's progress with an order."""
    node = request_identity(request).name
    service = handler_context_of(request)
    check_admission(service)
    update = await decode_request_body(request, OrderUpdate, UPDATE_BYTES_MAX)
    if update.id != request.path_params["order"]:
        raise Refusal(400, f"the path names order {request.path_params['order']}, the body {update.id}")
    await take_order_update(service, node, update)
    return Response(status_code=204)


async def take_order_update(service: HandlerContext, node: str, update: OrderUpdate) -> None:
    """Take a node's progress with an order; returns once it is durable.

    Raises:
        Refusal: it is not taken.
    """
    _check_update_bounds(update)
    await wait_until_durable(
        service, submit_input(service, OrderAnswered(at=service.clock.wall(), node=node, update=update))
    )


def _check_update_bounds(update: OrderUpdate) -> None:
    try:
        check_order_update(update)
    except WireError as error:
        raise Refusal(400, str(error), BOUNDS_TODO) from error


def _decode_report(body: bytes, node: str) -> Report:
    try:
        message = decode_report(body)
    except WireError as error:
        raise Refusal(400, _describe_report_error(error, body), BOUNDS_TODO, finding=error.finding) from error
    if message.version > WIRE_VERSION:
        raise Refusal(
            400,
            f"the report has version {message.version}, this controller supports up to {WIRE_VERSION}",
            "upgrade the controller first",
        )
    findings = [change.finding for change in message.changes] + list(message.active)
    stranger = next((f.node for f in findings if f.node != node), message.node)
    if stranger != node:
        raise Refusal(403, f"node {node} may not report on node {stranger}")
    if (
        len(message.changes) > CHANGES_PER_REPORT_MAX
        or len(message.active) > ACTIVE_MAX
        or len(message.ranks) > RANKS_MAX
    ):
        most = f"{CHANGES_PER_REPORT_MAX} changes, {ACTIVE_MAX} active findings and {RANKS_MAX} ranks"
        raise Refusal(413, f"a report holds at most {most}")
    return message


def _describe_report_error(error: WireError, body: bytes) -> str:
    """Add what the node sent, if one field of the report itself is wrong."""
    place = re.search(r" - at `\$\.(\w+)`$", str(error))
    if error.finding or place is None:
        return str(error)
    try:
        sent = decode_message(body, dict[str, msgspec.Raw]).get(place[1])
    except WireError:  # behind the field it is not even JSON
        return str(error)
    if sent is None:  # a field of a finding without an id
        return str(error)
    return f"{error}; the node sent {bytes(sent)[:SENT_CHARS].decode(errors='replace')}"


def _limit_node_rate(service: HandlerContext, node: str) -> None:
    """Limit a node's news, so that one node's flood does not delay others.

    Raises:
        Refusal: 429, it exceeds its share; the node keeps its news and retries.
    """
    if (wait_s := service.gate.news.retry_after_s(node)) > 0:
        most = service.gate.limits.news_per_s
        words = f"node {node} reports more than {most:g} changes per second; nothing was accepted"
        raise Refusal(429, words, "retry later", math.ceil(wait_s))


def _charge_report_weight(service: HandlerContext, message: Report, asserted: frozenset[str], *, moved: bool) -> None:
    """Charge a report's weight; one that only repeats known facts is free."""
    weight = len(message.changes) + service.report_registry.news_in(message.node, asserted)
    weight += (
        len(message.active) + len(message.ranks) + len(message.swaps)
    ) // REPEATED_PER_PIECE + PLACEMENT_WEIGHS * moved
    if weight:
        service.gate.news.charge(message.node, weight)


def _submit_report_changes(
    service: HandlerContext, message: Report, before: ReportEntry | None, entry: ReportEntry
) -> Future[None] | None:
    """Submit the news of a report. Most reports have none and cost no write."""
    now = service.clock.wall()
    current = entry is not before
    asserted = frozenset(f.id for f in message.active)
    moved = current and (before is None or before.jobs != entry.jobs)
    _charge_report_weight(service, message, asserted, moved=moved)
    if moved:
        worlds = tuple(share.world for share in entry.shares)
        submit_input(service, PlacementChanged(at=now, node=message.node, jobs=entry.jobs, worlds=worlds))
    if current and (before is None or _inventory_input(before, now) != _inventory_input(entry, now)):
        submit_input(service, _inventory_input(entry, now))
    if not message.changes and (not current or service.report_registry.knows(message.node, asserted)):
        return None
    active: tuple[Finding, ...] | None = message.active if current else None
    changes = tuple(change.finding for change in message.changes)
    news = FindingsReported(at=now, node=message.node, boot_id=message.boot_id, changes=changes, active=active)
    written = submit_input(service, news)
    if current:
        written.add_done_callback(lambda _: service.report_registry.mark_applied(message.node, asserted))
    return written


def _inventory_input(entry: ReportEntry, now: float) -> InventoryChanged:
    """Build the inventory input: a node's hardware and software, as decisions need it."""
    driver, image = entry.versions.driver, entry.versions.image
    return InventoryChanged(at=now, node=entry.node, products=entry.products, driver=driver, image=image)


async def _wait_for_orders(
    service: HandlerContext, node: str, known: frozenset[str], wait_s: float, welcome: Callable[[], None] = lambda: None
) -> tuple[Order, ...]:
    """Return the open orders once one is new to the node, or a telemetry request is.

    Raises:
        Refusal: as `wait_to_hand_out`.
    """

    def look() -> tuple[tuple[Order, ...], bool]:
        found = service.engine.snapshot.orders_for(node, service.clock.wall(), known)
        news = any(order.id not in known for order in found)
        return found, news or service.telemetry.untold(node, service.clock.monotonic())

    return await wait_to_hand_out(service, node, look, wait_s, welcome)


async def wait_to_hand_out(
    service: HandlerContext,
    node: str,
    look: Callable[[], tuple[T, bool]],
    wait_s: float,
    welcome: Callable[[], None],
) -> T:
    """Return what `look` finds, once it says that this is news; `node` empty: of any node.

    Handing out an order is an outside effect, so it requires a confirmed lease.

    Raises:
        Refusal: 503, the lease is in doubt; and what `welcome` raises, which runs at every wake-up.
    """
    deadline = service.clock.monotonic() + max(wait_s, LEASE_S)
    asked_until = service.clock.monotonic() + wait_s
    with service.wakeups.subscription(node) as woken:
        while True:
            found, news = look()
            now = service.clock.monotonic()
            over = news or now >= asked_until or service.wakeups.ended
            if over and service.engine.may_act():
                return found
            if now >= deadline or service.wakeups.ended:
                raise Refusal(
                    503, f"leadership is not confirmed: {service.engine.trouble or 'a new epoch begins'}", "", 1
                )
            pause = LEASE_S / 10 if over else asked_until - now
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(woken.wait(), pause)
            woken.clear()
            welcome()
