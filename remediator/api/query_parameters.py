"""Query parameters and headers that several routes share."""

from __future__ import annotations

from remediator.api.endpoint import Query

WAIT = Query("wait_s", "number", "wait up to this many seconds for changes")
LIMIT = Query("limit", "integer", "at most this many")
AFTER = Query("after", "integer", "number of the last known event")
IF_MATCH = Query("If-Match", "string", "the incident's ETag: only if it is unchanged")
KEY = Query("Idempotency-Key", "string", "identifies this request for safe retries")
SINCE = Query("since", "number", "only events since this time, UTC seconds")
RESUME = Query("Last-Event-ID", "string", "continue after this event")
