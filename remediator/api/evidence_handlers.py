"""Evidence: nodes upload requested bundles, operators read them. Nothing of it passes through the decision thread."""

from __future__ import annotations

import asyncio
import gzip
import zlib

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import request_identity
from remediator.api.handler_context import Refusal, handler_context_of, json_response, read_request_body
from remediator.model.views_evidence import EvidenceEntry, EvidenceList
from remediator.store.evidence_store import EvidenceStore
from vocabulary.messages.evidence_bundle import BUNDLE_BYTES_MAX, EVIDENCE_VERSION, EvidenceBundle
from vocabulary.messages.wire import WireError, decode_message
from vocabulary.order import OrderKind

GZIP_BYTES_MAX = BUNDLE_BYTES_MAX
AT_ONCE = 2  # bundles checked and written at a time: after a fabric fault every node of a job sends one


async def store_evidence_bundle(request: Request) -> Response:
    """`POST /v1/nodes/{node}/evidence/{order}`, gzipped: acknowledged once durable; the first for an order stays."""
    node = request_identity(request).name
    order = request.path_params["order"]
    content = await read_request_body(request, GZIP_BYTES_MAX)
    async with request.app.state.evidence_turns:
        await asyncio.to_thread(_check_and_store_bundle, request, node, order, content)
    return Response(status_code=204)


async def show_evidence(request: Request) -> Response:
    """`GET /v1/incidents/{id}/evidence`: the list of bundles; with `order=ID`, that bundle."""
    store = evidence_store_of(request)
    incident, order = request.path_params["incident"], request.query_params.get("order")
    if order is None:
        return json_response(EvidenceList(tuple(await asyncio.to_thread(store.of_incident, incident))))
    content = await asyncio.to_thread(store.content, incident, order)
    if content is None:
        raise Refusal(404, f"incident {incident} has no evidence for order {order}", "list it without 'order'")
    return Response(await asyncio.to_thread(gzip.decompress, content), media_type="application/json")


def evidence_store_of(request: Request) -> EvidenceStore:
    """Return the store of this cluster's bundles."""
    return EvidenceStore(handler_context_of(request).journal.engine)


def decompress_bounded(content: bytes, bytes_max: int) -> bytes:
    """Decompress one whole gzip member of at most `bytes_max`; never produces more.

    Raises:
        Refusal: 400, it is no gzip, damaged, or has data after it; 413, it would be longer.
    """
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        whole = stream.decompress(content, bytes_max + 1)
    except zlib.error as error:
        raise Refusal(400, f"the body is not gzip: {error}") from error
    if len(whole) > bytes_max:
        raise Refusal(413, f"the bundle is longer than {bytes_max} bytes")
    if not stream.eof or stream.unused_data:
        raise Refusal(400, "the body is not exactly one complete gzip stream")
    return whole


def _check_and_store_bundle(request: Request, node: str, order: str, content: bytes) -> None:
    """Check and store a bundle.

    Raises:
        Refusal: 400, 403, 404, 413: it was not requested; 503: it cannot be stored now.
    """
    store, now = evidence_store_of(request), handler_context_of(request).clock.wall()
    try:
        action = store.ordered_by(order)
        if action is None or action.order is None or action.node != node:
            raise Refusal(404, f"node {node} has no order {order}")
        if action.order.kind is not OrderKind.COLLECT_EVIDENCE:
            raise Refusal(400, f"order {order} does not request evidence")
        _check_bundle(decompress_bounded(content, BUNDLE_BYTES_MAX), node, order)
        store.keep(EvidenceEntry(order, action.incident, node, now, len(content)), content)
    except SQLAlchemyError as error:
        why = getattr(error, "orig", None) or type(error).__name__  # the error's own text holds the whole bundle
        raise Refusal(503, f"the evidence cannot be stored now: {why}", "retry later") from error


def _check_bundle(bundle_json: bytes, node: str, order: str) -> None:
    try:
        bundle = decode_message(bundle_json, EvidenceBundle)
    except WireError as error:
        raise Refusal(400, str(error), "upgrade the older one of node and controller") from error
    if bundle.version > EVIDENCE_VERSION:
        raise Refusal(400, f"the bundle has version {bundle.version}, this controller reads up to {EVIDENCE_VERSION}")
    if (bundle.node, bundle.order) != (node, order):
        raise Refusal(403, f"the bundle is from node {bundle.node}, for order {bundle.order}")
