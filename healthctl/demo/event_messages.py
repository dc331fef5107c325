"""Short messages for audit events, for people who watch the demo. Pure; None for events that later ones repeat."""

from __future__ import annotations

from remediator.model.views import EventView

UNTOLD = frozenset({"node_joined", "action_planned", "incident_opened"})
BEFORE = frozenset({"token_issued", "policy"})  # events of the startup, which the demo has already reported
TRAINER_ORDERS = {
    "checkpoint_then_eject": "save and leave",
    "checkpoint_then_stop": "save and stop",
    "revert": "go back",
    "abort": "abort",
}


def format_event(event: EventView) -> str | None:
    """One line without the node's name, which has its own column."""
    if event.kind in UNTOLD | BEFORE:
        return None
    if event.kind in {"order_progress", "action_ended"} and event.data.get("verb") in TRAINER_ORDERS:
        return _format_order_event(event)
    text = event.text.removeprefix(f"{event.node}: ")
    for words in (f" of {event.node}", f" on {event.node}") if event.node else ():
        text = text.replace(words, "")
    if event.kind == "node_state":
        return None if "→ suspect" in text else f"node: {text.partition(' (')[0]}"
    if event.kind == "decision":
        return f"decision: {text.partition(' ')[2]}"
    return text


def _format_order_event(event: EventView) -> str | None:
    """Format an order that all ranks of a job share; it is reported once, so it contains nothing node-specific."""
    name = TRAINER_ORDERS[str(event.data["verb"])]
    _, _, result = event.text.partition(f" of {event.node} ")
    if event.kind == "action_ended" and not result.startswith("succeeded"):
        return f"order '{name}' to {event.node} {result}"
    if "saved_at" in event.data:
        return f"order '{name}': the checkpoint is complete"
    if event.kind == "action_ended":
        return None
    if "agreed_step" in event.data:
        return f"order '{name}': all ranks agree on step {event.data['agreed_step']}"
    return f"order '{name}' is in the ranks' mailboxes" if "mailbox_at" in event.data else None
