"""The audit log asked backwards, with filters: what people page through. What follows it as it grows asks for events."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.render import event_view
from remediator.api.service import number, reply, service_of
from remediator.model.views import MOMENT_MAX
from remediator.model.views_audit import AuditView
from remediator.store.audit_search import AuditSearch, Wanted

LISTED, LISTED_MAX = 200, 1000
SEQ_MAX = 2**53
WORD_CHARS_MAX = 255


async def search(request: Request) -> Response:
    """`GET /v1/audit?node=&incident=&kind=&actor=&since=T&until=T&before=SEQ&limit=N`."""
    service, query = service_of(request), request.query_params
    limit = int(number(request, "limit", LISTED, 1, LISTED_MAX))
    words = {name: query.get(name, "")[:WORD_CHARS_MAX] for name in ("node", "incident", "kind", "actor")}
    wanted = Wanted(
        **words,
        before=int(number(request, "before", 0, 0, SEQ_MAX)),
        since=number(request, "since", 0, 0, MOMENT_MAX),
        until=number(request, "until", 0, 0, MOMENT_MAX),
    )

    def found() -> Response:
        told = AuditSearch(service.journal.engine).find(wanted, limit)
        events = tuple(event_view(seq, event) for seq, event in told.events)
        return reply(AuditView(service.clock.wall(), events, told.looked_to, told.head, told.seal))

    return await asyncio.to_thread(found)
