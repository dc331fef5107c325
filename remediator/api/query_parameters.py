"""Query parameters and headers that several routes share."""

from __future__ import annotations

from remediator.api.endpoint import Query

WAIT = Query("wait_s", "number", "wait up to so many seconds for something new")
LIMIT = Query("limit", "integer", "so many at most")
AFTER = Query("after", "integer", "number of the last event that is known")
IF_MATCH = Query("If-Match", "string", "the incident's ETag: only if it is still so")
KEY = Query("Idempotency-Key", "string", "names this request, so that it can be repeated")
SINCE = Query("since", "number", "only from then on, UTC seconds")
RESUME = Query("Last-Event-ID", "string", "go on after this event")
