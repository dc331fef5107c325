"""The next step of an incident, and the command with which an operator can act on it. Pure."""

from __future__ import annotations

from healthctl.pages.incident_page import format_proposed_steps
from healthctl.rendering.blocks import Cell, Tone, Value, format_timestamp
from remediator.model.journal_records import BREAKER, Answer, IncidentState
from remediator.model.views import IncidentView, NodeView
from vocabulary.identity import NODE_NAME

_LEFT = {Answer.OBSERVE.value, Answer.RECOMMEND.value}


def describe_next_step(incident: IncidentView, node: NodeView | None) -> Value:
    """Describe what comes next. `node` is the incident's node, None if there are several or it is unknown."""
    if incident.state == IncidentState.CLOSED.value:
        return ""
    if node is not None and node.hands_off is not None:
        held = node.hands_off
        until = "" if held.until is None else f" until {format_timestamp(held.until)}"
        text = f"nothing while {held.actor} holds the node{until}; to continue: healthctl nodes release {node.node}"
        return Cell(text, Tone.WARN)
    if pending := [f"{s.text} ({s.detail})" if s.detail else s.text for s in incident.steps if s.state == "pending"]:
        return ", ".join(pending) + _format_approval_hint(incident)
    if incident.awaits:
        return Cell(
            f"{format_proposed_steps(incident.proposed) or incident.awaits[0].text}{_format_approval_hint(incident)}",
            Tone.WARN,
        )
    if incident.state == IncidentState.WAITING.value:
        return Cell(_describe_required_operator_step(incident, node), Tone.WARN)
    if incident.state == IncidentState.ACTING.value:
        return ""
    if incident.node == BREAKER:
        return Cell(
            "no node is isolated until an operator resets the breaker: healthctl breaker reset 'WHY IT OPENED'",
            Tone.WARN,
        )
    if not NODE_NAME.fullmatch(incident.node):
        text = f"find and fix the common cause of these nodes, then: healthctl incidents resolve {incident.id} 'WHAT IT WAS'"
        return Cell(text, Tone.WARN)
    return _describe_undecided(incident)


def is_stoppable(incident: IncidentView, node: NodeView | None) -> bool:
    """Whether automation acts, or may act, on the incident's node, so that a hold would stop it."""
    if not NODE_NAME.fullmatch(incident.node) or (node is not None and node.hands_off is not None):
        return False
    return incident.state != IncidentState.WAITING.value and _latest_answer(incident) not in _LEFT


def _describe_undecided(incident: IncidentView) -> Value:
    """Describe the next step while nothing is under way and no approval is pending."""
    answer, steps = _latest_answer(incident), format_proposed_steps(incident.proposed)
    if answer in _LEFT:
        return f"nothing in mode {answer}; proposed: {steps}" if steps else ""
    if answer == Answer.BLOCKED.value:
        then = f"; then: {steps}" if steps else ""
        return f"starts when all guards pass{then}"
    return "nothing; watched until it clears" if answer == Answer.WATCH.value else ""


def _describe_required_operator_step(incident: IncidentView, node: NodeView | None) -> str:
    if incident.waits_for_part:
        return f"waiting for a replacement part; after the repair, run a preflight, then: healthctl nodes uncordon {incident.node} 'WHAT WAS DONE'"
    if node is not None and node.held_by:
        return f"waiting for you: fix it, then: healthctl nodes uncordon {incident.node} 'WHAT WAS DONE'"
    return f"waiting for you: fix it, then: healthctl incidents resolve {incident.id} 'WHAT WAS DONE'"


def _format_approval_hint(incident: IncidentView) -> str:
    return f"; awaiting approval: healthctl actions approve {incident.awaits[0].id}" if incident.awaits else ""


def _latest_answer(incident: IncidentView) -> str:
    return max(incident.decisions, key=lambda each: each.at).answer if incident.decisions else ""
