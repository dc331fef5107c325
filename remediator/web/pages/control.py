"""`/control`: how far automation may go and who said so, the breaker and its limits; here it is stopped, and let go again."""

from __future__ import annotations

from typing import Literal, cast, get_args

from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.model.views import Words
from remediator.model.views_work import BreakerView, ModeWish
from remediator.web.visit import Visit

_Word = Literal["observe", "recommend", "approve", "act", ""]
MODES = {
    "act": "The system does by itself what the playbooks say, within guards and budgets.",
    "approve": "Each new plan waits for a person's word. Plans under way go on.",
    "recommend": "It shows what it would do and does nothing to nodes or jobs; people are told. Set by a person, it also keeps "
    "further steps of plans under way from beginning, except tests and giving nodes back.",
    "observe": "It writes down what it would do, and starts nothing new, not even telling people. Set by a person, it also keeps "
    "further steps of plans under way from beginning, except tests, giving nodes back and telling people.",
}


async def show(visit: Visit) -> Response:
    """The page."""
    breaker = await visit.ask("/v1/breaker", BreakerView)
    return await visit.page(
        "control.html.j2",
        title="Mode and breaker",
        breaker=breaker,
        modes=MODES,
        configured=visit.service.engine.settings.mode.value,
    )


async def set_mode(visit: Visit) -> Response:
    """`POST /control/mode`: another mode, or what the configuration says."""
    mode = visit.form.get("mode", "")
    if mode not in get_args(_Word):
        raise HTTPException(400, "there is no such mode")
    await visit.tell("/v1/mode", ModeWish(cast("_Word", mode), visit.form.get("text", "").strip()))
    return visit.go("/control", "mode")


async def reset_breaker(visit: Visit) -> Response:
    """`POST /control/breaker`: nodes may be isolated again."""
    await visit.tell("/v1/breaker/reset", Words(visit.form.get("text", "").strip()))
    return visit.go("/control", "breaker")
