"""What people have the controller do with their hand: cordon, uncordon, cancel; and the mode and silences by their word."""

from __future__ import annotations

from typing import Any

import pytest

from remediator.model.journal_records import Action, ActionState, Answer, IncidentState
from remediator.model.override_records import MODE, AlertSilence, ModeOverride
from remediator.model.pipeline_inputs import (
    ActionCancelled,
    ActionEnded,
    AlertsSilenced,
    AnyInput,
    HoldsObserved,
    ManualCordon,
    ManualCordonKind,
    ModeSet,
    NodeCommand,
    NodeCommandKind,
    OrderAnswered,
    SilenceEnded,
)
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.overrides.cluster_overrides import find_matching_silence, list_open_silences
from remediator.overrides.manual_cordon import CORDON, TRIED_S, UNCORDON
from remediator.pipeline import apply_input
from remediator.replay.journal_replay import replay_decisions
from remediator.state.cluster_state import ClusterState
from remediator.store.journal import Journal
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity
from vocabulary.order import OrderKind, OrderState, OrderUpdate

OURS, THEIRS = "gpu-healthd: inc-1 gpu-lost", "by ann: a fan is changed"


def by_hand(
    story: Story, word: ManualCordonKind, actor: str = "ann", text: str = "a fan is changed", node: str = "n1"
) -> None:
    story.submit(ManualCordon(at=story.now, node=node, word=word, actor=actor, text=text, address="192.0.2.7"))


def shows(story: Story, owner: HoldOwner, reason: str = "", node: str = "n1") -> None:
    free = owner is HoldOwner.NOBODY
    hold = SchedulerNodeState(node=node, schedulable=free, drained=not free, owner=owner, reason=reason)
    story.submit(HoldsObserved(at=story.now, holds=(hold,)))


def isolated() -> Story:
    """n1 is out because of us, and its repair is about to begin."""
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1)
    shows(story, HoldOwner.US, OURS)
    assert story.open_actions("reset_gpu")
    return story


def set_mode(story: Story, mode: Mode | None, actor: str = "ann") -> None:
    story.submit(ModeSet(at=story.now, mode=mode, actor=actor, text="3 a.m."))


def test_a_persons_cordon_is_written_down_first_and_is_an_operators_afterwards() -> None:
    story = Story()
    for _ in range(2):  # saying it again while it is being done changes nothing
        by_hand(story, ManualCordonKind.CORDON)
    (action,) = story.open_actions(CORDON)
    assert (action.incident, action.decision, action.data["reason"]) == ("", "", THEIRS)
    assert [(e.kind, e.actor) for e in story.audit[-2:]] == [("by_hand", "ann"), ("action_planned", "remediator")]
    story.scheduler_answers(CORDON)
    assert story.actions[action.id].state is ActionState.SUCCEEDED
    assert action.id not in story.state.actions
    story.after(1)
    shows(story, HoldOwner.OPERATOR, THEIRS)
    assert story.node_state() == "operator-held"
    assert not story.state.held, "it takes no place of ours"
    story.finding("xid/79", Severity.FATAL)
    story.after(3600)
    assert not story.open_actions("cordon")
    assert not story.open_actions("resume"), "never lifted by us"


def test_an_uncordon_lifts_ours_and_has_the_last_word_on_what_was_known() -> None:
    story = isolated()
    by_hand(story, ManualCordonKind.UNCORDON)
    assert story.node_state() == "operator-held"
    assert story.state.held == {"n1"}, "it is out until the scheduler says otherwise"
    assert not story.open_actions("reset_gpu")
    (action,) = story.open_actions(UNCORDON)
    assert action.data["seen"] == OURS
    story.after(1).scheduler_answers(UNCORDON)
    assert (story.node_state(), story.state.held) == ("probation", set())
    assert not story.state.incidents
    shows(story, HoldOwner.NOBODY)
    story.after(60)
    assert not story.open_actions("cordon")


@pytest.mark.parametrize("result", [ActionResult.REFUSED, ActionResult.UNKNOWN, None])
def test_an_uncordon_that_fails_leaves_our_hold_and_the_plan_with_us(result: ActionResult | None) -> None:
    story = isolated()
    by_hand(story, ManualCordonKind.UNCORDON)
    if result is None:
        story.after(TRIED_S)
    else:
        story.scheduler_answers(UNCORDON, result)
    assert story.state.held == {"n1"}
    assert story.node_state() != "operator-held"
    assert not story.open_actions(UNCORDON)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.state is IncidentState.ACTING, "what is still asserted is decided upon anew"


@pytest.mark.parametrize("closed", [True, False])
def test_how_a_withdrawn_order_ended_after_all_is_written_down_once(closed: bool) -> None:  # noqa: FBT001 - a table
    story = isolated()
    (order,) = story.open_actions("reset_gpu")
    by_hand(story, ManualCordonKind.UNCORDON)
    if closed:
        story.scheduler_answers(UNCORDON)
    assert (story.state.incident_of("n1") is None) is closed
    running = OrderUpdate(id=order.id, state=OrderState.RUNNING, at=story.now, detail="resetting")
    failed = OrderUpdate(id=order.id, state=OrderState.FAILED, at=story.now, detail="the driver hangs")
    for node, update in (("n2", failed), ("n1", running), ("n1", failed), ("n1", failed)):
        story.submit(OrderAnswered(at=story.now, node=node, update=update))
    (late,) = [e for e in story.audit if e.kind == "action_ended_late"]
    assert (late.actor, late.node, late.data["action"]) == ("n1", "n1", order.id)
    assert late.text.endswith("failed: the driver hangs")
    assert story.actions[order.id].state is ActionState.CANCELLED


def test_what_the_scheduler_did_after_all_is_written_down_and_what_nobody_planned_is_not() -> None:
    story = Story()
    by_hand(story, ManualCordonKind.CORDON)
    (action,) = story.open_actions(CORDON)
    by_hand(story, ManualCordonKind.UNCORDON)
    for name in (action.id, "of-nobody"):
        story.submit(ActionEnded(at=story.now, action=name, outcome=ActionOutcome(ActionResult.DONE, "held")))
    (late,) = [e for e in story.audit if e.kind == "action_ended_late"]
    assert late.data["action"] == action.id
    story.after(TRIED_S)  # the uncordon is given up as well
    assert len(story.state.unanswered_actions.actions) == 1
    story.after(2 * 86_400.0)
    assert not story.state.unanswered_actions.actions


@pytest.mark.parametrize("how", ["cancelled", "refused", "unknown", "unanswered", "done, and our hold still shown"])
def test_a_cordon_that_came_to_nothing_after_an_uncordon_leaves_our_hold_with_us(how: str) -> None:
    story = isolated()
    by_hand(story, ManualCordonKind.UNCORDON)
    by_hand(story, ManualCordonKind.CORDON, text="no, wait")
    (action,) = story.open_actions(CORDON)
    if how == "cancelled":
        story.submit(ActionCancelled(at=story.now, action=action.id, actor="ann"))
    elif how == "unanswered":
        story.after(TRIED_S)
    elif how.startswith("done"):
        story.scheduler_answers(CORDON)
        shows(story, HoldOwner.US, OURS)
        assert story.node_state() == "operator-held", "what was shown may be older than the answer"
        story.after(60)
    else:
        story.scheduler_answers(CORDON, ActionResult(how))
    assert (story.node_state(), story.state.held) != ("operator-held", {"n1"})
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.state is IncidentState.ACTING, "what is still asserted is decided upon anew"
    shows(story, HoldOwner.US, OURS)
    assert story.state.held == {"n1"}


@pytest.mark.parametrize("asked", list(ManualCordonKind))
@pytest.mark.parametrize("word", [NodeCommandKind.RETIRE, NodeCommandKind.HOLD])
def test_a_newer_word_about_the_node_ends_what_was_to_be_done_by_hand(
    asked: ManualCordonKind, word: NodeCommandKind
) -> None:
    story = isolated()
    by_hand(story, asked)
    story.submit(NodeCommand(at=story.now, node="n1", word=word, actor="kim", text="mine"))
    assert not story.open_actions(CORDON)
    assert not story.open_actions(UNCORDON)
    (ended,) = [a for a in story.actions.values() if a.verb in (CORDON, UNCORDON)]
    assert ended.state is ActionState.CANCELLED
    assert "kim" in ended.detail
    assert [e.kind for e in story.audit if e.data.get("action") == ended.id] == ["action_planned", "action_ended"]


def test_a_release_leaves_the_node_to_the_uncordon_under_way() -> None:
    story = isolated()
    story.submit(NodeCommand(at=story.now, node="n1", word=NodeCommandKind.HOLD, actor="ann", text="mine"))
    by_hand(story, ManualCordonKind.UNCORDON)
    story.submit(NodeCommand(at=story.now, node="n1", word=NodeCommandKind.RELEASE, actor="ann"))
    story.after(60)
    assert not story.open_actions("reset_gpu")
    story.scheduler_answers(UNCORDON)
    assert (story.node_state(), story.state.held) == ("probation", set())


def test_the_newer_word_overtakes_the_older() -> None:
    story = Story()
    by_hand(story, ManualCordonKind.CORDON)
    by_hand(story, ManualCordonKind.UNCORDON, actor="kim")
    assert not story.open_actions(CORDON)
    (action,) = story.open_actions(UNCORDON)
    assert "kim uncordons n1" in action.reason


def test_an_uncordon_said_again_counts_for_what_we_took_out_since() -> None:
    story = Story()
    by_hand(story, ManualCordonKind.UNCORDON)
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    shows(story, HoldOwner.US, OURS)
    by_hand(story, ManualCordonKind.UNCORDON)
    assert story.node_state() == "operator-held"
    assert not story.open_actions("reset_gpu")
    (action,) = story.open_actions(UNCORDON)
    assert action.data["seen"] == OURS


def test_a_retired_node_is_nobodys_to_cordon() -> None:
    story = Story()
    story.submit(NodeCommand(at=story.now, node="n1", word=NodeCommandKind.RETIRE, actor="ann"))
    by_hand(story, ManualCordonKind.CORDON)
    assert not story.open_actions(CORDON)


def test_a_cancelled_step_stops_the_plan_and_calls_people() -> None:
    story = isolated()
    (action,) = story.open_actions("reset_gpu")
    for _ in range(2):
        story.submit(ActionCancelled(at=story.now, action=action.id, actor="kim", text="not now"))
    assert story.actions[action.id].state is ActionState.CANCELLED
    (incident,) = story.state.incidents.values()
    assert incident.state is IncidentState.WAITING
    assert "cancelled by kim: not now" in incident.outcome
    story.after(4000)
    assert not story.open_actions("reset_gpu")
    assert not story.open_actions("reboot"), "what comes after a failure does not come after a person's word"
    assert story.state.held == {"n1"}
    assert story.kinds().count("action_cancelled") == 1


def test_a_cordon_is_no_deed_to_cancel() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    (action,) = story.open_actions("cordon")
    story.submit(ActionCancelled(at=story.now, action=action.id, actor="kim"))
    assert story.open_actions("cordon") == [action]


def test_a_cancelled_resume_keeps_our_hold() -> None:
    story = isolated()
    story.orders_end("reset_gpu")
    for finding in story.state.active_on("n1"):
        story.clear(finding)
    story.after(1).orders_end("run_preflight")
    (action,) = story.open_actions("resume")
    story.submit(ActionCancelled(at=story.now, action=action.id, actor="kim"))
    assert story.state.held == {"n1"}
    assert story.open_actions("cordon"), "nobody knows whether it was lifted, so it is asked for"


SILENCE = AlertSilence("sil-1", "n[12]", "fan/*", 0.0, 2_000_000_000.0, "ann", "we know")


def test_a_silence_ends_by_itself_and_by_word() -> None:
    story = Story()
    silence = AlertSilence("sil-1", "n1", "*", story.now, story.now + 60, "ann", "we know")
    for _ in range(2):
        story.submit(AlertsSilenced(at=story.now, silence=silence))
    assert list_open_silences(story.state.operator_overrides) == (silence,)
    story.after(59)
    assert list_open_silences(story.state.operator_overrides)
    story.after(1)
    assert not list_open_silences(story.state.operator_overrides)
    later = AlertSilence("sil-2", "n1", "*", story.now, story.now + 60, "ann", "we know")
    story.submit(AlertsSilenced(at=story.now, silence=later))
    for _ in range(2):
        story.submit(SilenceEnded(at=story.now, silence="sil-2", actor="kim"))
    assert not list_open_silences(story.state.operator_overrides)
    assert [e.actor for e in story.audit if e.kind == "silence_ended"] == ["remediator", "kim"]
    assert story.kinds().count("silenced") == 2


def test_a_silence_keeps_nothing_from_being_done() -> None:
    told, untold = Story(), Story()
    untold.submit(AlertsSilenced(at=untold.now, silence=SILENCE))
    for story in (told, untold):
        story.finding("xid/62", Severity.FATAL)
    assert list(told.decisions) == list(untold.decisions)
    assert told.actions == untold.actions


@pytest.mark.parametrize(
    ("node", "kinds", "quiet"),
    [
        ("n1", ("fan/slow",), True),
        ("n1", ("fan/slow", "fan/dead"), True),
        ("n1", ("fan/slow", "xid/79"), False),
        ("n3", ("fan/slow",), False),
        ("n1", (), False),
    ],
)
def test_whom_a_silence_fits(node: str, kinds: tuple[str, ...], quiet: bool) -> None:  # noqa: FBT001 - a table
    assert (find_matching_silence([SILENCE], node, kinds, 1.0) is not None) is quiet
    assert find_matching_silence([SILENCE], node, kinds, SILENCE.until) is None


def told() -> list[AnyInput]:
    story = Story(settings(mode=Mode.RECOMMEND), nodes=2)
    set_mode(story, Mode.ACT)
    by_hand(story, ManualCordonKind.CORDON, node="n2")
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.submit(AlertsSilenced(at=story.now, silence=SILENCE))
    story.after(1).scheduler_answers(CORDON, node="n2")
    shows(story, HoldOwner.US, OURS)
    by_hand(story, ManualCordonKind.UNCORDON)
    story.after(1)
    (action,) = story.open_actions(UNCORDON)
    story.submit(ActionEnded(at=story.now, action=action.id, outcome=ActionOutcome(ActionResult.DONE)))
    story.submit(SilenceEnded(at=story.now, silence=SILENCE.id, actor="kim"))
    return story.inputs


def whole(items: list[AnyInput]) -> tuple[ClusterState, dict[str, Action]]:
    state, actions, rules = ClusterState(), {}, settings(mode=Mode.RECOMMEND)
    for item in items:
        apply_input(state, item, rules)
        actions |= state.take_changes().actions
    return state, actions


TOLD = told()


FIRST_WORD = 3  # before it nodes join, and the scheduler says that they are in service


@pytest.mark.parametrize("survived", range(FIRST_WORD, len(TOLD)))
def test_killed_anywhere_people_s_words_stand_and_nothing_is_done_twice(database: str, survived: int) -> None:
    rules, expected = settings(mode=Mode.RECOMMEND), whole(TOLD)

    def run(journal: Journal, items: list[AnyInput]) -> ClusterState:
        epoch, state = journal.lead(), journal.load()
        for item in items:
            apply_input(state, item, rules)
            journal.commit([item], state.take_changes(), epoch)
        journal.close()
        return state

    run(Journal(database), TOLD[:survived])
    state = run(Journal(database), TOLD[survived - 1 :])
    assert state.operator_overrides == expected[0].operator_overrides
    assert isinstance(state.operator_overrides[MODE], ModeOverride)
    assert state.actions == expected[0].actions
    assert {n.node: n.state for n in state.nodes.values()} == {n.node: n.state for n in expected[0].nodes.values()}
    assert not [
        action for action in expected[1].values() if action.verb in (CORDON, UNCORDON) and not action.state.final
    ]


def test_the_record_replayed_gives_the_same_decisions() -> None:
    rules, state, made = settings(mode=Mode.RECOMMEND), ClusterState(), []
    for item in TOLD:
        apply_input(state, item, rules)
        made += state.take_changes().decisions.values()
    assert replay_decisions(TOLD, rules) == made
    assert [decision.answer for decision in made] == [Answer.ACT]


def test_an_order_that_is_cancelled_leaves_the_others_of_its_job_too() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    verb = OrderKind.CHECKPOINT_THEN_EJECT.value
    orders: list[Any] = story.open_actions(verb)
    assert len(orders) == 2
    story.submit(ActionCancelled(at=story.now, action=orders[0].id, actor="kim"))
    assert not story.open_actions(verb)
