"""The stream that open pages follow."""

from __future__ import annotations

from starlette.responses import Response

from remediator.api import stream
from remediator.web.visit import Visit


async def follow(visit: Visit) -> Response:
    """`GET /live`: the audit log as it grows, for whom a session or the proxy names, as long as that holds."""
    return await stream.stream(visit.request)
