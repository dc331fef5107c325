"""What an action says to people, from what is known of its incident. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from remediator.act.webhooks.routes import labels_of
from remediator.act.webhooks.telling import Telling
from remediator.model.delivery import Message
from remediator.model.places import CAUSES
from remediator.model.records import Action, Incident, NodeRecord
from vocabulary.finding import Finding, Severity


def message_of(
    action: Action,
    incident: Incident | None,
    findings: Sequence[Finding],
    node: NodeRecord | None,
    telling: Telling,
    cluster: str,
) -> Message:
    """The message of an alert, a ticket or a hook.

    Its severity is the gravest of the incident's findings, or what the action itself says where that is graver: what
    concerns many nodes, silence or the breaker, may have no finding at all.
    """
    said = [f.severity for f in findings]
    said += [Severity(str(action.data["severity"]))] if "severity" in action.data else []
    severity = max(said, key=lambda s: s.rank, default=Severity.UNCLASSIFIED)
    own = _of_node(node) if node is not None else _of_place(action.node)
    labels = {**{name: value for name, value in own.items() if value}, **labels_of(action.node, telling.node_labels)}
    return Message(
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


def _of_node(node: NodeRecord) -> dict[str, str]:
    return {
        "state": node.state.value,
        "architecture": ",".join(node.architectures),
        "job": ",".join(dict.fromkeys(ref.job for ref in node.jobs)),
        **{kind: ",".join(node.places.of(kind)) for kind in CAUSES},
    }


def _of_place(about: str) -> dict[str, str]:
    """``rack:r12`` or ``silence:rack:r12``: a route that catches the rack's nodes catches the rack too."""
    kind, _, name = about.removeprefix("silence:").partition(":")
    return {kind: name} if kind in (*CAUSES, "job") else {}
