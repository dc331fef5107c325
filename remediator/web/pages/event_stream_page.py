"""`/live`: the event stream that open pages follow."""

from __future__ import annotations

from starlette.responses import Response

from remediator.api import event_stream
from remediator.web.page_request import PageRequest


async def follow_event_stream(visit: PageRequest) -> Response:
    """`GET /live`: stream the audit log as long as the user's login is valid."""
    return await event_stream.stream_events(visit.request)
