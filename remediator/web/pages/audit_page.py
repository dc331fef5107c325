"""`/audit`: the audit log, newest first, updated live; the filter is in the query string."""

from __future__ import annotations

from datetime import datetime, timezone
from urllib.parse import urlencode

from starlette.responses import Response

from remediator.api.handler_context import Refusal
from remediator.model.views_audit import AuditView
from remediator.web.page_request import PageRequest

ON_A_PAGE = 100
WORDS = ("node", "incident", "kind", "actor")
TIMES = ("since", "until")


async def show_audit_page(visit: PageRequest) -> Response:
    """The page."""
    words = {name: word for name in WORDS if (word := visit.query(name).strip())}
    times = {name: word for name in TIMES if (word := visit.query(name).strip())}
    before = visit.query("before")
    if before and not (before.isascii() and before.isdecimal() and len(before) <= 15):
        raise Refusal(400, f"{before[:20]!r} is not a line number", "start with the newest line: /audit")
    asked: dict[str, str | float] = {name: parse_browser_time(word) for name, word in times.items()}
    asked |= words | ({"before": before} if before else {})
    told = await visit.ask("/v1/audit", AuditView, limit=ON_A_PAGE, **asked)
    return await visit.page(
        "audit.html.j2",
        title="Audit log",
        told=told,
        said=dict.fromkeys((*WORDS, *TIMES), "") | words | times,
        filtered=bool(words or times),
        before=before,
        newest="/audit?" + urlencode(words | times),
        older="/audit?" + urlencode(words | times | {"before": str(told.looked_to)}),
    )


def parse_browser_time(text: str) -> float:
    """Parse a date or time as browsers write it; UTC seconds.

    Raises:
        Refusal: 400, the text is not a time.

    >>> [parse_browser_time(t) for t in ("1970-01-02", "1970-01-01T00:01", "1970-01-01 00:01:05Z")]
    [86400.0, 60.0, 65.0]
    """
    try:
        said = datetime.fromisoformat(text.strip().removesuffix("Z"))
    except ValueError:
        raise Refusal(400, f"{text[:30]!r} is not a time", "write it as 2026-11-22 14:05, in UTC") from None
    return max(0.0, (said if said.tzinfo else said.replace(tzinfo=timezone.utc)).timestamp())
