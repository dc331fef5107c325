"""`/alerts`: notifications that were sent, are due or failed, and the silences."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.api.handler_context import Refusal
from remediator.model.views import CommandText
from remediator.model.views_alerts import (
    AlertList,
    AlertTest,
    AlertTested,
    AlertView,
    SilenceList,
    SilenceRequest,
)
from remediator.web.page_request import PageRequest

SHOWN = 200
HOUR_S = 3600.0
HOURS = (1, 2, 4, 8, 24, 72, 168)
STATES = ("waiting", "silenced", "sent", "abandoned")
_FIRST = {"abandoned": 0, "waiting": 2, "silenced": 3}
_FAILED, _LAST = 1, 4


async def show_alerts_page(visit: PageRequest) -> Response:
    """The page."""
    return await _render_alerts_page(visit)


async def submit_silence(visit: PageRequest) -> Response:
    """`POST /alerts/silences`: create a silence."""
    hours = visit.form.get("hours", "")
    if hours not in {str(each) for each in HOURS}:
        raise Refusal(400, f"{hours[:20]!r} is not an offered duration", "choose one from the list")
    text = visit.form.get("text", "").strip()
    if not text:
        return await _render_alerts_page(visit, "Enter a reason.", 400)
    match, kinds = visit.form.get("match", "").strip() or "*", visit.form.get("kinds", "").strip() or "*"
    try:
        await visit.submit("/v1/alerts/silences", SilenceRequest(visit.now + int(hours) * HOUR_S, text, match, kinds))
    except Refusal as refusal:
        return await _render_alerts_page(visit, refusal.problem.error, refusal.status)
    return visit.go("/alerts", "silence")


async def submit_silence_end(visit: PageRequest) -> Response:
    """`POST /alerts/silences/end`: end a silence."""
    name = visit.form.get("silence", "")
    if not visit.knows("POST", f"/v1/alerts/silences/{name}/end"):
        raise HTTPException(404, "there is no such silence")
    await visit.submit(f"/v1/alerts/silences/{name}/end", CommandText())
    return visit.go("/alerts", "silence-end")


async def submit_test_alert(visit: PageRequest) -> Response:
    """`POST /alerts/test`: send a test message to one receiver."""
    try:
        answer = await visit.submit("/v1/alerts/test", AlertTest(visit.form.get("receiver", "")[:255] or "?"))
    except Refusal as refusal:
        words = f"{refusal.problem.error}; {refusal.problem.todo}" if refusal.problem.todo else refusal.problem.error
        return await _render_alerts_page(visit, words, refusal.status)
    tried = msgspec.json.decode(answer.body, type=AlertTested)
    return await _render_alerts_page(visit, tried=tried)


async def _render_alerts_page(
    visit: PageRequest, wrong: str = "", code: int = 200, tried: AlertTested | None = None
) -> Response:
    state, match = visit.query("state"), visit.query("match").strip()
    state = state if state in STATES else ""
    newest = (await visit.ask("/v1/alerts", AlertList, limit=SHOWN)).alerts
    found = [alert for alert in newest if state in {"", alert.state} and _alert_fits(alert, match)]
    return await visit.page(
        "alerts.html.j2",
        title="Alerts",
        status=code,
        alerts=sorted(found, key=lambda alert: (_alert_urgency(alert), -alert.at)),
        total=len(newest),
        full=len(newest) == SHOWN,
        silences=(await visit.ask("/v1/alerts/silences", SilenceList)).silences,
        receivers=visit.service.config.alerts.everyone,
        state=state,
        match=match,
        states=STATES,
        hours=HOURS,
        wrong=wrong,
        tried=tried,
        said=visit.form,
    )


def _alert_urgency(alert: AlertView) -> int:
    failed = alert.state == "waiting" and alert.attempts and alert.error
    return _FAILED if failed else _FIRST.get(alert.state, _LAST)


def _alert_fits(alert: AlertView, match: str) -> bool:
    return any(match in text for text in (alert.node, alert.title, alert.receiver, alert.incident))
