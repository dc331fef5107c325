"""Search of the audit log, newest first, with filters. Clients that follow the log use events instead."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.handler_context import handler_context_of, json_response, query_number
from remediator.api.record_views import event_view
from remediator.model.views import MOMENT_MAX
from remediator.model.views_audit import AuditView
from remediator.store.audit_search import AuditQuery, AuditSearch

LISTED, LISTED_MAX = 200, 1000
SEQ_MAX = 2**53
WORD_CHARS_MAX = 255


async def search_audit_log(request: Request) -> Response:
    """`GET /v1/audit?node=&incident=&kind=&actor=&since=T&until=T&before=SEQ&limit=N`."""
    service, query = handler_context_of(request), request.query_params
    limit = int(query_number(request, "limit", LISTED, 1, LISTED_MAX))
    words = {name: query.get(name, "")[:WORD_CHARS_MAX] for name in ("node", "incident", "kind", "actor")}
    wanted = AuditQuery(
        **words,
        before=int(query_number(request, "before", 0, 0, SEQ_MAX)),
        since=query_number(request, "since", 0, 0, MOMENT_MAX),
        until=query_number(request, "until", 0, 0, MOMENT_MAX),
    )

    def found() -> Response:
        told = AuditSearch(service.journal.engine).find(wanted, limit)
        events = tuple(event_view(seq, event) for seq, event in told.events)
        return json_response(AuditView(service.clock.wall(), events, told.looked_to, told.head, told.seal))

    return await asyncio.to_thread(found)
