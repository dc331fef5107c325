"""What a node says of an order is kept within bounds, however often it says more."""

from __future__ import annotations

import msgspec
import pytest

from remediator import pipeline
from remediator.api.record_views import action_view
from remediator.decisions.mode_stop import StopEffect, stop_effect
from remediator.model.pipeline_inputs import OrderAnswered
from tests.timelines.timeline import Story
from vocabulary.finding import Severity
from vocabulary.order import OrderState, OrderUpdate


def test_what_a_node_says_of_an_order_is_kept_within_bounds() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    action = story.open_actions("reset_gpu")[0]
    for k in range(30):
        data: dict[str, str | int | float | bool] = {f"k{k}_{j}": "v" * 900 for j in range(60)}
        update = OrderUpdate(id=action.id, state=OrderState.RUNNING, at=story.now, detail="x", data=data | {"last": k})
        story.submit(OrderAnswered(at=story.now, node="n1", update=update))
    kept = story.state.actions[action.id].data
    assert kept["last"] == 29
    assert set(data) <= set(kept), "the newest word is whole"
    assert len(kept) <= pipeline.DATA_KEYS_MAX
    assert len(msgspec.json.encode(kept)) <= 2 * pipeline.DATA_CHARS_MAX


def test_the_log_says_that_the_node_spoke() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    action = story.open_actions("reset_gpu")[0]
    for said in (OrderState.RUNNING, OrderState.FAILED):
        update = OrderUpdate(id=action.id, state=said, at=story.now, detail="because")
        story.submit(OrderAnswered(at=story.now, node="n1", update=update))
    spoken = {event.kind: event.actor for event in story.audit if event.data.get("action") == action.id}
    assert (spoken["order_progress"], spoken["action_ended"]) == ("n1", "n1")
    assert spoken["action_planned"] == "remediator"


@pytest.mark.parametrize("ended", [OrderState.SUCCEEDED, OrderState.FAILED])
def test_what_a_node_carries_out_is_running_since_it_first_said_so(ended: OrderState) -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    action = story.open_actions("reset_gpu")[0]

    def shown(said: OrderState) -> tuple[str, float | None]:
        update = OrderUpdate(id=action.id, state=said, at=0.0)
        story.after(5).submit(OrderAnswered(at=story.now, node="n1", update=update))
        view = action_view(story.state.actions[action.id])
        return view.state, view.began_at

    assert shown(OrderState.RECEIVED) == ("planned", None)
    assert stop_effect(story.state.actions[action.id]) is StopEffect.UNLESS_FETCHED
    began = story.now + 5
    assert shown(OrderState.RUNNING) == ("running", began)
    assert shown(OrderState.RUNNING) == ("running", began)
    assert stop_effect(story.state.actions[action.id]) is StopEffect.GOES_ON
    assert shown(ended) == (ended.value, began)
