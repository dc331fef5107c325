"""What operators do with nodes: keep us off, retire, and end both; cordon and uncordon by our hand. Inputs of the pipeline, all of them; saying it again changes nothing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access import address, who
from remediator.api.actions import WORDS_BYTES_MAX
from remediator.api.service import Refusal, admit, durable, message_of, service_of, submit
from remediator.engine import Snapshot
from remediator.model.inputs import ByHand, HandWord, NodeSaid, NodeWord
from remediator.model.rules import NodeState
from remediator.model.views import HoldWish, UncordonWish, Words
from vocabulary.order import OrderKind

_UNFIT_FOR_WORK = frozenset({OrderKind.RESET_GPU.value, OrderKind.REBOOT.value, OrderKind.RUN_PREFLIGHT.value})


async def hold(request: Request) -> Response:
    """`POST /v1/nodes/{node}/hold`: hands off; until it is released, or until then."""
    wish = await message_of(request, HoldWish, WORDS_BYTES_MAX)
    if wish.until is not None and wish.until <= service_of(request).clock.wall():
        raise Refusal(
            400, f"'until' is {wish.until:.0f}, and that is over", "give UTC seconds that are to come, or none"
        )
    record = service_of(request).engine.snapshot.nodes.get(request.path_params["node"])
    if record is not None and record.state is NodeState.RETIRED:
        raise Refusal(409, f"node {record.node} is retired", "nothing is done with it; 'unretire' takes it back")
    return await _say(request, NodeWord.HOLD, _reason(wish.text), wish.until)


async def release(request: Request) -> Response:
    """`POST /v1/nodes/{node}/release`: it is in our care again."""
    words = await message_of(request, Words, WORDS_BYTES_MAX)
    return await _say(request, NodeWord.RELEASE, words.text)


async def retire(request: Request) -> Response:
    """`POST /v1/nodes/{node}/retire`: it is no part of the cluster any more."""
    words = await message_of(request, Words, WORDS_BYTES_MAX)
    return await _say(request, NodeWord.RETIRE, _reason(words.text))


async def unretire(request: Request) -> Response:
    """`POST /v1/nodes/{node}/unretire`: it is one again, on probation."""
    words = await message_of(request, Words, WORDS_BYTES_MAX)
    return await _say(request, NodeWord.UNRETIRE, words.text)


async def cordon(request: Request) -> Response:
    """`POST /v1/nodes/{node}/cordon`: out of the scheduler's service, in the caller's name; only people lift it."""
    words = await message_of(request, Words, WORDS_BYTES_MAX)
    return await _by_hand(request, HandWord.CORDON, _reason(words.text))


async def uncordon(request: Request) -> Response:
    """`POST /v1/nodes/{node}/uncordon`: into the scheduler's service, whoever holds it, as the caller's own deed."""
    wish = await message_of(request, UncordonWish, WORDS_BYTES_MAX)
    service, node = service_of(request), request.path_params["node"]
    running = at_work(service.engine.snapshot, node, service.clock.wall())
    if running and not wish.force:
        todo = "wait for the end (its page says it), or let work come all the same: --force, or the tick on the page"
        raise Refusal(409, "; ".join(running), todo)
    return await _by_hand(request, HandWord.UNCORDON, wish.text)


def at_work(snapshot: Snapshot, node: str, now: float) -> list[str]:
    """What of ours may run on a node now that no job may meet, in words. What was withdrawn and fetched before may run on."""
    planned = [a for a in snapshot.ordered.get(node, ()) if a.verb in _UNFIT_FOR_WORK and now < a.deadline]
    given_up = [a for a in snapshot.unheard.values() if a.node == node and a.order and a.verb in _UNFIT_FOR_WORK]
    found = [f"{a.verb} is ordered on {node}" + (f" ({a.detail})" if a.detail else "") for a in planned]
    withdrawn = f"was ordered on {node} and withdrawn, and {node} has not said how it ended"
    return found + [f"{a.verb} {withdrawn}" for a in given_up if now < a.deadline]


async def _by_hand(request: Request, word: HandWord, text: str) -> Response:
    service, node = service_of(request), request.path_params["node"]
    record, hold = service.engine.snapshot.nodes.get(node), service.engine.snapshot.holds.get(node)
    if record is None:
        raise Refusal(404, f"no node {node} has ever reported", "see 'healthctl nodes list'")
    if record.state is NodeState.RETIRED:
        raise Refusal(409, f"node {node} is retired", "nothing is done with it; 'unretire' takes it back")
    if hold is not None and not hold.known:
        raise Refusal(409, f"the scheduler has no node {node}: {hold.reason}", "there is nothing to hold or lift there")
    admit(service)
    item = ByHand(
        at=service.clock.wall(), node=node, word=word, actor=who(request).name, address=address(request), text=text
    )
    await durable(service, submit(service, item))
    return Response(status_code=204)


def _reason(text: str) -> str:
    if not text.strip():
        raise Refusal(400, "the reason is empty", 'send {"text": …}: others will want to know')
    return text


async def _say(request: Request, word: NodeWord, text: str, until: float | None = None) -> Response:
    service, node = service_of(request), request.path_params["node"]
    if node not in service.engine.snapshot.nodes:
        raise Refusal(404, f"no node {node} has ever reported", "see 'healthctl nodes list'")
    admit(service)
    item = NodeSaid(
        at=service.clock.wall(),
        node=node,
        word=word,
        actor=who(request).name,
        address=address(request),
        text=text,
        until=until,
    )
    await durable(service, submit(service, item))
    return Response(status_code=204)
