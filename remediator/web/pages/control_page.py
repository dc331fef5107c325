"""`/control`: how far automation may go and who said so, the breaker and its limits; here it is stopped, and let go again."""

from __future__ import annotations

from typing import Literal, cast, get_args

from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.decisions.mode_stop import StopEffect
from remediator.model.plan_steps import ONLY_TELLING
from remediator.model.views import Words
from remediator.model.views_actions import ActionList, BreakerView, ModeWish
from remediator.web.page_request import PageRequest

_Word = Literal["observe", "recommend", "approve", "act", ""]
MODES = {
    "act": "The system does by itself what the playbooks say, within guards and budgets.",
    "approve": "Each new plan waits for a person's word. Plans under way go on.",
    "recommend": "It shows what it would do and plans nothing that changes nodes or jobs; people are told. Set by a person, it also keeps "
    "what is planned and not begun from beginning, except tests, giving nodes back and what a job's ranks are told together.",
    "observe": "It writes down what it would do and plans nothing, not even telling people. Set by a person, it also keeps what is "
    "planned and not begun from beginning, except tests, giving nodes back, telling people, and what a job's ranks are told together.",
}
ACTIONS_MAX = 1000
SHOWN = 20
_TELLS = frozenset(verb.value for verb in ONLY_TELLING)


async def show_control_page(visit: PageRequest) -> Response:
    """The page."""
    breaker = await visit.ask("/v1/breaker", BreakerView)
    planned = (await visit.ask("/v1/actions", ActionList, state="open", limit=ACTIONS_MAX)).actions
    changing = [action for action in planned if action.verb not in _TELLS]
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
    """`POST /control/mode`: another mode, or what the configuration says."""
    mode = visit.form.get("mode", "")
    if mode not in get_args(_Word):
        raise HTTPException(400, "there is no such mode")
    await visit.tell("/v1/mode", ModeWish(cast("_Word", mode), visit.form.get("text", "").strip()))
    return visit.go("/control", "mode")


async def submit_breaker_reset(visit: PageRequest) -> Response:
    """`POST /control/breaker`: nodes may be isolated again."""
    await visit.tell("/v1/breaker/reset", Words(visit.form.get("text", "").strip()))
    return visit.go("/control", "breaker")
