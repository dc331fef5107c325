"""Builds the message of an action from its incident. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from remediator.model.delivery import NotificationMessage
from remediator.model.journal_records import Action, Incident, NodeRecord
from remediator.model.node_location import CAUSES
from remediator.notifications.alert_routes import match_node_labels
from remediator.notifications.alert_settings import AlertSettings
from vocabulary.finding import Finding, Severity


def build_action_message(
    action: Action,
    incident: Incident | None,
    findings: Sequence[Finding],
    node: NodeRecord | None,
    telling: AlertSettings,
    cluster: str,
) -> NotificationMessage:
    """Build the message of an alert, a ticket or a hook.

    Its severity is the highest of the incident's findings, or the action's own if that is higher: an incident about
    many nodes, silence or the breaker may have no finding at all.
    """
    said = [f.severity for f in findings]
    said += [Severity(str(action.data["severity"]))] if "severity" in action.data else []
    severity = max(said, key=lambda s: s.rank, default=Severity.UNCLASSIFIED)
    own = _node_message_fields(node) if node is not None else _location_labels(action.node)
    labels = {
        **{name: value for name, value in own.items() if value},
        **match_node_labels(action.node, telling.node_labels),
    }
    return NotificationMessage(
        id=action.id,
        kind=action.verb,
        cluster=cluster,
        node=action.node,
        incident=action.incident,
        title=incident.title if incident is not None else "",
        rule=incident.rule if incident is not None else "",
        text=str(action.data.get("how", "")),
        injected=incident is not None and incident.injected,
        severity=severity,
        at=action.planned_at,
        page=action.verb == "alert" and severity in telling.page,
        link=f"{telling.public_url.rstrip('/')}/incidents/{action.incident}" if telling.public_url else "",
        labels=labels,
        update=bool(action.data.get("update", False)),
    )


def _node_message_fields(node: NodeRecord) -> dict[str, str]:
    return {
        "state": node.state.value,
        "architecture": ",".join(node.architectures),
        "job": ",".join(dict.fromkeys(ref.job for ref in node.jobs)),
        **{kind: ",".join(node.places.of(kind)) for kind in CAUSES},
    }


def _location_labels(about: str) -> dict[str, str]:
    """Return labels of a location, ``rack:r12`` or ``silence:rack:r12``, so that routes for its nodes match it too."""
    kind, _, name = about.removeprefix("silence:").partition(":")
    return {kind: name} if kind in (*CAUSES, "job") else {}
