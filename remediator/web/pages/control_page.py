"""`/control`: the mode and who set it, the breaker and its limits; operators stop and resume automation here."""

from __future__ import annotations

from typing import Literal, cast, get_args

from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.decisions.mode_stop import StopEffect
from remediator.model.plan_steps import NON_DISRUPTIVE
from remediator.model.views import CommandText
from remediator.model.views_actions import ActionList, BreakerView, ModeRequest
from remediator.web.page_request import PageRequest

_Word = Literal["observe", "recommend", "approve", "act", ""]
MODES = {
    "act": "Carries out the playbooks by itself, within guards and budgets.",
    "approve": "Each new plan needs an operator's approval. Plans under way continue.",
    "recommend": "Shows plans but does not change nodes or jobs; still sends notifications. If an operator sets it, planned actions "
    "do not start either, except tests, returning nodes to service, and orders that all ranks of a job carry out together.",
    "observe": "Records decisions, does nothing, and sends no notifications. If an operator sets it, planned actions do not start "
    "either, except tests, returning nodes to service, notifications, and orders that all ranks of a job carry out together.",
}
ACTIONS_MAX = 1000
SHOWN = 20


async def show_control_page(visit: PageRequest) -> Response:
    """The page."""
    breaker = await visit.ask("/v1/breaker", BreakerView)
    planned = (await visit.ask("/v1/actions", ActionList, state="open", limit=ACTIONS_MAX)).actions
    changing = [action for action in planned if action.verb not in NON_DISRUPTIVE]
    going_on = [action for action in changing if action.on_stop != StopEffect.WAITS.value]
    return await visit.page(
        "control.html.j2",
        title="Mode and breaker",
        breaker=breaker,
        modes=MODES,
        going_on=going_on[:SHOWN],
        going_on_more=max(0, len(going_on) - SHOWN),
        waiting=len(changing) - len(going_on),
        configured=visit.service.engine.settings.mode.value,
    )


async def submit_mode(visit: PageRequest) -> Response:
    """`POST /control/mode`: set a mode, or return to the configured one."""
    mode = visit.form.get("mode", "")
    if mode not in get_args(_Word):
        raise HTTPException(400, "there is no such mode")
    await visit.submit("/v1/mode", ModeRequest(cast("_Word", mode), visit.form.get("text", "").strip()))
    return visit.go("/control", "mode")


async def submit_breaker_reset(visit: PageRequest) -> Response:
    """`POST /control/breaker`: reset the breaker."""
    await visit.submit("/v1/breaker/reset", CommandText(visit.form.get("text", "").strip()))
    return visit.go("/control", "breaker")
